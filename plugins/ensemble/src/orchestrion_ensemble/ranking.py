"""Ranked votes: pure functions over rankings, best first.

A ranking may leave answers out. Every rule here takes those as equal, below all that are ranked;
Borda gives each of them the mean of the places that are left (Emerson 2013 calls it the average
method), so that every ballot hands out equally many points.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import fsum

__all__ = ["borda", "candidates_of", "condorcet", "instant_runoff", "pairwise"]

Rankings = Sequence[Sequence[str]]


def candidates_of(rankings: Rankings) -> list[str]:
    """Every answer that is ranked, sorted: nothing may depend on who came first.

    Raises:
        ValueError: a ranking names an answer twice.
    """
    for ranking in rankings:
        if len(set(ranking)) < len(ranking):
            raise ValueError(f"a ranking names an answer twice: {list(ranking)}")
    return sorted({answer for ranking in rankings for answer in ranking})


def borda(rankings: Rankings) -> dict[str, float]:
    """Points of each answer: with C answers, C - 1 for a first place, C - 2 for a second, ..."""
    answers = candidates_of(rankings)
    points: dict[str, list[float]] = {answer: [] for answer in answers}
    for ranking in rankings:
        if not ranking:
            continue
        left = len(answers) - len(ranking)
        for place, answer in enumerate(ranking):
            points[answer].append(float(len(answers) - 1 - place))
        for answer in answers:
            if answer not in ranking:
                points[answer].append((left - 1) / 2)
    return {answer: fsum(parts) for answer, parts in points.items()}


def pairwise(rankings: Rankings) -> dict[tuple[str, str], int]:
    """How many ballots put the first of a pair above the second."""
    answers = candidates_of(rankings)
    wins = {(a, b): 0 for a in answers for b in answers if a != b}
    for ranking in rankings:
        place = {answer: i for i, answer in enumerate(ranking)}
        for a, b in wins:
            wins[a, b] += a in place and place[a] < place.get(b, len(answers))
    return wins


def condorcet(rankings: Rankings) -> str | None:
    """The answer that beats every other one by one; None if there is none, e.g. in a cycle."""
    answers = candidates_of(rankings)
    wins = pairwise(rankings)
    for a in answers:
        if all(wins[a, b] > wins[b, a] for b in answers if b != a):
            return a
    return None


def instant_runoff(rankings: Rankings) -> tuple[list[str], list[dict[str, float]]]:
    """The last answers standing, and the first places in each round.

    In each round the answers with fewest first places leave, all at once if they are equal, and
    their ballots go to the next answer on them; a ballot with none left is exhausted. It ends when
    one answer has more than half of the ballots in play, or all that are left are equal.
    """
    standing = candidates_of(rankings)
    rounds: list[dict[str, float]] = []
    while True:
        firsts = dict.fromkeys(standing, 0.0)
        for ranking in rankings:
            first = next((answer for answer in ranking if answer in firsts), None)
            if first is not None:
                firsts[first] += 1
        rounds.append(firsts)
        if not standing:
            return [], rounds
        top, low = max(firsts.values()), min(firsts.values())
        if 2 * top > sum(firsts.values()):
            return [answer for answer in standing if firsts[answer] == top], rounds
        if top == low:
            return standing, rounds
        standing = [answer for answer in standing if firsts[answer] > low]
