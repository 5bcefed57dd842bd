"""Say what is being imported where that takes so long that people begin to wonder."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

PATIENCE = 1.0
"""Seconds."""


@contextmanager
def importing(what: str) -> Iterator[None]:
    """Print `importing WHAT ...` on standard error if the block takes a second or more."""
    from threading import Timer

    timer = Timer(PATIENCE, lambda: print(f"importing {what} ...", file=sys.stderr, flush=True))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
