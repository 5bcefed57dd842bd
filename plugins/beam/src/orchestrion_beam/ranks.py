"""Rank correlation: whether one number orders things as another does."""

from __future__ import annotations

from collections.abc import Sequence
from math import fsum, sqrt

__all__ = ["ranked", "spearman"]


def spearman(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Spearman's correlation; equal numbers share their mean rank.

    None where all of `second` are equal, since there is nothing to tell apart; 0 where only all
    of `first` are, since it tells nothing apart.
    """
    if len(second) < 2 or min(second) == max(second):
        return None
    if min(first) == max(first):
        return 0.0
    a, b = ranked(first), ranked(second)
    middle = (len(a) - 1) / 2
    both = fsum((x - middle) * (y - middle) for x, y in zip(a, b, strict=True))
    return both / sqrt(fsum((x - middle) ** 2 for x in a) * fsum((y - middle) ** 2 for y in b))


def ranked(numbers: Sequence[float]) -> list[float]:
    """The rank of each, from 0; equal numbers share their mean rank."""
    order = sorted(range(len(numbers)), key=numbers.__getitem__)
    ranks = [0.0] * len(numbers)
    start = 0
    while start < len(order):
        end = start
        while end < len(order) and numbers[order[end]] == numbers[order[start]]:
            end += 1
        for place in order[start:end]:
            ranks[place] = (start + end - 1) / 2
        start = end
    return ranks
