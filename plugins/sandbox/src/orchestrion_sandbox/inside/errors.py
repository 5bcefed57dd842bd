"""How exceptions cross: by name, text, and the built-in classes that they are or derive from."""

from __future__ import annotations

import builtins
import contextlib
from collections.abc import Mapping
from typing import Any

_MOST_TEXT = 2000


class Elsewhere(Exception):
    """The other side raised an exception without a built-in base."""


def raised(error: BaseException) -> dict[str, Any]:
    """Return an exception as a reply."""
    return {"error": type(error).__name__, "kinds": kinds(type(error)), "text": _text(error)}


def kinds(kind: type) -> list[str]:
    """Return the names of the built-in exceptions among a class and its bases, nearest first."""
    return [base.__name__ for base in kind.__mro__ if builtin(base.__name__) is base]


def builtin(name: object) -> type[BaseException] | None:
    """Return the built-in exception of this name, if it ends no interpreter or generator."""
    kind = getattr(builtins, name, None) if isinstance(name, str) else None
    if isinstance(kind, type) and issubclass(kind, Exception | SystemExit):
        return kind
    return None


def exception(reply: Mapping[str, Any]) -> BaseException:
    """Return the built-in exception that was raised, or one of a new class of its name and bases.

    Without a built-in base, and for a program that could not be loaded, it is an `Elsewhere`.
    """
    name, text = str(reply.get("error")), str(reply.get("text", ""))
    names = reply.get("kinds")
    known = [builtin(base) for base in names] if isinstance(names, list) else []
    bases = [base for base in known if base is not None]
    if bases and not reply.get("unloaded"):
        nearest = [b for b in bases if not any(issubclass(c, b) for c in bases if c is not b)]
        with contextlib.suppress(Exception):  # some need other arguments, some cannot be combined
            if bases[0].__name__ == name:
                return bases[0](text)
            kind: type[BaseException] = type(name, tuple(nearest), {})
            return kind(text)
    return Elsewhere(f"{name}: {text}")


def _text(error: BaseException) -> str:
    try:
        return str(error)[:_MOST_TEXT]
    except BaseException:
        return ""
