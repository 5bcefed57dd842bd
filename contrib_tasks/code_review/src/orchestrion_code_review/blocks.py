"""The building blocks of composed problems: each a function, its source, and a plausible mistake.

Functions and sources are written apart, and tests hold them against each other; wanted values of
composed problems come from the functions alone.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate, pairwise
from math import prod
from typing import Any

from attrs import frozen


@frozen
class Form:
    """One way to compute something: an expression over `items`, and the same as a function."""

    source: str
    does: Callable[[list[int]], Any]


@frozen
class Block:
    """One step of a composed problem.

    Args:
        name: part of the problem's id.
        says: what to do with the numbers, in words.
        right: how it is done.
        wrong: how it is often done instead.
        gives: the type of the result.
    """

    name: str
    says: str
    right: Form
    wrong: Form
    gives: str = "list[int]"


STEPS = (
    Block(
        "evens",
        "keep the even numbers",
        Form("[n for n in items if n % 2 == 0]", lambda items: [n for n in items if not n % 2]),
        Form("[n for n in items if n % 2]", lambda items: [n for n in items if n % 2]),
    ),
    Block(
        "odds",
        "keep the odd numbers",
        Form("[n for n in items if n % 2]", lambda items: [n for n in items if n % 2]),
        Form(
            "[n for n in items if n > 0 and n % 2]",
            lambda items: [n for n in items if n > 0 and n % 2],
        ),
    ),
    Block(
        "positive",
        "keep the numbers above zero",
        Form("[n for n in items if n > 0]", lambda items: [n for n in items if n >= 1]),
        Form("[n for n in items if n >= 0]", lambda items: [n for n in items if n >= 0]),
    ),
    Block(
        "small",
        "keep the numbers from -5 to 5",
        Form("[n for n in items if -5 <= n <= 5]", lambda items: [n for n in items if abs(n) < 6]),
        Form("[n for n in items if -5 < n < 5]", lambda items: [n for n in items if abs(n) < 5]),
    ),
    Block(
        "squares",
        "square every number",
        Form("[n * n for n in items]", lambda items: [n**2 for n in items]),
        Form("[n + n for n in items]", lambda items: [2 * n for n in items]),
    ),
    Block(
        "absolute",
        "take the absolute value of every number",
        Form("[abs(n) for n in items]", lambda items: [max(n, -n) for n in items]),
        Form("[-n for n in items]", lambda items: [-n for n in items]),
    ),
    Block(
        "add-index",
        "add to every number its place, counted from 0",
        Form(
            "[n + i for i, n in enumerate(items)]",
            lambda items: [items[i] + i for i in range(len(items))],
        ),
        Form(
            "[n + i for i, n in enumerate(items, start=1)]",
            lambda items: [items[i] + i + 1 for i in range(len(items))],
        ),
    ),
    Block(
        "remainder",
        "replace every number by its remainder on division by 7, which is never negative",
        Form("[n % 7 for n in items]", lambda items: [n - n // 7 * 7 for n in items]),
        Form("[abs(n) % 7 for n in items]", lambda items: [abs(n) % 7 for n in items]),
    ),
    Block(
        "ascending",
        "sort the numbers in ascending order",
        Form("sorted(items)", lambda items: sorted(items)),
        Form("sorted(items, key=abs)", lambda items: sorted(items, key=abs)),
    ),
    Block(
        "descending",
        "sort the numbers in descending order",
        Form("sorted(items, reverse=True)", lambda items: sorted(items)[::-1]),
        Form("sorted(items)", lambda items: sorted(items)),
    ),
    Block(
        "reversed",
        "turn the order of the numbers around",
        Form("items[::-1]", lambda items: list(reversed(items))),
        Form("sorted(items, reverse=True)", lambda items: sorted(items)[::-1]),
    ),
    Block(
        "distinct",
        "keep every number only where it first occurs",
        Form("list(dict.fromkeys(items))", lambda items: sorted(set(items), key=items.index)),
        Form("sorted(set(items))", lambda items: sorted(set(items))),
    ),
    Block(
        "alternate",
        "keep every second number, beginning with the first",
        Form("items[::2]", lambda items: [n for i, n in enumerate(items) if i % 2 == 0]),
        Form("items[1::2]", lambda items: [n for i, n in enumerate(items) if i % 2]),
    ),
    Block(
        "without-first",
        "leave out the first number, if there is one",
        Form("items[1:]", lambda items: [n for i, n in enumerate(items) if i]),
        Form("items[:-1]", lambda items: items[: len(items) - 1] if items else []),
    ),
    Block(
        "at-most-four",
        "keep at most the first four numbers",
        Form("items[:4]", lambda items: [n for i, n in enumerate(items) if i < 4]),
        Form("items[:5]", lambda items: [n for i, n in enumerate(items) if i < 5]),
    ),
    Block(
        "running-sum",
        "replace every number by the sum of all up to it",
        Form(
            "[sum(items[: i + 1]) for i in range(len(items))]",
            lambda items: list(accumulate(items)),
        ),
        Form(
            "[sum(items[:i]) for i in range(len(items))]",
            lambda items: [0, *accumulate(items)][: len(items)],
        ),
    ),
    Block(
        "differences",
        "replace the numbers by the differences between each and the one before it",
        Form(
            "[b - a for a, b in zip(items, items[1:], strict=False)]",
            lambda items: [b - a for a, b in pairwise(items)],
        ),
        Form(
            "[a - b for a, b in zip(items, items[1:], strict=False)]",
            lambda items: [a - b for a, b in pairwise(items)],
        ),
    ),
)
"""Blocks that give numbers again."""

ENDS = (
    Block(
        "list",
        "return them as a list",
        Form("items", lambda items: items),
        Form("sorted(items)", lambda items: sorted(items)),
    ),
    Block(
        "sum",
        "return their sum",
        Form("sum(items)", lambda items: sum(items)),
        Form("max(items, default=0)", lambda items: max(items, default=0)),
        "int",
    ),
    Block(
        "product",
        "return their product, which is 1 for no numbers",
        Form("math.prod(items)", lambda items: prod(items)),
        Form("math.prod(items) if items else 0", lambda items: prod(items) if items else 0),
        "int",
    ),
    Block(
        "largest",
        "return the largest, or `None` if there is none",
        Form("max(items, default=None)", lambda items: sorted(items)[-1] if items else None),
        Form("max(items, default=0)", lambda items: max(items, default=0)),
        "int | None",
    ),
    Block(
        "spread",
        "return the difference between the largest and the smallest, or 0 if there is none",
        Form(
            "max(items, default=0) - min(items, default=0)",
            lambda items: sorted(items)[-1] - sorted(items)[0] if items else 0,
        ),
        Form(
            "items[-1] - items[0] if items else 0",
            lambda items: items[-1] - items[0] if items else 0,
        ),
        "int",
    ),
    Block(
        "count",
        "return how many different numbers there are",
        Form("len(set(items))", lambda items: sum(n not in items[:i] for i, n in enumerate(items))),
        Form("len(items)", lambda items: len(items)),
        "int",
    ),
    Block(
        "text",
        "return them as one text, with a hyphen between each two",
        Form('"-".join(map(str, items))', lambda items: "-".join(f"{n}" for n in items)),
        Form('"".join(map(str, items))', lambda items: "".join(f"{n}" for n in items)),
        "str",
    ),
)
"""Blocks that a problem ends with."""
