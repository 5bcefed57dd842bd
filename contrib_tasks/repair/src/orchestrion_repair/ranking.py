"""Where a mistake probably is, and which edits to try first.

Suspicion of a line is Ochiai's coefficient of what failing and passing tests ran (Abreu, Zoeteweij
and van Gemund, 2007): failed(l) / sqrt(failed x (failed(l) + passed(l))). A candidate's weight is
the rate at which edits of its sub-kind are right, times the suspicion of its line, squared, times
what earlier calls showed about the line.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from attrs import frozen

from orchestrion_repair.operators import Candidate, candidates
from orchestrion_repair.operators.source import Source
from orchestrion_repair.prior import rate

__all__ = ["REGIONS", "Map", "Program", "chart", "ochiai", "program", "propose"]

REGIONS = ("top", "next", "rest")
NEXT = 3
"""How many lines the middle region has."""
FLOOR = 0.05
"""Suspicion of a line that no failing test ran: coverage can mislead."""


def ochiai(runs: Sequence[tuple[bool, Collection[int]]]) -> dict[int, float]:
    """Suspicion of every line that some test ran; `runs` are (passed, lines) of each test."""
    failed = sum(not passed for passed, _ in runs)
    scores: dict[int, float] = {}
    for line in sorted({line for _, lines in runs for line in lines}):
        bad = sum(line in lines for passed, lines in runs if not passed)
        good = sum(line in lines for passed, lines in runs if passed)
        scores[line] = bad / math.sqrt(failed * (bad + good)) if bad else 0.0
    return scores


def weight_of_line(suspicion: float, boost: float) -> float:
    """What a line's place in the coverage and earlier calls are worth."""
    return (suspicion + FLOOR) ** 2 * (1 + BOOST * boost)


BOOST = 6.0
"""A line on which an edit mended all tests but one counts this much more."""


class Rates(NamedTuple):
    """The rates of a family's candidates on a line, best first; their numbers; their sum."""

    rates: tuple[float, ...]
    numbers: frozenset[int]
    mass: float


@frozen(eq=False)
class Program:
    """A program's candidates with their rates, by line and family, best first.

    Args:
        source: its syntax; None if it has none.
        candidates: all of them, by number.
        table: at most `MOST` candidates a line and family: no episode gets further.
        rates: their rates alone.
        number: how many candidates there are.
        masses: how much the candidates of a line promise together.
    """

    source: Source | None
    candidates: tuple[Candidate, ...]
    table: Mapping[int, Mapping[str, tuple[tuple[float, Candidate], ...]]]
    rates: Mapping[int, Mapping[str, Rates]]
    number: int
    masses: Mapping[int, float]


MOST = 36


@lru_cache(maxsize=1_000)
def program(code: str, entry_point: str = "", arguments: tuple[str, ...] = ()) -> Program:
    """Everything worth trying on a program; nothing if it has no syntax."""
    source, edits = candidates(code, entry_point, arguments)
    lines: dict[int, dict[str, list[tuple[float, Candidate]]]] = {}
    for candidate in edits:
        families = lines.setdefault(candidate.line, {})
        one = (rate(candidate.family, candidate.sub), candidate)
        families.setdefault(candidate.family, []).append(one)
    table = {
        line: {
            family: tuple(sorted(pairs, key=lambda pair: (-pair[0], pair[1].number))[:MOST])
            for family, pairs in families.items()
        }
        for line, families in sorted(lines.items())
    }
    values = {
        line: {
            family: Rates(
                tuple(value for value, _ in pairs),
                frozenset(candidate.number for _, candidate in pairs),
                sum(value for value, _ in pairs),
            )
            for family, pairs in families.items()
        }
        for line, families in table.items()
    }
    number = sum(len(pairs) for families in table.values() for pairs in families.values())
    masses = {
        line: math.sqrt(sum(one.mass for one in families.values()))
        for line, families in values.items()
    }
    return Program(source, edits, table, values, number, masses)


@frozen(eq=False)
class Map:
    """A program's lines: in the order to look at them, with their weights, and by region."""

    order: tuple[int, ...]
    weights: Mapping[int, float]
    regions: Mapping[str, tuple[int, ...]]


def chart(
    program: Program, suspicion: Mapping[int, float] | None, boosts: Mapping[int, float]
) -> Map:
    """Lines in the order to look at them. Without test results: as written, all alike."""
    masses = program.masses
    weights = {
        line: weight_of_line(
            1.0 if suspicion is None else suspicion.get(line, 0.0), boosts.get(line, 0.0)
        )
        for line in masses
    }
    if suspicion is None and not boosts:
        order = sorted(masses)
    else:
        order = sorted(masses, key=lambda line: (-weights[line] * masses[line], line))
    regions = {
        "top": tuple(order[:1]),
        "next": tuple(order[1 : 1 + NEXT]),
        "rest": tuple(order[1 + NEXT :]),
    }
    return Map(tuple(order), weights, regions)


def propose(
    program: Program,
    families: Collection[str],
    lines: Sequence[int],
    weights: Mapping[int, float],
    tried: Collection[int],
    order: Sequence[int] = (),
) -> list[Candidate]:
    """The candidates of these families on these lines that were not tried, best first.

    Those that `order` names come first, in that order.
    """
    if order:
        places, wanted = frozenset(lines), frozenset(families)
        every, known = program.candidates, frozenset(order)
        named = [every[number] for number in order if 0 <= number < len(every)]
        first = [one for one in named if one.family in wanted and one.line in places]
        skipped = known.union(tried)
        return [
            *(one for one in first if one.number not in tried),
            *propose(program, families, lines, weights, skipped),
        ]
    table = program.table
    weighted = [
        (value * weights.get(line, 1.0), candidate)
        for line in lines
        for family in families
        for value, candidate in table.get(line, {}).get(family, ())
        if candidate.number not in tried
    ]
    weighted.sort(key=lambda pair: (-pair[0], pair[1].number))
    return [candidate for _, candidate in weighted]
