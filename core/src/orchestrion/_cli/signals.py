"""Let Ctrl-C and SIGTERM end a command, whatever plugins do."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NoReturn

from orchestrion._interrupts import Interrupted

left_behind: list[threading.Thread] = []
"""Threads of components that were running when the event loop was closed."""

_JOIN_SECONDS = 1.0
"""Seconds that such threads have to end, all of them together."""


@contextmanager
def own_interrupts() -> Iterator[None]:
    """Let Ctrl-C raise `Interrupted`, which no plugin raises."""

    def interrupt(number: int, frame: object) -> NoReturn:
        raise Interrupted

    # An ignored SIGINT stays ignored; outside the main thread no handler can be set.
    before = signal.getsignal(signal.SIGINT)
    is_main = threading.current_thread() is threading.main_thread()
    if before is not signal.default_int_handler or not is_main:
        yield
        return
    signal.signal(signal.SIGINT, interrupt)
    Interrupted.expected = True
    try:
        yield
    finally:
        Interrupted.expected = False
        signal.signal(signal.SIGINT, before)


def leave_threads(code: int) -> None:
    """End the process if threads of components do not end: Python would wait for them."""
    until = time.monotonic() + _JOIN_SECONDS
    for thread in left_behind:
        thread.join(max(0.0, until - time.monotonic()))
    stuck = [thread for thread in left_behind if thread.is_alive()]
    left_behind.clear()
    if stuck:
        flush()
        end_process(code)


def end_process(code: int) -> NoReturn:
    """End at once, whatever other threads do; what is stored stays, as after a kill."""
    os._exit(code)


def flush() -> None:
    """Flush standard output and error; may wait for the process that reads them."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
