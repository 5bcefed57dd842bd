"""Sends what a run folder holds to one tracker, and keeps in the folder how far that is.

`RUN/trackers/NAME-HASH.json` holds the tracker run's id and the number of steps sent, one file for
each place that is written to. Whoever writes there holds a lock.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from orchestrion import UsageError
from orchestrion.runs import RunReader, make_folder, write_atomic
from orchestrion_track.feed import Feed
from orchestrion_track.interfaces import Backend, Tracker

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
        info = Feed(reader, 0).info()
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
                for file in feed.write_report(Path(folder)):
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
