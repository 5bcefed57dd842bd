"""Send what a run folder holds to one tracker, and note in the folder how far that is.

`RUN/trackers/NAME-HASH.json` holds the tracker run's id and the number of steps sent, one file for
each place that is written to. Whoever writes there holds a lock.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import math
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from orchestrion import UsageError
from orchestrion.config import flat
from orchestrion.runs import (
    Report,
    RunReader,
    make_folder,
    stored_config,
    stored_report,
    write_atomic,
)
from orchestrion_track.interfaces import Backend, Point, RunInfo, Tracker

FOLDER = "trackers"
BATCH = 500
"""Points in one write: what was sent is noted after each."""


def place_of(directory: Path, tracker: Tracker) -> Path:
    """Return the file that says how far a run was sent to a tracker."""
    digest = hashlib.sha256(tracker.target.encode()).hexdigest()[:8]
    return directory / FOLDER / f"{tracker.label}-{digest}.json"


def follow(
    directory: Path,
    tracker: Tracker,
    ended: Callable[[float], bool],
    busy: Callable[[bool], None] | None = None,
) -> Backend:
    """Send all that a run holds, and what comes to it, until it has ended.

    Args:
        directory: the run's folder.
        tracker: where to.
        ended: waits so many seconds, and returns whether nothing more will come.
        busy: told when the tracker is called, and when it has answered. Without it nobody waits
            for another process that sends there.

    Raises:
        UsageError: another process sends there.
        Exception: whatever the tracker raises; another call goes on where this one was.
    """
    wait, busy = busy is not None, busy or (lambda now: None)
    place = place_of(directory, tracker)
    make_folder(place.parent)
    with RunReader(directory) as reader, _locked(place, wait):
        state = _read(place)
        busy(True)
        info = RunInfo(directory.name, directory, dict(flat(stored_config(reader))))
        backend = tracker.connect(info, state["run"], state["sent"])
        sent = state["sent"] if backend.held is None else backend.held
        _note(place, backend, sent)
        busy(False)
        feed = Feed(reader, sent)
        last = False
        while not last:
            last = ended(1.0)
            points = feed.iterations()
            if last:
                points += feed.results()
            for start in range(0, len(points), BATCH):
                batch = points[start : start + BATCH]
                busy(True)
                backend.log(batch)
                _note(place, backend, batch[-1].step + 1)
                busy(False)
        busy(True)
        if getattr(tracker, "report", False):
            with tempfile.TemporaryDirectory() as folder:
                for file in _write_report(reader, Path(folder)):
                    backend.attach(file)
        backend.finish(reader.status)
        busy(False)
        return backend


def _read(place: Path) -> dict[str, Any]:
    try:
        state = json.loads(place.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {"run": None, "sent": 0}
    return {"run": str(state["run"]), "sent": int(state["sent"])}


def _note(place: Path, backend: Backend, sent: int) -> None:
    write_atomic(place, [json.dumps({"run": backend.id, "sent": sent}).encode()])


@contextmanager
def _locked(place: Path, wait: bool) -> Iterator[None]:
    """Let nobody else write there; the system ends the lock of a process that dies."""
    with place.with_suffix(".lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            raise UsageError(f"{place}: another process sends this run there") from None
        yield


# ------------------------------------------------------------------ what a run has to tell


class Feed:
    """Reads the points of a run from the step `sent` on, each once, in order of their steps."""

    def __init__(self, reader: RunReader, sent: int) -> None:
        self.reader, self.sent = reader, sent
        self._steps = 0
        self._at = reader.created

    def iterations(self) -> list[Point]:
        """Return the points of iterations that were committed since the last call."""
        points = []
        for iteration in self.reader.iterations(first=self._steps):
            self._at += iteration.seconds
            point = Point(self._steps, self._at, iteration.metrics)
            self._steps += 1
            # A resumed run repeats iterations after its checkpoint, with the same results.
            if point.step >= self.sent:
                points.append(point)
        return points

    def results(self) -> list[Point]:
        """Return the point of a completed run's results; none for another, or if it was sent."""
        if self.reader.status != "completed" or self._steps < self.sent:
            return []
        spend, names = self.reader.spend(), ("calls", "input_tokens", "output_tokens", "usd")
        values = {f"spend/{name}": float(getattr(spend, name)) for name in names}
        values["spend/seconds"] = self.reader.seconds
        report = stored_report(self.reader)
        if report is not None:
            values |= _figures(report)
        at = self.reader.created + self.reader.seconds
        return [Point(self._steps, at, {k: v for k, v in values.items() if not math.isnan(v)})]


def _write_report(reader: RunReader, folder: Path) -> list[Path]:
    """Write `config.yaml` and, if there is one, the report as `report.json`."""
    files = [folder / "config.yaml"]
    files[0].write_text(reader.config_text, encoding="utf-8")
    report = stored_report(reader)
    if report is not None:
        files.append(folder / "report.json")
        files[1].write_text(json.dumps(report.as_json(), indent=2), encoding="utf-8")
    return files


def _figures(report: Report) -> dict[str, float]:
    values: dict[str, float] = {}
    for contender in report.contenders:
        place = f"evaluation/{contender.name}"
        for name in ("solved", "cost", "reward", "turns"):
            values |= _interval(f"{place}/{name}", getattr(contender, name))
        for name in ("limit", "failed", "missing", "trained_on"):
            values[f"{place}/{name}"] = float(getattr(contender, name))
    for name, ahead in report.ahead.items():
        values |= _interval(f"ahead/{name}", ahead)
    return values


def _interval(name: str, value: Any) -> dict[str, float]:
    return {name: value.mean, f"{name}/low": value.low, f"{name}/high": value.high}
