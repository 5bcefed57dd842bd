"""What drawing tables has in common: sizes once a seed, tables until they are worth playing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from orchestrion import Key

__all__ = ["ATTEMPTS", "between", "draw_sizes", "draw_tables"]

ATTEMPTS = 200


def draw_sizes(
    random: Random, given: Sequence[int | None], spans: Sequence[tuple[int, int]]
) -> list[int]:
    """Return the sizes that are given, and a number from its span for each other one."""
    return [size or random.randint(*span) for size, span in zip(given, spans, strict=True)]


def draw_tables(
    key: Key,
    draw: Callable[[Random], dict[str, Any]],
    is_worth_playing: Callable[[dict[str, Any]], bool],
    otherwise: str,
) -> dict[str, Any]:
    """Return the first tables that are worth playing.

    Raises:
        ValueError: none of `ATTEMPTS` draws is; the message is `otherwise`.
    """
    for attempt in range(ATTEMPTS):
        tables = draw(key.child(attempt).random())
        if is_worth_playing(tables):
            return tables
    raise ValueError(f"tables: none of {ATTEMPTS} draws {otherwise}")


def between(random: Random, span: tuple[float, float]) -> float:
    """Return a number from a span, with two decimals."""
    return round(random.uniform(*span), 2)
