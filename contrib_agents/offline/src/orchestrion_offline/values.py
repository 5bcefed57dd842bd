"""Compute the exact success of simple strategies on a worksheet, for workers of known skill.

`skills` are the independent chances of a right line, one for each step in order. A worksheet fails
after a wrong line unless that line is written again.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import comb, prod


def chain(skills: Sequence[float]) -> float:
    """Return the success of one attempt: the product of the skills."""
    return prod(skills)


def best_of(skills: Sequence[float], n: int) -> float:
    """Return the success of the best of `n` whole attempts by the exact score."""
    return 1 - (1 - chain(skills)) ** n


def beam(skills: Sequence[float], width: int, samples: int, distinct: bool = False) -> float:
    """Return the success of a search that keeps the best beginnings by the exact partial score.

    Args:
        skills: chance of each line.
        width: number of beginnings kept.
        samples: continuations of each beginning.
        distinct: whether equal texts count once, so that at most one beginning is right.
    """
    room = 1 if distinct else width
    chances = {1: 1.0}  # by the number of right beginnings that are kept
    for skill in skills:
        later: dict[int, float] = {}
        for right, chance in chances.items():
            draws = right * samples
            for n in range(draws + 1):
                binomial = comb(draws, n) * skill**n * (1 - skill) ** (draws - n)
                kept = min(n, room)
                later[kept] = later.get(kept, 0.0) + chance * binomial
        chances = later
    return 1 - chances.get(0, 0.0)


def optimum(skills: Sequence[float], calls: int) -> float:
    """Return the highest success of any strategy with an exact partial score and so many calls.

    The best strategy repeats the call for a line until that line is right.
    """
    # chances[i]: exactly i lines are right so far.
    chances = [1.0] + [0.0] * len(skills)
    for _ in range(calls):
        for i in reversed(range(len(skills))):
            chances[i + 1] += chances[i] * skills[i]
            chances[i] *= 1 - skills[i]
    return chances[-1]
