"""Episodes in other processes: the same bytes as in this one, whatever becomes of a worker."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sqlite3
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from orchestrion_executors.processes import Processes

from orchestrion import BudgetError, RunError, UsageError, evaluate, resume, train
from orchestrion._engine.calls import CallPath
from orchestrion._engine.pool import Pool
from orchestrion._session import first_cause
from orchestrion.runs import RunReader
from tests.end_to_end.support import result, start, wait_for_iterations
from tests.plugins.executors.cluster import spent_in
from tests.service import ModelService, Seen, reply
from tests.workspace import ROOT

PARTS = "tests.plugins.executors.parts"
TWO = "run.executor={use: processes, workers: 2}"


def config(*agents: str, **more: Any) -> dict[str, Any]:
    """A small run with these agents beside a talker."""
    own = {name: {"use": f"{PARTS}:{name.capitalize()}"} for name in ("talker", *agents)}
    for name in agents:
        own[name] |= more.pop(name)
    return {
        "seed": 3,
        "task": {"use": f"{PARTS}:Numbers"},
        "agents": own,
        "policy": {"use": f"{PARTS}:Prefer"},
        "reward": {"use": "exact-outcome"},
        "trainer": {"use": f"{PARTS}:Strengthen", **more.pop("trainer", {})},
        "evaluation": {"baselines": {"untrained": "untrained", "random": "random"}},
        **more,
    }


def everything(directory: Path) -> dict[str, Any]:
    """Metrics, checkpoint, evaluations, and each episode to the last bit."""
    with RunReader(directory) as run:
        episodes = [(kept.source, kept.iteration, kept.episode) for kept in run.episodes()]
    return {**result(directory), "episodes": episodes}


def calls_of(directory: Path) -> list[tuple[Any, ...]]:
    """What the run has on record: what each call was answered, and what it spent."""
    query = "SELECT kind, usd, calls, answer FROM calls WHERE kind != 'stated' ORDER BY key"
    with sqlite3.connect(f"file:{directory / 'run.db'}?mode=ro", uri=True) as connection:
        return list(connection.execute(query))


def test_the_same_bytes_as_in_one_process(tmp_path: Path) -> None:
    alive = tmp_path / "alive"
    for name, overrides in (("two", [TWO]), ("one", [])):  # one process would be killed
        data = config("thinker", thinker={}, trainer={"kills": str(alive)})
        train(data, tmp_path / name, overrides=overrides)
    one, two = everything(tmp_path / "one"), everything(tmp_path / "two")
    assert len(one["episodes"]) == 3 * 12 + 36
    assert one == two
    assert spent_in(tmp_path / "one") == spent_in(tmp_path / "two"), "pure results are booked once"
    lines = [(tmp_path / name / "run.log").read_text() for name in ("one", "two")]
    failures, odd = ([text.count(word) for text in lines] for word in ("cannot do", "odd: p"))
    assert failures[0] == failures[1] > 0, "failed turns are counted and logged as they are here"
    assert odd[0] == odd[1] > 0, "what components log in a worker stands in the run's log"
    here = evaluate(tmp_path / "two", overrides=["run.executor=null"])
    assert here.as_json() == evaluate(tmp_path / "one", overrides=[TWO]).as_json()


def test_what_turns_in_workers_pay_counts_against_the_budget(tmp_path: Path) -> None:
    data = config()
    data["agents"]["talker"]["price"] = 0.25
    for name, overrides in (("two", [TWO]), ("one", [])):
        train({**data, "budget": {"usd": 100}}, tmp_path / name, overrides=overrides)
    assert everything(tmp_path / "two") == everything(tmp_path / "one")
    assert spent_in(tmp_path / "two") == spent_in(tmp_path / "one")
    assert spent_in(tmp_path / "one")[3] > 10
    with pytest.raises(BudgetError, match=r"budget\.usd: .* of 2 spent"):
        train({**data, "budget": {"usd": 2}}, tmp_path / "poor", overrides=[TWO])


def test_policies_that_a_trainer_brings_along_decide_the_same_in_workers(tmp_path: Path) -> None:
    agents = {name: {"use": "bench-agent"} for name in ("planner", "coder_s", "stop")}
    data = {
        "task": {"use": "relay"},
        "agents": agents,
        "policy": {"use": "nearest"},
        "reward": {"use": "outcome-minus-cost"},
        "trainer": {"use": "nearest", "episodes": 48},
        "limits": {"turns": 4},
        "evaluation": {"episodes": 8},
    }
    for name, overrides in (("two", [TWO]), ("one", [])):
        train(data, tmp_path / name, overrides=overrides)
    assert everything(tmp_path / "one") == everything(tmp_path / "two")
    with RunReader(tmp_path / "two") as run:
        assert "run.executor" not in (run.manifest or {}).get("opened", {}), "all ran in workers"


class Service:
    """Answers what it is asked; kills who asks the n-th question in place of an answer."""

    def __init__(self, kill: int = 0) -> None:
        self.kill, self.asked = kill, list[str]()
        self.pids = set[int]()

    async def __call__(self, seen: Seen, writer: asyncio.StreamWriter) -> None:
        """One request, as a `Reply`."""
        draw = seen.data["draw"]
        self.asked.append(draw)
        self.pids.add(seen.data["pid"])
        if len(self.asked) == self.kill:
            os.kill(seen.data["pid"], signal.SIGKILL)
            return
        await reply(200, {"text": draw[: 1 + int(draw[0], 16) % 3]})(seen, writer)


def test_a_killed_worker_costs_what_was_under_way_and_nothing_else(tmp_path: Path) -> None:
    services = {"one": Service(), "two": Service(kill=15)}
    for name, service in services.items():
        with ModelService(service) as serving:
            data = config("asker", asker={"url": serving.url}, run={"concurrency": 4})
            budget = {"usd": 1, "calls": 1000}
            overrides = [TWO] if name == "two" else []
            train({**data, "budget": budget}, tmp_path / name, overrides=overrides)
    one, two = (everything(tmp_path / name) for name in services)
    # The addresses of the services differ, and stand in the digest that a checkpoint has.
    one["checkpoint"] = two["checkpoint"]
    assert one == two
    assert len(services["two"].pids) >= 3, "two workers, and one in the place of the killed one"
    first, second = (calls_of(tmp_path / name) for name in services)
    kinds = [row[0] for row in second]
    assert [row for row in second if row[0] == "answer"] == first
    lost = kinds.count("cut")
    assert 1 <= lost <= 4, "what the killed worker had asked counts as spent, at its worst"
    assert sum(row[1] for row in second if row[0] == "cut") == pytest.approx(lost * 0.002)
    asked = services["two"].asked
    assert len(asked) - len(set(asked)) <= lost, "what was on record is not asked again"
    with RunReader(tmp_path / "two") as run:
        assert run.spend().calls == len(first) + lost


def test_a_worker_that_dies_once_changes_nothing(tmp_path: Path) -> None:
    for name, alive in (("one", __file__), ("two", str(tmp_path / "alive"))):
        data = config("deadly", deadly={"problem": "p5", "alive": alive}, run={"concurrency": 6})
        train(data, tmp_path / name, overrides=[TWO] if name == "two" else [])
    assert (tmp_path / "alive").exists()
    one, two = (everything(tmp_path / name) for name in ("one", "two"))
    assert one["episodes"] == two["episodes"]
    assert one["iterations"] == two["iterations"]


def test_a_worker_has_the_guards_of_a_command(tmp_path: Path) -> None:
    token = "drawn-for-this-test-alone"
    train(config("nasty", nasty={"token": token}), tmp_path / "run", overrides=[TWO])
    with RunReader(tmp_path / "run") as run:
        turns = {
            int(kept.episode.problem.id[1:]) % 5: turn
            for kept in run.episodes()
            for turn in kept.episode.trajectory.turns
            if turn.agent == "nasty"
        }
    for problem, text in ((1, "KeyboardInterrupt"), (2, "would end"), (3, "run every")):
        assert turns[problem].status == "failed"
        assert text in turns[problem].error
    assert "TOKEN" in turns[4].output.content
    for file in tmp_path.rglob("*"):
        assert file.is_dir() or token[::-1].encode() not in file.read_bytes()


def test_a_dead_worker_is_noticed_although_what_it_started_lives(tmp_path: Path) -> None:
    marker = tmp_path / "alive"
    train(config("leaving", leaving={"alive": str(marker)}), tmp_path / "run", overrides=[TWO])
    os.kill(int(marker.read_text()), signal.SIGKILL)  # it was still there


def test_an_episode_that_kills_every_worker_is_named(tmp_path: Path) -> None:
    data = config("deadly", deadly={"problem": "p5"}, run={"concurrency": 6})
    text = r"run\.executor \(processes of .*\): episode 0/\d+/?.*\(problem p5\) lost 3 workers"
    with pytest.raises(RunError, match=text):
        train(data, tmp_path / "run", overrides=[TWO])


def test_what_cannot_be_sent_is_named(tmp_path: Path) -> None:
    data = config(task={"use": f"{PARTS}:Numbers", "locked": True})
    text = r"run\.executor .*: episode 0/0/\d+ \(problem p\d+\): what it needs cannot be sent .*"
    with pytest.raises(RunError, match=text):
        train(data, tmp_path / "run", overrides=[TWO])


class TwoArguments(ValueError):
    """An error that cannot be unpickled: it is made of two arguments, and keeps one."""

    def __init__(self, text: str, more: str) -> None:
        super().__init__(text + more)


def spread_out(kind: str) -> Any:
    if kind == "stops":
        next(iter(()))
    return {"unsendable": threading.Lock(), "unreadable": TwoArguments("a", "b")}.get(kind, kind)


def test_a_spread_function_that_cannot_go_there_and_back_is_the_items_fault() -> None:
    async def spread() -> list[Any]:
        pool = Pool(Processes(1), CallPath(), None, "run.executor")
        results: list[Any] = []
        for function, kind in (
            (lambda kind: kind, "local"),
            (spread_out, "stops"),
            (spread_out, "unsendable"),
            (spread_out, "unreadable"),
            (spread_out, "plain"),
        ):
            try:
                async with asyncio.timeout(60):
                    results += await pool._spread(function, [(kind,)])
            except* RunError as errors:
                results.append(str(first_cause(errors)))
        await pool.close()
        return results

    local, stops, unsendable, unreadable, plain = asyncio.run(spread())
    assert "what it needs cannot be sent" in local
    assert "StopIteration" in stops
    assert "an item of spread_out: its result cannot be sent" in unsendable
    assert "an item of spread_out: its result cannot be read: TypeError" in unreadable
    assert plain == "plain"


def test_what_a_trainer_sets_and_save_leaves_out_is_refused(tmp_path: Path) -> None:
    data = config(trainer={"forgets": True})
    with pytest.raises(RunError, match=r"policy: drift is 0\.5, and 0\.0 after load\(save\(\)\)"):
        train(data, tmp_path / "run", overrides=[TWO])


def children(parent: int) -> list[Path]:
    """What /proc says of each process that another one started, as long as it lives."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            if int(stat.read_text().rpartition(")")[2].split()[1]) == parent:
                found.append(stat)
    return found


def alive(stat: Path) -> bool:
    """Whether that process has not ended."""
    with suppress(OSError):
        return stat.read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def test_the_leading_process_may_be_killed_and_the_executor_changed(tmp_path: Path) -> None:
    data = config("thinker", thinker={}, trainer={"iterations": 8})
    train(data, tmp_path / "whole")
    (tmp_path / "run.yaml").write_text(json.dumps(data))
    words = ("train", "run.yaml", "-o", TWO, "-o", "run.name=cut")
    process = start(tmp_path, *words, PYTHONPATH=str(ROOT))
    directory = tmp_path / "runs" / "cut"
    wait_for_iterations(directory, 3, process)
    workers = children(process.pid)
    assert len(workers) == 2
    os.kill(int(workers[0].parent.name), signal.SIGSTOP)
    process.kill()
    process.wait()
    while any(map(alive, workers)):
        time.sleep(0.02)  # between two looks; a worker ends when the leading process has
    resume(directory, overrides=["run.executor=null"])
    assert result(directory) == result(tmp_path / "whole")
    assert spent_in(directory) == spent_in(tmp_path / "whole"), "nothing is booked again"


def test_ray_that_is_not_installed_says_how_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrion_executors.ray.find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"pip install 'orchestrion-executors\[ray\]'"):
        train(config(), tmp_path / "run", overrides=["run.executor={use: ray}"])
