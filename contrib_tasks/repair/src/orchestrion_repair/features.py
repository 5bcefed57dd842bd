"""Numbers for learned policies: what failing tests, code and earlier calls showed.

`names` says what each stands for. All are from 0 to 1, of fixed number for a team, and speak of no
name in the program, so that what was learned on some functions holds for others.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING

from attrs import frozen

from orchestrion_repair.ranking import REGIONS, Program
from orchestrion_repair.state import (
    RepairState,
    Skills,
    program_of,
    raised_in,
    ranking_of,
    symptoms_of,
)
from orchestrion_repair.symptoms import SYMPTOMS
from orchestrion_repair.syntax import line_syntax

if TYPE_CHECKING:
    from orchestrion_repair.learned import Ranked

BATCH = 6
"""How many candidates the outlook of a family in a region looks at."""
_PROGRESS = (
    "tests known", "share passing", "fixed", "improved", "turns", "executions", "best gain",
    "second gain", "moved on top line", "moved elsewhere", "lint known", "lint on top line",
    "suspicion of top line", "gap to next line", "share of lines as suspicious as the top",
    "lines", "candidates", "share tried",
)  # fmt: skip
_SYNTAX = (
    "if", "while", "for", "return", "assign", "augmented", "call statement", "compare", "boolean",
    "arithmetic", "call", "subscript", "slice", "number", "text", "comprehension", "not",
    "in loop", "first line", "raised here", "last in block", "tuple",
)  # fmt: skip
_SHOWN = ("top", "next")

_SHARED: tuple[str, ...] = (
    *_PROGRESS,
    *SYMPTOMS,
    *(f"{name} on {region}" for region in _SHOWN for name in _SYNTAX),
)


def names(skills: Skills) -> tuple[str, ...]:
    """Return what each feature stands for, with this team."""
    outlooks = (f"outlook of {agent} in {region}" for agent, _ in skills for region in REGIONS)
    return (*_SHARED, *outlooks)


def features(state: RepairState) -> tuple[float, ...]:
    """Return a number for every name."""
    program, lines = program_of(state), ranking_of(state)
    return (
        *_progress(state, program, lines),
        *symptoms_of(state).values(),
        *(v for region in _SHOWN for v in _syntax(state, program, lines.regions[region])),
        *(outlook.outlook for outlook in outlooks(state).values()),
    )


def hints(state: RepairState) -> dict[str, tuple[float, ...]]:
    """Return numbers about each choice whose worth is known.

    The outlook, how many calls the choice had, and how many candidates it has left, each 0 to 1.
    As long as no results are known, running the tests has the best outlook there is: all other
    outlooks are worth more after it, and it costs what two or three candidates cost.
    """
    calls = dict(state.calls)
    by_choice: dict[str, tuple[float, ...]] = {
        choice: (outlook.outlook, min(1.0, calls.get(choice, 0) / 3), min(1.0, outlook.left / 50))
        for choice, outlook in outlooks(state).items()
        if outlook.left
    }
    if state.results is None:
        by_choice |= dict.fromkeys(state.testers, (1.0, 0.0, 0.0))
    return by_choice


# ---------------------------------------------------------------- groups


def _progress(state: RepairState, program: Program, lines: Ranked) -> Iterator[float]:
    results = state.results
    yield float(results is not None)
    yield sum(result["passed"] for result in results) / len(results) if results else 0.0
    yield float(state.fixed)
    yield float(state.improved)
    yield min(1.0, state.turns / 12)
    yield min(1.0, math.log1p(state.executions) / math.log(500))
    gains = sorted((share for _, share in state.boosts), reverse=True)
    yield gains[0] if gains else 0.0
    yield gains[1] if len(gains) > 1 else 0.0
    top = lines.order[0] if lines.order else 0
    moved = dict(state.moved)
    yield min(1.0, moved.get(top, 0) / 10)
    yield min(1.0, sum(number for line, number in moved.items() if line != top) / 20)
    yield float(bool(state.findings))
    yield float(top in state.findings)
    known = dict(state.suspicion or ())
    scores = [known.get(line, 0.0) for line in lines.order] or [0.0]
    yield scores[0]
    yield scores[0] - (scores[1] if len(scores) > 1 else 0.0)
    yield sum(score >= scores[0] for score in scores) / len(scores) if known else 0.0
    yield min(1.0, len(lines.order) / 25)
    number = len(program.candidates)
    yield min(1.0, math.log1p(number) / 9)
    yield len(state.tried) / number if number else 1.0


def _syntax(state: RepairState, program: Program, region: tuple[int, ...]) -> Iterator[float]:
    """Yield the share of a region's lines that have each property."""
    raised = raised_in(state)
    words = [line_syntax(program).get(line, frozenset()) for line in region]
    words += [frozenset({"raised here"}) for line in region if line in raised]
    for name in _SYNTAX:
        yield sum(name in some for some in words) / len(region) if region else 0.0


@frozen
class Outlook:
    """What an agent could still do in a region.

    `outlook`: the chance that one of its best untried candidates, as many as a call tries, is
    right, if any of the program's is; on a logarithmic scale, since most are small: 1 for
    certain, 0 for a thousandth or less. `left`: how many candidates it has left there.
    """

    outlook: float
    left: int


def outlooks(state: RepairState) -> dict[str, Outlook]:
    """Return the outlooks by "agent:region", in the order of the team."""
    return _outlooks(ranking_of(state), state.skills)


@lru_cache(maxsize=1_000)
def _outlooks(ranked: Ranked, skills: Skills) -> dict[str, Outlook]:
    by_choice = {}
    for agent, families in skills:
        for region, (shares, left) in zip(REGIONS, ranked.best(families, BATCH), strict=True):
            outlook = max(0.0, 1 + math.log10(shares) / 3) if shares > 0 else 0.0
            by_choice[f"{agent}:{region}"] = Outlook(outlook, left)
    return by_choice
