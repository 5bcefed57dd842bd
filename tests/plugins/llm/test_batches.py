"""Training through the batch APIs, against a real server that speaks them."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from orchestrion_llm.batches import Batches, Results
from orchestrion_llm.faults import Place
from orchestrion_llm.prices import LongPrice, Price
from orchestrion_llm.settings import Batch
from orchestrion_offline.server import StubServer, serving
from orchestrion_offline.settings import Serving, Troubles
from orchestrion_offline.speakers.steps import Solver

from orchestrion import Key, UsageError
from orchestrion.config import load
from orchestrion.runs import RunReader, atrain, open_run
from tests import clock
from tests.coroutines import sync
from tests.end_to_end.support import environment
from tests.plugins.llm.test_command_line import here

SOLVER = {"solver": Solver(skills={}, skill=0.7)}
QUICK = {"gather": 0.02, "poll": 0.02}
WIRES = {
    "anthropic": {"use": "anthropic"},
    "chat": {"use": "openai"},
    "responses": {"use": "openai", "api": "responses"},
}


def team(folder: Path, stub: StubServer, wire: str = "chat", **model: Any) -> Path:
    """A config that asks the server; four problems of two steps each are evaluated."""
    folder.mkdir(exist_ok=True)
    settings = {
        **WIRES[wire],
        "model": "solver",
        "base_url": f"{stub.url}/v1",
        "key_env": "TEST_KEY",
        "max_tokens": 200,
        "price": {"input": 10, "output": 40},
        "batch": QUICK,
        **model,
    }
    solver = {"use": "chat", "model": "m", "instructions": "Write the next line."}
    config = {
        "seed": 7,
        "task": {"use": "steps", "steps": 2, "train": 2, "validation": 2, "test": 4},
        "models": {"m": settings},
        "agents": {"solver": solver},
        "policy": {"use": "sequence", "steps": ["solver", "solver"]},
        "reward": {"use": "exact-outcome"},
        "limits": {"turns": 2},
        "budget": {"usd": 1},
        "run": {"timeout": None, "name": "batched"},
    }
    path = folder / "team.yaml"
    path.write_text(json.dumps(config))
    (folder / ".env").write_text("TEST_KEY=sk-of-the-test")
    return path


@sync
async def test_a_time_limit_that_no_batch_can_keep_is_refused(tmp_path: Path) -> None:
    async with serving(SOLVER) as stub:
        path = team(tmp_path, stub)
        path.write_text(path.read_text().replace('"timeout": null', '"timeout": 600'))
        with pytest.raises(UsageError, match=r"run\.timeout ends a turn after 600 s"):
            await trained(path)
        assert stub.requests == 0


def bill(folder: Path) -> dict[str, Any]:
    total: dict[str, Any] = json.loads(here("cost", "batched", "--json", cwd=folder).stdout)[
        "total"
    ]
    return total


def answers(folder: Path) -> list[str]:
    with RunReader(folder / "runs" / "batched") as run:
        return [t.output.content for row in run.episodes() for t in row.episode.turns]


async def trained(path: Path) -> None:
    await atrain(load(path), path.parent / "runs" / "batched")


@pytest.mark.parametrize("wire", WIRES)
def test_a_run_in_batches_gives_the_same_and_costs_half(wire: str, tmp_path: Path) -> None:
    async def main() -> int:
        async with serving(SOLVER) as stub:
            await trained(team(tmp_path / "one", stub, wire, batch=None))
            assert stub.batches.batches == []
            before = stub.requests
            await trained(team(tmp_path / "all", stub, wire))
            # Each step of all problems together, and nothing else was asked.
            assert [len(one.requests) for one in stub.batches.batches] == [4, 4]
            assert stub.requests == before + 8
            return before

    assert asyncio.run(main()) == 8
    one, batched = bill(tmp_path / "one"), bill(tmp_path / "all")
    assert batched["usd"] == pytest.approx(one["usd"] / 2)
    assert batched["answered"] == one["answered"] == 8
    assert answers(tmp_path / "all") == answers(tmp_path / "one")
    assert "identical" in here("replay", "batched", cwd=tmp_path / "all").stdout


@pytest.mark.parametrize("wire", ["chat"])
def test_a_killed_run_takes_up_its_batch_and_pays_once(wire: str, tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(SOLVER) as stub:
            path = team(tmp_path, stub, wire)
            stub.batches.ready = False
            words = (sys.executable, "-m", "orchestrion", "train", path.name)
            process = await asyncio.create_subprocess_exec(
                *words,
                cwd=tmp_path,
                env=environment(),
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.DEVNULL,
            )
            while not any(one.looks for one in stub.batches.batches):
                assert process.returncode is None
                await asyncio.sleep(0.02)
            process.send_signal(signal.SIGKILL)
            await process.wait()
            stub.batches.ready = True
            assert stub.requests == 0
            await trained(path)
            assert [len(one.requests) for one in stub.batches.batches] == [4, 4]
            assert stub.requests == 8

    asyncio.run(main())
    total = bill(tmp_path)
    assert (total["answered"], total["calls"], total["booked_without_answer"]) == (8, 8, {})
    assert total["estimated"]["usd"] == 0


def test_requests_that_fail_in_a_batch_are_sent_again_in_another(tmp_path: Path) -> None:
    troubles = Serving(troubles=Troubles(server_error=0.25), seed=1)

    async def main() -> list[int]:
        async with serving(SOLVER, troubles) as stub:
            await trained(team(tmp_path, stub))
            return [len(one.requests) for one in stub.batches.batches]

    sizes = asyncio.run(main())
    total = bill(tmp_path)
    assert total["answered"] == 8
    assert sum(sizes) == 8 + total["retried"] > 8


@sync
async def test_a_batch_is_no_larger_than_it_may_be_and_other_commands_use_none(
    tmp_path: Path,
) -> None:
    async with serving(SOLVER) as stub:
        path = team(tmp_path, stub, batch={**QUICK, "size": 3})
        await trained(path)
        sizes = [len(one.requests) for one in stub.batches.batches]
        assert (sum(sizes), max(sizes)) == (8, 3)
        async with open_run(str(path)) as opened:
            problem = opened.engine.team.task.problems("test")[0]
            await opened.engine.run("e", problem, Key(1))
        assert len(stub.batches.batches) == len(sizes)


def test_a_batch_waits_for_requests_that_still_come(tmp_path: Path) -> None:
    sent: list[list[str]] = []

    class Answers:
        async def submit(self, requests: Mapping[str, bytes]) -> str:
            sent.append(list(requests))
            return "batch"

        async def results(self, batch: str) -> Results:
            return dict.fromkeys(sent[-1], b"")

    async def main() -> None:
        place, settings = Place("models.m", "service", "model", ""), Batch(gather=1.0)
        batches = Batches(Answers(), place, settings, tmp_path / "ledger", lambda error: error)

        async def ask(n: int) -> None:
            await asyncio.sleep(0.75 * n)
            await batches.answer(f"request {n}", b"{}")

        await asyncio.gather(*map(ask, range(4)))

    clock.run(main())
    assert sent == [[f"request {n}" for n in range(4)]]


def test_an_interrupted_run_takes_up_its_batch_as_well(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(SOLVER) as stub:
            path = team(tmp_path, stub, "anthropic")
            stub.batches.ready = False
            running = asyncio.create_task(trained(path))
            while not stub.batches.batches:
                assert not running.done()
                await asyncio.sleep(0.01)
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            stub.batches.ready = True
            await trained(path)
            assert [len(one.requests) for one in stub.batches.batches] == [4, 4]

    asyncio.run(main())
    total = bill(tmp_path)
    assert (total["answered"], total["calls"], total["estimated"]["usd"]) == (8, 8, 0)


def test_batches_cost_half_for_all_tokens() -> None:
    long = LongPrice(20.0, 60.0, cache_write=25.0, over=1000)
    price = Price(10.0, 40.0, cached_input=1.0, long=long, tools={"web_search": 0.01})
    assert price.batched() == Price(
        5.0,
        20.0,
        cached_input=0.5,
        long=LongPrice(10.0, 30.0, cache_write=12.5, over=1000),
        tools={"web_search": 0.01},
    )
