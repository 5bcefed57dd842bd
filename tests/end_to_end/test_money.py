"""A budget under load, against a server that keeps count itself: faults, kill -9, resume."""

from __future__ import annotations

import asyncio
import re
import sqlite3
import time
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from attrs import define, field

from orchestrion.runs import RunReader
from tests.core.plugin_support import Site
from tests.end_to_end.loopback import install
from tests.end_to_end.support import here, start
from tests.service import ModelService, Seen, cut, hang, reply

FAULTS = ("no usage", "hidden tokens", "cut", "hang", "429")
LONGEST, WRITTEN = 100, 60
"""Tokens that an answer may have, and those that most have."""
PROMPT = 80


CAP, WIDTH, ROOM = 0.05, 20, 120
"""US dollars; calls in flight; how many of them fit into the cap at their worst."""


@define
class Bank:
    """Answers, and charges for all it did, whether or not it says so or anybody hears it."""

    input: float
    output: float
    charged: float = 0.0
    asked: dict[int, int] = field(factory=dict)
    answered: set[int] = field(factory=set)
    client: str = ""
    """The key of the process that is alive: what a killed one asked is answered to nobody."""

    async def __call__(self, seen: Seen, writer: asyncio.StreamWriter) -> None:
        """One request, as a `Reply`."""
        number = int(re.search(r"digit (\d+)", seen.data["messages"][-1]["content"])[1])  # type: ignore[index]
        n = self.asked[number] = self.asked.get(number, 0) + 1
        draw = int(sha256(f"{number}/{n}".encode()).hexdigest(), 16)
        fault = FAULTS[draw // 100 % 5]
        rare = draw % 100 < {"429": 2, "hang": 6}.get(fault, 12)
        if fault in ("cut", "hang", "429") and not rare:
            fault = ""
        if fault == "429":
            await reply(429, {"error": {"message": "slow down"}}, retry_after_ms="20")(seen, writer)
            return
        # What the service does of its own, it may do up to the limit that it was given.
        output = LONGEST if fault in ("hidden tokens", "cut", "hang") else WRITTEN
        self.charged += (PROMPT * self.input + output * self.output) / 1e6
        body: dict[str, Any] = {
            "model": "m",
            "choices": [
                {
                    "index": 0,
                    "message": {"role": "assistant", "content": f"digit {number} is 5"},
                    "finish_reason": "stop",
                }
            ],
        }
        if fault not in ("no usage", "hidden tokens"):
            body["usage"] = {"prompt_tokens": PROMPT, "completion_tokens": output}
        if fault == "hang":
            await hang()(seen, writer)
        elif fault == "cut":
            await cut(body, 20)(seen, writer)
        else:
            await asyncio.sleep(0.02)
            await reply(200, body)(seen, writer)
            if seen.headers["authorization"].endswith(self.client):
                self.answered.add(number)


def config(url: str) -> dict[str, Any]:
    """One call an episode, and more episodes than the money is enough for."""
    price = CAP / ROOM / (400 + 3 * LONGEST) * 1e6
    return {
        "seed": 2,
        "task": {"use": "digits", "train": 1, "test": 4 * ROOM},
        "models": {
            "m": {
                "use": "openai",
                "model": "m",
                "base_url": f"{url}/v1",
                "key_env": "LOOP_KEY",
                "preflight": False,
                "price": {"input": price, "output": 3 * price},
                "max_tokens": LONGEST,
                # Whoever is answered too late does not hear it, and the answer counts as lost.
                "timeout": 5.0,
            }
        },
        "agents": {"writer": {"use": "ask", "model": "m"}},
        "policy": {"use": "sequence", "steps": ["writer"]},
        "reward": {"use": "exact-outcome"},
        "limits": {"turns": 1},
        "budget": {"usd": CAP},
        "run": {"name": "money", "concurrency": WIDTH},
    }


def on_record(directory: Path) -> tuple[set[int], float]:
    """The problems whose answers the run has, and what it has booked in all."""
    if not (directory / "run.db").exists():
        return set(), 0.0
    connection = sqlite3.connect(f"file:{directory / 'run.db'}?mode=ro", uri=True)
    try:
        found = connection.execute("SELECT answer FROM calls WHERE kind = 'answer'")
        numbers = {int(re.search(r"digit (\d+)", text)[1]) for (text,) in found}  # type: ignore[index]
        (booked,) = connection.execute("SELECT sum(usd) FROM calls").fetchone()
        return numbers, booked or 0.0
    finally:
        connection.close()


STATING = """
@hookimpl
def orchestrion_agents():
    yield Component("stating", "stating_parts:Stating", "for a test")
"""
STATING_PARTS = """
from pathlib import Path
from attrs import frozen
from orchestrion import Agent, Output, Usage

@frozen
class Stating(Agent):
    counter: str = ""

    async def act(self, view, key, calls):
        with open(self.counter, "a") as file:
            file.write(".")
        return Output("digit 5", usage=Usage(usd=0.01))
"""


@pytest.mark.parametrize("trainer", [None, {"use": "repeat", "iterations": 1}])
def test_what_turns_state_outlives_a_kill(trainer: object, tmp_path: Path) -> None:
    """Killed inside an iteration and inside an evaluation: the record never lags by a turn."""
    counter = tmp_path / "turns"
    settings: dict[str, Any] = {
        "seed": 2,
        "task": {"use": "digits", "train": 200, "test": 200},
        "agents": {"a": {"use": "stating", "counter": str(counter)}},
        "policy": {"use": "sequence", "steps": ["a"]},
        "reward": {"use": "exact-outcome"},
        "limits": {"turns": 1},
        "budget": {"usd": 1.0},
        "run": {"name": "money", "concurrency": 1},
    }
    env = install(tmp_path, settings | ({} if trainer is None else {"trainer": trainer}))
    Site(tmp_path / "site").plugin("stating", STATING, stating_parts=STATING_PARTS)
    process = start(tmp_path, "train", **env)
    while process.poll() is None and not (counter.exists() and counter.stat().st_size > 40):
        time.sleep(0.001)  # between two looks; nothing hangs on its length
    process.kill()
    process.wait()
    turns = counter.stat().st_size
    # One turn may have been under way: nobody can know yet what it took.
    assert on_record(tmp_path / "runs" / "money")[1] >= 0.01 * (turns - 1) - 1e-9
    here("resume", "money", cwd=tmp_path, code=4, **env)
    assert 100 <= counter.stat().st_size <= 102
    with RunReader(tmp_path / "runs" / "money") as run:
        assert run.stated().usd == run.spend().usd >= 0.01 * (counter.stat().st_size - 1) - 1e-9


def test_a_servers_own_count_never_passes_the_cap(tmp_path: Path) -> None:
    bank = Bank(0.0, 0.0)
    directory = tmp_path / "runs" / "money"
    with ModelService(bank) as server:
        settings = config(server.url)
        price = settings["models"]["m"]["price"]
        bank.input, bank.output = price["input"], price["output"]
        env = install(tmp_path, settings) | {"LOOP_KEY": "sk-0123456789abcdef-killed"}
        process = start(tmp_path, "train", **env)
        while process.poll() is None and sum(bank.asked.values()) < WIDTH + 20:
            time.sleep(0.005)  # between two looks; nothing hangs on its length
        process.kill()
        process.wait()
        known, booked = on_record(directory)
        assert bank.charged <= booked + 1e-12, "never less on record than was taken"
        bank.client = env["LOOP_KEY"] = "sk-0123456789abcdef-last"
        asked, bank.answered = dict(bank.asked), set()
        here("resume", "money", cwd=tmp_path, code=4, **env)
        twice = {i for i in known if bank.asked[i] > asked[i]}
    known, booked = on_record(directory)
    assert not bank.answered - known, "no answer is lost"
    assert not twice, "nothing is paid twice"
    assert bank.charged <= booked + 1e-12
    assert 0.9 * CAP <= booked <= CAP + 1e-12
