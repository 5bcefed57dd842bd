"""Says what is being imported where that takes so long that one begins to wonder."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

PATIENCE = 1.0
"""Seconds."""


class _Watch:
    """One timer for imports that come one after the other: a thread for each would cost more."""

    def __init__(self) -> None:
        self._now: tuple[str, float] | None = None
        self._armed = False

    @contextmanager
    def importing(self, what: str) -> Iterator[None]:
        """Print `importing WHAT ...` on standard error when the block takes a second or more."""
        outer, self._now = self._now, (what, time.monotonic())
        if not self._armed:
            self._arm(PATIENCE)
        try:
            yield
        finally:
            self._now = outer

    def _arm(self, seconds: float) -> None:
        from threading import Timer

        self._armed = True
        timer = Timer(seconds, self._look)
        timer.daemon = True
        timer.start()

    def _look(self) -> None:
        self._armed = False
        if self._now is None:
            return
        what, since = self._now
        seconds_left = since + PATIENCE - time.monotonic()
        if seconds_left > 0:
            self._arm(seconds_left)
        else:
            print(f"importing {what} ...", file=sys.stderr, flush=True)


importing = _Watch().importing
