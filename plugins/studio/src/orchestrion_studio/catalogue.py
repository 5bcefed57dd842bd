"""All runs below a folder, each read again only after it was written to."""

from __future__ import annotations

import threading
import time
from functools import lru_cache
from pathlib import Path
from typing import Any

from orchestrion.runs import Glance, glance, run_folders, run_identity

SECONDS = 0.2
"""How long a page may wait for runs that were not read yet."""
FRESH = 1.0
"""Seconds for which the result of a look is used again."""


class Catalogue:
    """The runs below a folder, by name: the folder of a run, relative to that folder.

    A look takes a bounded time: what could not be read in it is read in the next one.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._known: dict[str, tuple[tuple[Any, ...], Glance]] = {}
        self._runs: dict[str, Glance | None] = {}
        self._looked = 0.0

    def look(self, seconds: float = SECONDS) -> dict[str, Glance | None]:
        """Return how all runs stand; None for those that were not read yet."""
        with self._lock:
            if time.monotonic() - self._looked > FRESH or None in self._runs.values():
                self._runs = self._read(time.monotonic() + seconds)
                self._looked = time.monotonic()
            return dict(self._runs)

    def _read(self, end: float) -> dict[str, Glance | None]:
        runs: dict[str, Glance | None] = {}
        known: dict[str, tuple[tuple[Any, ...], Glance]] = {}
        start = len(str(self._folder)) + 1
        for path in run_folders(self._folder):
            name = str(path)[start:]
            facts, before = run_identity(path), self._known.get(name)
            if before is not None and before[0] == facts:
                known[name] = before
            elif time.monotonic() < end or not known:
                known[name] = facts, glance(path)
            elif before is not None:
                known[name] = before  # read again by the next look
            runs[name] = known[name][1] if name in known else None
        self._known = known
        return runs


@lru_cache(maxsize=4)
def catalogue_of(folder: Path) -> Catalogue:
    """Return the one catalogue of a folder."""
    return Catalogue(folder)
