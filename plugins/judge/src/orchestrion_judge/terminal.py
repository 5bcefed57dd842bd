"""Lines that a person types, read without ever keeping the program from ending."""

from __future__ import annotations

import asyncio
import io
import os
import select
import sys
import threading
from typing import TextIO

__all__ = ["LineReader", "ask_line", "is_terminal", "say"]

_LOOK = 0.1
"""Seconds after which a reader looks whether it is still wanted."""


def is_terminal() -> bool:
    """Whether there is somebody to ask."""
    try:
        return sys.stdin is not None and sys.stdin.isatty()
    except ValueError:  # it is closed
        return False


class LineReader:
    """Lines of a stream. What is left of a read stays here, so keep one for each stream."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._rest = b""
        try:
            self._file: int | None = stream.fileno()
        except (OSError, ValueError, AttributeError, io.UnsupportedOperation):
            self._file = None

    def line(self, stop: threading.Event) -> str | None:
        """The next line; None at the end of input, or once `stop` is set."""
        if self._file is None:
            return self._stream.readline() or None
        while b"\n" not in self._rest:
            if stop.is_set():
                return None
            ready, _, _ = select.select([self._file], [], [], _LOOK)
            if not ready:
                continue
            read = os.read(self._file, 65536)
            if not read:
                break
            self._rest += read
        line, end, self._rest = self._rest.partition(b"\n")
        return (line + end).decode(errors="replace") or None


_readers: dict[int, tuple[TextIO, LineReader]] = {}


def _reader() -> LineReader:
    stream = sys.stdin
    known = _readers.get(id(stream))
    if known is None or known[0] is not stream:
        known = _readers[id(stream)] = (stream, LineReader(stream))
    return known[1]


async def ask_line() -> str | None:
    """The next line of standard input; None at its end. Cancelling leaves no thread behind."""
    stop = threading.Event()
    reading = asyncio.create_task(asyncio.to_thread(_reader().line, stop))
    try:
        return await asyncio.shield(reading)
    except asyncio.CancelledError:
        stop.set()
        await reading
        raise


def say(text: str) -> None:
    """Show something on standard error; nothing in it that a terminal would obey."""
    from orchestrion.cli import note

    note(text)
