"""Killed, interrupted, starved or damaged: a run that is resumed ends like one that was not."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from orchestrion.runs import RunReader
from tests.end_to_end.support import EXAMPLES, orchestrion, result, start, wait_for_iterations

CONFIG = str(EXAMPLES / "quick.yaml")
SHORT = (
    "-o",
    "trainer.iterations=12",
    "-o",
    "evaluation.episodes=16",
    "-o",
    "evaluation.baselines={}",
)
KILLS = int(os.environ.get("ORCHESTRION_KILLS", "6"))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The result of an uninterrupted run."""
    folder = tmp_path_factory.mktemp("whole")
    orchestrion("train", CONFIG, *SHORT, cwd=folder)
    return result(folder / "runs" / "quick-1")


def begin(folder: Path, iterations: int) -> tuple[subprocess.Popen[bytes], Path]:
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
        orchestrion("train", CONFIG, *SHORT, cwd=tmp_path)
    else:
        orchestrion("resume", "quick-1", cwd=tmp_path)
    assert result(directory) == whole


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupt_ends_orderly_and_can_be_resumed(
    number: signal.Signals, code: int, tmp_path: Path, whole: dict[str, Any]
) -> None:
    for attempt in range(5):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        process, directory = begin(folder, 1)
        process.send_signal(number)
        if process.wait():
            break  # and else it had ended before the signal came
    assert process.returncode == code
    with RunReader(directory) as run:
        assert run.status == "cancelled"
    orchestrion("resume", "quick-1", cwd=folder)
    assert result(directory) == whole


def test_a_damaged_checkpoint_is_refused_and_the_one_before_it_used(
    tmp_path: Path, whole: dict[str, Any]
) -> None:
    process, directory = begin(tmp_path, 5)
    process.kill()
    process.wait()
    newest = sorted((directory / "checkpoints").glob("*.safetensors"))[-1]
    data = bytearray(newest.read_bytes())
    data[len(data) // 2] ^= 1
    newest.write_bytes(data)
    orchestrion("resume", "quick-1", cwd=tmp_path)
    assert result(directory) == whole
    with RunReader(directory) as run:
        assert any(event.kind == "checkpoint refused" for event in run.events())


def test_concurrency_does_not_change_a_bit(tmp_path: Path, whole: dict[str, Any]) -> None:
    for concurrency in ("1", "7"):
        folder = tmp_path / concurrency
        folder.mkdir()
        orchestrion("train", CONFIG, *SHORT, "-o", f"run.concurrency={concurrency}", cwd=folder)
        assert result(folder / "runs" / "quick-1") == whole


def test_a_finished_run_prints_its_report_again_and_does_nothing(tmp_path: Path) -> None:
    first = orchestrion("train", CONFIG, *SHORT, cwd=tmp_path)
    before = result(tmp_path / "runs" / "quick-1")
    again = orchestrion("resume", "quick-1", cwd=tmp_path)
    assert again.stdout == first.stdout
    assert result(tmp_path / "runs" / "quick-1") == before


def test_an_exhausted_budget_ends_with_4_and_can_be_resumed_with_more(
    tmp_path: Path, whole: dict[str, Any]
) -> None:
    done = orchestrion("train", CONFIG, *SHORT, "-o", "budget.minutes=0.0001", cwd=tmp_path, code=4)
    assert "budget.minutes" in done.stderr
    assert "orchestrion resume" in done.stderr
    orchestrion("resume", "quick-1", "-o", "budget.minutes=null", cwd=tmp_path)
    assert result(tmp_path / "runs" / "quick-1") == whole


def test_another_config_cannot_go_on_with_a_run(tmp_path: Path) -> None:
    process, _ = begin(tmp_path, 2)
    process.kill()
    process.wait()
    done = orchestrion("resume", "quick-1", "-o", "seed=99", cwd=tmp_path, code=2)
    assert "another config" in done.stderr


def test_two_processes_cannot_go_on_with_one_run(tmp_path: Path) -> None:
    process, directory = begin(tmp_path, 1)
    process.send_signal(signal.SIGSTOP)  # or it may end before the other has begun
    done = orchestrion("resume", str(directory), cwd=tmp_path, code=1)
    assert str(process.pid) in done.stderr
    process.kill()
    process.wait()
    shutil.rmtree(directory)
