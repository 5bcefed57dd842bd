"""Standard output and error that may be closed, full, or read by nobody; and what is put there."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO, cast

__all__ = ["discard", "usable_streams", "visible"]

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class _Lenient:
    """Standard error: that nobody reads it any more is no reason to end."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write if that is possible."""
        try:
            return self._stream.write(_hidden(text))
        except (OSError, ValueError):
            discard(self._stream)
            return len(text)

    def flush(self) -> None:
        """Flush if that is possible."""
        try:
            self._stream.flush()
        except (OSError, ValueError):
            discard(self._stream)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def usable_streams() -> Iterator[None]:
    """Both streams are there, and what goes wrong with standard error is passed over."""
    before = sys.stdout, sys.stderr
    # Python has None for a stream that was closed when it started.
    sys.stdout = before[0] or _nowhere()
    sys.stderr = cast("TextIO", _Lenient(before[1] or _nowhere()))
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def _nowhere() -> TextIO:
    return open(os.devnull, "w", encoding="utf-8")


def discard(stream: TextIO | None) -> None:
    """Lead a stream that takes nothing any more nowhere, so that no flush at exit fails."""
    with suppress(OSError, ValueError, AttributeError):
        if stream is not None:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _hidden(text: str) -> str:
    """Text without secrets; the module is there only if somebody may have named one."""
    secrets = sys.modules.get("orchestrion._secrets")
    return text if secrets is None else secrets.hidden(text)


def visible(text: str) -> str:
    """Text in which nothing is left that a terminal would obey but tabs and ends of lines."""
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)
