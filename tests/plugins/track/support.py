"""A tracker of one's own, which writes lines of JSON, and runs to send."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import frozen
from orchestrion_track import Backend, Point, RunInfo, Tracker

from orchestrion.config import Config, from_data
from orchestrion.runs import Progress, RunReader, train
from tests.workspace import ROOT

Values = dict[tuple[str, int], float]
"""By metric and step."""


@frozen
class Lines(Tracker):
    """Appends a line for every point; `trouble` says what goes wrong."""

    file: str
    trouble: str = ""
    """ "fail" in connecting, "silence" from a service, or "crash" before it is noted what was
    written, once."""

    def connect(self, run: RunInfo, known: str | None, sent: int) -> Backend:
        if self.trouble == "fail":
            raise OSError("no such place")
        if self.trouble == "silence":
            with socket.create_connection(("127.0.0.1", int(self.file))) as connection:
                connection.recv(1)
        return _File(self, run, known)


class _File:
    def __init__(self, tracker: Lines, run: RunInfo, known: str | None) -> None:
        self._tracker, self._file = tracker, Path(tracker.file)
        self.id = known or f"{run.name}-{os.getpid()}"
        self._file.touch()
        # It can tell what it holds, as trackers can whose cursor may be behind.
        self.held = max((point["step"] + 1 for point in lines(self._file)), default=0)
        self._write(run=self.id, seed=run.config["seed"])

    def log(self, points: Sequence[Point]) -> None:
        for point in points:
            self._write(step=point.step, at=point.at, values=dict(point.values))
        if self._tracker.trouble == "crash" and not self._file.with_suffix(".crashed").exists():
            self._file.with_suffix(".crashed").touch()
            os.kill(os.getpid(), signal.SIGKILL)

    def attach(self, file: Path) -> None:
        raise NotImplementedError

    def finish(self, status: str) -> None:
        self._write(status=status)

    def _write(self, **data: Any) -> None:
        with self._file.open("a") as file:
            file.write(json.dumps(data) + "\n")


def lines(file: Path) -> list[dict[str, Any]]:
    """Return the points in such a file."""
    every = map(json.loads, file.read_text().splitlines())
    return [line for line in every if "step" in line]


def config(trackers: Mapping[str, Mapping[str, Any]], iterations: int = 3) -> Config:
    """Return a small team that trains in a moment."""
    kit = "orchestrion.testing._stage"
    data: dict[str, Any] = {
        "seed": 2,
        "task": {"use": f"{kit}:KitTask", "solver": "c"},
        "agents": {name: {"use": f"{kit}:KitAgent"} for name in "abc"},
        "policy": {"use": "tests.core.planted:Bandit"},
        "reward": {"use": f"{kit}:KitReward"},
        "trainer": {"use": "tests.core.planted:Practice"},
        "run": {"iterations": iterations, "checkpoint_every": 2},
    }
    return from_data(data | ({"trackers": trackers} if trackers else {}))


def run(directory: Path, trackers: Mapping[str, Mapping[str, Any]]) -> Path:
    """Train in a folder, and return it."""
    train(config(trackers), directory)
    return directory


def stored(directory: Path) -> Values:
    """Return the metrics of a run's iterations, as its store has them."""
    with RunReader(directory) as reader:
        return {
            (name, step): value
            for step, iteration in enumerate(reader.iterations())
            for name, value in iteration.metrics.items()
        }


def sent(directory: Path) -> dict[str, Any]:
    """Return what the run folder says of its one tracker."""
    [file] = (directory / "trackers").glob("*.json")
    state: dict[str, Any] = json.loads(file.read_text())
    return state


def killed_and_resumed(directory: Path, trackers: Mapping[str, Mapping[str, Any]]) -> Path:
    """Train in another process, which is killed with its writer in the middle; then to the end."""
    order = json.dumps([str(directory), trackers])
    command = [sys.executable, "-m", __name__, order]
    there = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, check=False, timeout=120, env=there)
    assert done.returncode == -signal.SIGKILL
    assert sent(directory)["sent"] >= 1
    with RunReader(directory) as reader:
        assert reader.status == "interrupted"
    return run(directory, trackers)


class Killer(Progress):
    """Kills the process and its children as soon as the tracker has something."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def iteration(self, iteration: int, metrics: Any, seconds: float) -> None:
        if iteration == 0:  # without a checkpoint: it is run again
            while not (self.directory / "trackers").exists() or not self._something():
                time.sleep(0.02)
            for file in Path("/proc/self/task").glob("*/children"):
                for child in file.read_text().split():
                    os.kill(int(child), signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)

    def _something(self) -> bool:
        files = list((self.directory / "trackers").glob("*.json"))
        return bool(files) and json.loads(files[0].read_text())["sent"] >= 1


if __name__ == "__main__":
    place, wanted = json.loads(sys.argv[1])
    train(config(wanted), place, Killer(Path(place)))
