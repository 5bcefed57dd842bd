"""How exceptions cross: by name and text, and as the built-in classes they are or derive from."""

from __future__ import annotations

import builtins
import contextlib
import traceback
from collections.abc import Mapping
from typing import Any

__all__ = ["FILENAME", "Elsewhere", "builtin", "exception", "kinds", "raised"]

FILENAME = "<candidate>"
_MOST_TEXT = 2000


class Elsewhere(Exception):
    """The other side raised an exception that has no built-in name."""


def raised(error: BaseException) -> dict[str, Any]:
    """An exception as an answer."""
    return {
        "error": type(error).__name__,
        "kinds": kinds(type(error)),
        "text": _text(error),
        "line": _line(error),
    }


def kinds(kind: type) -> list[str]:
    """The built-in exceptions that a class is or derives from, nearest first."""
    return [base.__name__ for base in kind.__mro__ if builtin(base.__name__) is base]


def builtin(name: object) -> type[BaseException] | None:
    """The built-in exception of this name, but none that stops an interpreter or a generator."""
    kind = getattr(builtins, name, None) if isinstance(name, str) else None
    if isinstance(kind, type) and issubclass(kind, Exception | SystemExit):
        return kind
    return None


def exception(reply: Mapping[str, Any]) -> BaseException:
    """The built-in exception nearest to what was raised, or a stand-in."""
    names = reply.get("kinds")
    nearest = builtin(names[0]) if isinstance(names, list) and names else None
    if reply.get("unloaded"):
        nearest = None
    text = str(reply.get("text", ""))
    if nearest is not None and nearest.__name__ == reply.get("error"):
        with contextlib.suppress(Exception):  # some need other arguments
            return nearest(text)
    if nearest is not None and nearest not in (Exception, SystemExit):
        with contextlib.suppress(Exception):
            return nearest(f"{reply.get('error')}: {text}")
    return Elsewhere(f"{reply.get('error')}: {text}")


def _text(error: BaseException) -> str:
    try:
        return str(error)[:_MOST_TEXT]
    except BaseException:
        return ""


def _line(error: BaseException) -> int | None:
    """The innermost line of the program that was running when the error was raised."""
    if isinstance(error, SyntaxError):
        return error.lineno
    found = None
    for frame, line in traceback.walk_tb(error.__traceback__):
        if frame.f_code.co_filename == FILENAME:
            found = line
    return found
