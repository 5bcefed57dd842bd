"""Quality up, cost down: what dominates what, fronts, crowding, hypervolume."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["FAILED", "Value", "crowding", "dominates", "front_of", "hypervolume", "ranks"]


class Value(NamedTuple):
    """What a genome was found to be worth: mean quality and mean cost, over `samples` episodes."""

    quality: float
    cost: float
    samples: int = 1


FAILED = Value(-math.inf, math.inf, 0)
"""It could not be evaluated: everything else is better, and it is on no front."""


def dominates(a: Value, b: Value) -> bool:
    """Whether `a` is at least as good in both, and better in one."""
    return a[:2] != b[:2] and a.quality >= b.quality and a.cost <= b.cost


def front_of(values: Sequence[Value]) -> list[int]:
    """Places of those that nothing dominates, cheapest first; the first of equal ones."""
    order = sorted(range(len(values)), key=lambda i: (values[i].cost, -values[i].quality, i))
    found: list[int] = []
    best = -math.inf
    for i in order:
        if values[i].quality > best:
            best = values[i].quality
            found.append(i)
    return found


def ranks(values: Sequence[Value]) -> list[int]:
    """The front each value is on: 0 for those that nothing dominates, 1 without these, ..."""
    # By cost, then quality: what dominates a value stands before it, on a front whose best
    # quality so far is at least its own (Jensen 2003, two objectives). Fronts are kept sorted.
    order = sorted(range(len(values)), key=lambda i: (values[i].cost, -values[i].quality))
    result = [0] * len(values)
    tops: list[Value] = []
    for i in order:
        value = values[i]
        low, high = 0, len(tops)
        while low < high:
            middle = (low + high) // 2
            if _beaten(tops[middle], value):
                low = middle + 1
            else:
                high = middle
        result[i] = low
        if low == len(tops):
            tops.append(value)
        else:
            tops[low] = value
    return result


def _beaten(top: Value, value: Value) -> bool:
    """Whether a front whose best quality is that of `top`, at no more cost, dominates a value."""
    return top.quality > value.quality or (top.quality == value.quality and top.cost < value.cost)


def crowding(values: Sequence[Value]) -> list[float]:
    """How alone each value of one front is (Deb et al. 2002, section III-B); infinite at its ends.

    Of equal values all but the first count as crowded out.
    """
    result = [0.0] * len(values)
    first = {value[:2]: i for i, value in reversed(list(enumerate(values)))}
    order = sorted(first.values(), key=lambda i: values[i].cost)
    if not order:
        return result
    low, high = values[order[0]], values[order[-1]]
    width, height = high.cost - low.cost, high.quality - low.quality
    for before, i, after in zip(order, order[1:], order[2:], strict=False):
        a, b = values[before], values[after]
        result[i] = _share(b.cost - a.cost, width) + _share(b.quality - a.quality, height)
    result[order[0]] = result[order[-1]] = math.inf
    return result


def _share(part: float, whole: float) -> float:
    return part / whole if math.isfinite(whole) and whole else 0.0


def hypervolume(values: Sequence[Value], quality: float, cost: float) -> float:
    """The area between a reference point and what the values dominate."""
    area, height = 0.0, quality
    for i in front_of(values):
        value = values[i]
        if value.cost <= cost and value.quality > height:
            area += (cost - value.cost) * (value.quality - height)
            height = value.quality
    return area
