"""The stub's tokens: four bytes each, so that counts are known and bounded by bytes."""

from __future__ import annotations

__all__ = ["count", "cut"]

BYTES = 4


def count(text: str) -> int:
    """How many tokens a text has."""
    size = len(text) if text.isascii() else len(text.encode("utf-8", "replace"))
    return -(-size // BYTES)


def cut(text: str, tokens: int) -> str:
    """The beginning of a text, of at most so many tokens."""
    if count(text) <= tokens:
        return text
    return text.encode("utf-8", "replace")[: tokens * BYTES].decode("utf-8", "ignore")
