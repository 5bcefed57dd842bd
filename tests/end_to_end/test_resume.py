"""Killed, interrupted, starved or damaged: a run that is resumed ends like one that was not."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from orchestrion.runs import RunReader
from tests import warm
from tests.end_to_end.support import (
    EXAMPLES,
    anew,
    here,
    result,
    start,
    wait_for_iterations,
    wait_until_stopped,
)

CONFIG = str(EXAMPLES / "quick.yaml")
SHORT = (
    "-o",
    "trainer.iterations=12",
    "-o",
    "trainer.episodes=8",
    "-o",
    "evaluation.episodes=16",
    "-o",
    "evaluation.baselines={}",
)
KILLS = int(os.environ.get("ORCHESTRION_KILLS", "2"))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The result of an uninterrupted run, of a Python with another hash seed than all others."""
    folder = tmp_path_factory.mktemp("whole")
    anew("train", CONFIG, *SHORT, cwd=folder)
    return result(folder / "runs" / "quick-1")


def begin(folder: Path, iterations: int) -> tuple[warm.Command, Path]:
    """A run that has committed so many iterations and goes on, and its folder."""
    process = start(folder, "train", CONFIG, *SHORT)
    directory = folder / "runs" / "quick-1"
    wait_for_iterations(directory, iterations, process)
    return process, directory


@pytest.mark.parametrize("kill", range(KILLS))
def test_kill_9_at_a_random_moment_changes_nothing(
    kill: int, tmp_path: Path, whole: dict[str, Any]
) -> None:
    draw = random.Random(kill)
    process, directory = begin(tmp_path, draw.randrange(12))
    deadline = time.monotonic() + draw.random() * 0.2
    while time.monotonic() < deadline and process.poll() is None:
        os.sched_yield()
    process.kill()
    process.wait()
    if not (directory / "run.db").exists():  # killed before there was a run to go on with
        here("train", CONFIG, *SHORT, cwd=tmp_path)
    else:
        file = directory / "run.log"
        before = file.read_text().splitlines() if file.exists() else []
        here("resume", "quick-1", cwd=tmp_path)
        log = file.read_text().splitlines()
        assert log[: len(before)] == before, "its lines are whole, and a resume appends"
        assert json.loads(log[-1])["event"] == "run finished"
        assert all(json.loads(line)["run"] == "quick-1" for line in log)
    assert result(directory) == whole


def test_runs_share_a_folder_and_a_killed_one_harms_no_other(
    tmp_path: Path, whole: dict[str, Any]
) -> None:
    fault = "commit.written:stop@2"
    processes = [
        start(tmp_path, "train", CONFIG, *SHORT, ORCHESTRION_FAULT=fault) for _ in range(2)
    ]
    for process in processes:  # both are in the middle of a commit
        wait_until_stopped(process)
    same = here("train", CONFIG, *SHORT, "-o", "run.name=quick-2", cwd=tmp_path, code=2)
    assert "quick-2: already holds files" in same.stderr
    other = here("train", CONFIG, *SHORT, "-o", "run.name=other", cwd=tmp_path)
    assert other.returncode == 0
    processes[0].kill()
    processes[0].wait()
    processes[1].send_signal(signal.SIGCONT)
    assert processes[1].wait() == 0
    names = {"quick-1", "quick-2"}
    with ExitStack() as stack:
        runs = [stack.enter_context(RunReader(tmp_path / "runs" / name)) for name in names]
        assert {run.status for run in runs} == {"completed", "interrupted"}
    for name in names:
        here("resume", name, cwd=tmp_path)
    for name in (*names, "other"):
        assert result(tmp_path / "runs" / name) == whole


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupt_ends_orderly_and_can_be_resumed(
    number: signal.Signals, code: int, tmp_path: Path, whole: dict[str, Any]
) -> None:
    # It stands still when the signal comes, or it could be over before.
    fault = "commit.written:stop@2"
    process = start(tmp_path, "train", CONFIG, *SHORT, ORCHESTRION_FAULT=fault)
    wait_until_stopped(process)
    directory = tmp_path / "runs" / "quick-1"
    if number == signal.SIGINT:
        second = here("resume", str(directory), cwd=tmp_path, code=1)
        assert f"in use by process {process.pid}" in second.stderr
    process.send_signal(number)
    process.send_signal(signal.SIGCONT)
    assert process.wait() == code
    with RunReader(directory) as run:
        assert run.status == "cancelled"
    here("resume", "quick-1", cwd=tmp_path)
    assert result(directory) == whole


def test_concurrency_does_not_change_a_bit_and_a_finished_run_prints_its_report_again(
    tmp_path: Path, whole: dict[str, Any]
) -> None:
    first = here("train", CONFIG, *SHORT, "-o", "run.concurrency=7", cwd=tmp_path)
    assert here("resume", "quick-1", cwd=tmp_path).stdout == first.stdout
    assert result(tmp_path / "runs" / "quick-1") == whole


def test_an_exhausted_budget_ends_with_4_and_can_be_resumed_with_more(
    tmp_path: Path, whole: dict[str, Any]
) -> None:
    done = here("train", CONFIG, *SHORT, "-o", "budget.minutes=0.0001", cwd=tmp_path, code=4)
    assert "budget.minutes" in done.stderr
    assert "orchestrion resume" in done.stderr
    here("resume", "quick-1", "-o", "budget.minutes=null", cwd=tmp_path)
    assert result(tmp_path / "runs" / "quick-1") == whole


def test_a_budget_that_baselines_used_up_leaves_the_report_on_the_teams_before(
    tmp_path: Path,
) -> None:
    (tmp_path / "priced.py").write_text(
        "from orchestrion import Output, Usage\n"
        "def say(text):\n"
        "    return Output(text, usage=Usage(calls=1))\n"
    )
    policy = {"use": "sequence", "steps": ["one"]}
    config = {
        "task": {
            "use": "jsonl",
            "rows": [{"question": f"{n}", "answer": f"{n}"} for n in range(8)],
            "split": {"train": 0.0, "validation": 0.0, "test": 1.0},
        },
        "agents": {"one": {"use": "function", "function": "priced:say"}},
        "policy": policy,
        "reward": {"use": "exact-outcome"},
        "budget": {"calls": 18},
        "evaluation": {"baselines": {name: {"policy": policy} for name in ("b1", "b2", "b3")}},
    }
    (tmp_path / "team.yaml").write_text(json.dumps(config))
    done = here("train", "team.yaml", cwd=tmp_path, code=4)
    assert "held-out split 'test': 8 problems" in done.stderr
    assert "reward of team minus b1" in done.stderr
    assert "not evaluated yet: b2, b3" in done.stderr
