"""What can be reached on a worksheet by workers of known skill: exact values, no simulation.

`skills` are the chances that each step comes out right, in order, drawn independently. A line that
follows a wrong one helps nobody: the sheet fails unless it is written again.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import comb, prod

__all__ = ["beam", "best_of", "chain", "needed", "optimum", "repaired", "vote"]


def chain(skills: Sequence[float]) -> float:
    """One attempt, line after line: the product of the skills."""
    return prod(skills)


def best_of(skills: Sequence[float], n: int) -> float:
    """Any of `n` whole attempts, told apart by the exact score."""
    return 1 - (1 - chain(skills)) ** n


def needed(skills: Sequence[float], turns: int) -> float:
    """Lines that are right before the first wrong one, of `turns` written: the mean."""
    return sum(prod(skills[: i + 1]) for i in range(min(turns, len(skills))))


def beam(skills: Sequence[float], width: int, samples: int, distinct: bool = False) -> float:
    """Search that keeps the `width` best beginnings by the exact partial score.

    Args:
        skills: of each step.
        width: beginnings kept.
        samples: continuations of each.
        distinct: whether equal texts count as one, so that at most one beginning is right.
    """
    room = 1 if distinct else width
    chances = {1: 1.0}  # how likely so many of the kept beginnings are right
    for skill in skills:
        later: dict[int, float] = {}
        for right, chance in chances.items():
            draws = right * samples
            for n in range(draws + 1):
                likely = comb(draws, n) * skill**n * (1 - skill) ** (draws - n)
                kept = min(n, room)
                later[kept] = later.get(kept, 0.0) + chance * likely
        chances = later
    return 1 - chances.get(0, 0.0)


def optimum(skills: Sequence[float], calls: int) -> float:
    """The most that any strategy with an exact partial score reaches in so many calls.

    It asks for the next line again and again until it is right: what counts is whether there are
    calls enough.
    """
    # chances[i]: exactly i lines are right so far.
    chances = [1.0] + [0.0] * len(skills)
    for _ in range(calls):
        for i in reversed(range(len(skills))):
            chances[i + 1] += chances[i] * skills[i]
            chances[i] *= 1 - skills[i]
    return chances[-1]


def repaired(skill: float, detection: float, false_alarm: float, rounds: int) -> float:
    """A line that a reviewer looks at after each attempt, and that is written again if he objects.

    Args:
        skill: of the worker.
        detection: how often the reviewer objects to a wrong line.
        false_alarm: how often he objects to a right one.
        rounds: corrections at most; the last attempt stands.
    """
    value = skill  # with no correction left
    for _ in range(rounds):
        objects = skill * false_alarm + (1 - skill) * detection
        value = skill * (1 - false_alarm) + objects * value
    return value


def vote(skill: float, n: int, rivals: int = 1) -> float:
    """The most frequent of `n` answers is right; wrong ones fall on `rivals` equally; ties drawn.

    With one rival every mistake is the same, the worst case of a vote.
    """
    if rivals == 1:
        return sum(
            comb(n, k)
            * skill**k
            * (1 - skill) ** (n - k)
            * (0.5 if 2 * k == n else float(2 * k > n))
            for k in range(n + 1)
        )
    return sum(
        comb(n, k) * skill**k * (1 - skill) ** (n - k) * _wins(k, n - k, rivals)
        for k in range(n + 1)
    )


def _wins(mine: int, others: int, rivals: int) -> float:
    """The chance that `mine` votes win when `others` fall on `rivals` at random; ties drawn."""
    if mine == 0:
        return 0.0
    # ways[level][t]: weights of allocations with t rivals exactly level with mine, none above.
    ways: dict[tuple[int, int], float] = {(0, 0): 1.0}
    for _ in range(rivals):
        later: dict[tuple[int, int], float] = {}
        for (used, level), weight in ways.items():
            for n in range(min(mine, others - used) + 1):
                place = (used + n, level + (n == mine))
                later[place] = later.get(place, 0.0) + weight * comb(others - used, n)
        ways = later
    total = sum(w / (level + 1) for (used, level), w in ways.items() if used == others)
    return total / float(rivals**others)
