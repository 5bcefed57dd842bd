"""Make standard output and error usable if they are closed or full; escape what is printed."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO, cast

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""Control characters, and those that change the direction of text: it could read as another one."""


class _Lenient:
    """Standard error that ignores write errors: a closed one must not end the command."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        try:
            return self._stream.write(_hidden(text))
        except (OSError, ValueError):
            discard(self._stream)
            return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except (OSError, ValueError):
            discard(self._stream)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def usable_streams() -> Iterator[None]:
    """Make both streams exist, and ignore write errors of standard error."""
    before = sys.stdout, sys.stderr
    # Python has None for a stream that was closed when it started.
    sys.stdout = before[0] or _null_stream()
    sys.stderr = cast("TextIO", _Lenient(before[1] or _null_stream()))
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def _null_stream() -> TextIO:
    return open(os.devnull, "w", encoding="utf-8")


def discard(stream: TextIO | None) -> None:
    """Redirect a broken stream to the null device, so that no flush at exit fails."""
    with suppress(OSError, ValueError, AttributeError):
        if stream is not None:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _hidden(text: str) -> str:
    """Return text without secrets; without the module imported there are none."""
    secrets = sys.modules.get("orchestrion._secrets")
    return text if secrets is None else secrets.hidden(text)


def visible(text: str) -> str:
    """Return text with control characters escaped, except tabs and ends of lines."""

    def escaped(match: re.Match[str]) -> str:
        code = ord(match[0])
        return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"

    return _CONTROL.sub(escaped, text)
