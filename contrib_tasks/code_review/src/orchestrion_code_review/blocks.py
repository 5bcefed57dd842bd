"""The building blocks of composed problems: each an expression, and a plausible mistake."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from types import CodeType
from typing import Any

from attrs import frozen


@frozen
class Block:
    """One step of a composed problem; `right` and `wrong` are expressions over `items`.

    Args:
        name: part of the problem's id.
        says: what to do with the numbers, in words.
        right: the correct expression.
        wrong: a plausible mistake.
        gives: the type of the result.
    """

    name: str
    says: str
    right: str
    wrong: str
    gives: str = "list[int]"


def computed(sources: Sequence[str], numbers: Sequence[int]) -> Any:
    """Return the result of expressions of blocks, each on the result of the one before."""
    value: Any = list(numbers)
    for source in sources:
        # A comprehension sees global names alone, so `items` is one.
        value = eval(_compiled(source), {"math": math, "items": value})  # noqa: S307  a source below
    return value


@cache
def _compiled(source: str) -> CodeType:
    return compile(source, "a block", "eval")


STEPS = (
    Block(
        "evens",
        "keep the even numbers",
        "[n for n in items if n % 2 == 0]",
        "[n for n in items if n % 2]",
    ),
    Block(
        "odds",
        "keep the odd numbers",
        "[n for n in items if n % 2]",
        "[n for n in items if n > 0 and n % 2]",
    ),
    Block(
        "positive",
        "keep the numbers above zero",
        "[n for n in items if n > 0]",
        "[n for n in items if n >= 0]",
    ),
    Block(
        "small",
        "keep the numbers from -5 to 5",
        "[n for n in items if -5 <= n <= 5]",
        "[n for n in items if -5 < n < 5]",
    ),
    Block("squares", "square every number", "[n * n for n in items]", "[n + n for n in items]"),
    Block(
        "absolute",
        "take the absolute value of every number",
        "[abs(n) for n in items]",
        "[-n for n in items]",
    ),
    Block(
        "add-index",
        "add to every number its place, counted from 0",
        "[n + i for i, n in enumerate(items)]",
        "[n + i for i, n in enumerate(items, start=1)]",
    ),
    Block(
        "remainder",
        "replace every number by its remainder on division by 7, which is never negative",
        "[n % 7 for n in items]",
        "[abs(n) % 7 for n in items]",
    ),
    Block(
        "ascending",
        "sort the numbers in ascending order",
        "sorted(items)",
        "sorted(items, key=abs)",
    ),
    Block(
        "descending",
        "sort the numbers in descending order",
        "sorted(items, reverse=True)",
        "sorted(items)",
    ),
    Block(
        "reversed",
        "turn the order of the numbers around",
        "items[::-1]",
        "sorted(items, reverse=True)",
    ),
    Block(
        "distinct",
        "keep every number only where it first occurs",
        "list(dict.fromkeys(items))",
        "sorted(set(items))",
    ),
    Block(
        "alternate",
        "keep every second number, beginning with the first",
        "items[::2]",
        "items[1::2]",
    ),
    Block(
        "without-first", "leave out the first number, if there is one", "items[1:]", "items[:-1]"
    ),
    Block("at-most-four", "keep at most the first four numbers", "items[:4]", "items[:5]"),
    Block(
        "running-sum",
        "replace every number by the sum of all up to it",
        "[sum(items[: i + 1]) for i in range(len(items))]",
        "[sum(items[:i]) for i in range(len(items))]",
    ),
    Block(
        "differences",
        "replace the numbers by the differences between each and the one before it",
        "[b - a for a, b in zip(items, items[1:], strict=False)]",
        "[a - b for a, b in zip(items, items[1:], strict=False)]",
    ),
)
"""Blocks whose results are lists of numbers."""

ENDS = (
    Block("list", "return them as a list", "items", "sorted(items)"),
    Block("sum", "return their sum", "sum(items)", "max(items, default=0)", "int"),
    Block(
        "product",
        "return their product, which is 1 for no numbers",
        "math.prod(items)",
        "math.prod(items) if items else 0",
        "int",
    ),
    Block(
        "largest",
        "return the largest, or `None` if there is none",
        "max(items, default=None)",
        "max(items, default=0)",
        "int | None",
    ),
    Block(
        "spread",
        "return the difference between the largest and the smallest, or 0 if there is none",
        "max(items, default=0) - min(items, default=0)",
        "items[-1] - items[0] if items else 0",
        "int",
    ),
    Block(
        "count",
        "return how many different numbers there are",
        "len(set(items))",
        "len(items)",
        "int",
    ),
    Block(
        "text",
        "return them as one text, with a hyphen between each two",
        '"-".join(map(str, items))',
        '"".join(map(str, items))',
        "str",
    ),
)
"""The last block of a problem."""
