"""Which edits a program has, and how suspicious its lines are.

Suspicion of a line is Ochiai's coefficient of what failing and passing tests ran (Abreu, Zoeteweij
and van Gemund, 2007): failed(l) / sqrt(failed x (failed(l) + passed(l))). In which order edits are
tried is said by `learned.py`, before anything was learned too.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from functools import lru_cache

from attrs import frozen

from orchestrion_repair.operators import Candidate, candidates
from orchestrion_repair.operators.source import Source

REGIONS = ("top", "next", "rest")
NEXT = 3
"""How many lines the middle region has."""


def ochiai(runs: Sequence[tuple[bool, Collection[int]]]) -> dict[int, float]:
    """Return the suspicion of every line that some test ran.

    Args:
        runs: of each test, whether it passed and the lines it ran.
    """
    failed = sum(not passed for passed, _ in runs)
    scores: dict[int, float] = {}
    for line in sorted({line for _, lines in runs for line in lines}):
        bad = sum(line in lines for passed, lines in runs if not passed)
        good = sum(line in lines for passed, lines in runs if passed)
        scores[line] = bad / math.sqrt(failed * (bad + good)) if bad else 0.0
    return scores


@frozen(eq=False)
class Program:
    """A program's syntax, None if it has none, and all its candidates, by number."""

    source: Source | None
    candidates: tuple[Candidate, ...]


@frozen
class ProbeResults:
    """What probes showed of edits; each a set of numbers, as the bits of a hexadecimal number.

    Args:
        probed: all that were looked at.
        inert: those that change nothing in some failing test, so that they cannot mend it.
        kept: for each passing test, those that change nothing in it.
    """

    probed: str = "0"
    inert: str = "0"
    kept: tuple[str, ...] = ()


@lru_cache(maxsize=1_000)
def program(code: str, entry_point: str = "", arguments: tuple[str, ...] = ()) -> Program:
    """Return everything worth trying on a program; nothing if it has no syntax."""
    return Program(*candidates(code, entry_point, arguments))


def propose(
    program: Program, families: Collection[str], lines: Collection[int], order: Sequence[int]
) -> list[Candidate]:
    """Return the candidates of these families on these lines that `order` names, in its order."""
    every, places, wanted = program.candidates, frozenset(lines), frozenset(families)
    named = (every[number] for number in order if 0 <= number < len(every))
    return [edit for edit in named if edit.line in places and edit.family in wanted]
