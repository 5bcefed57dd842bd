"""Runs that are kept open between requests: what a reader has looked up once it need not again."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from attrs import define

from orchestrion.runs import Iteration, RunReader

IDLE = 4
"""Runs that stay open while nobody reads them."""


class _Reader(RunReader):
    """Reads each iteration once."""

    _kept: tuple[Iteration, ...] = ()

    def iterations(self, stage: int | None = None, first: int = 0) -> list[Iteration]:
        """See `RunReader.iterations`."""
        kept = self._kept[:-1]
        new = super().iterations(first=len(kept))
        if [row.seconds for row in self._kept[-1:]] != [row.seconds for row in new[:1]]:
            kept, new = (), super().iterations()  # dropped by a resume, and perhaps done again
        self._kept = (*kept, *new)
        return [row for row in self._kept[first:] if stage in (None, row.stage)]


@define
class _Open:
    reader: RunReader
    place: tuple[int, int]
    users: int = 0


class Readers:
    """Lends open runs; safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[Path, _Open] = {}

    @contextmanager
    def lend(self, directory: Path) -> Iterator[RunReader]:
        """Open a run, or take it as it is open; it may stay open afterwards.

        Raises:
            StoreError: it cannot be read.
        """
        entry = self._take(directory)
        try:
            yield entry.reader
        finally:
            with self._lock:
                entry.users -= 1
                if self._open.get(directory) is not entry and not entry.users:
                    entry.reader.close()
                self._close_idle(IDLE)

    def _take(self, directory: Path) -> _Open:
        facts = (directory / "run.db").stat()
        place = facts.st_dev, facts.st_ino
        with self._lock:
            entry = self._open.pop(directory, None)
            if entry is not None and entry.place != place:  # another run took its name
                if not entry.users:
                    entry.reader.close()
                entry = None
            entry = entry or _Open(_Reader(directory), place)
            entry.users += 1
            self._open[directory] = entry  # as the one that was used last
            return entry

    def _close_idle(self, kept: int) -> None:
        idle = [path for path, entry in self._open.items() if not entry.users]
        for path in idle[: max(0, len(idle) - kept)]:
            self._open.pop(path).reader.close()

    def close(self) -> None:
        """Close all runs that nobody reads."""
        with self._lock:
            self._close_idle(0)
