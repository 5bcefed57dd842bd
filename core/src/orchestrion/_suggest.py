"""Format parts of messages: nearest names, short lists, values."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

_LONGEST_NAME = 60


def nearest(name: str, names: Iterable[str]) -> str | None:
    """Return the name that is most likely meant by `name`, or None if none is close."""
    from difflib import get_close_matches

    candidates = sorted(names)
    # Comparing takes time quadratic in the length, and names are shorter than this.
    if len(name) > _LONGEST_NAME:
        return None
    folded = {n.lower().replace("_", "-"): n for n in reversed(candidates)}
    if (same := folded.get(name.lower().replace("_", "-"))) is not None:
        return same
    return next(iter(get_close_matches(name, candidates, n=1, cutoff=0.6)), None)


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Return `; did you mean 'x'?`, or "" if no name is close."""
    close = nearest(name, names)
    return f"; did you mean {close!r}?" if close is not None else ""


def listed(names: Iterable[str], limit: int = 12) -> str:
    """Return names in order, separated by commas, cut off after `limit`."""
    ordered = sorted(set(names))
    more = len(ordered) - limit
    return ", ".join(ordered[:limit]) + (f" and {more} more" if more > 0 else "")


def article(noun: str) -> str:
    """Return a noun with "a" or "an"."""
    return f"{'an' if noun[:1] in 'aeio' else 'a'} {noun}"


_TYPES = {
    "NoneType": "null",
    "bool": "a boolean",
    "int": "an integer",
    "float": "a number",
    "str": "text",
    "list": "a list",
    "dict": "a mapping",
}


def shown(value: Any) -> str:
    """Return a config value as messages show it: shortened, with its type."""
    kind = _TYPES.get(type(value).__name__, type(value).__name__)
    if value is None:
        return kind
    if isinstance(value, dict):
        return f"{kind} with {len(value)} keys" if value else "an empty mapping"
    if isinstance(value, list):
        return f"{kind} of {len(value)}" if value else "an empty list"
    text = repr(value) if isinstance(value, str) else str(value)
    if isinstance(value, bool):
        text = text.lower()
    return f"{text if len(text) <= 60 else text[:57] + '...'} ({kind})"
