"""Draw Stop tables: `task: {use: stop, tables: {seed: 3}}`.

Sizes are drawn once a seed, and the tables again and again until checking is worth its price: at
cost weight 1 the best policy that may make `SHORT` calls is worth at least `ROOM` more than the
best one that asks a single solver, or none, for each type, and also `ROOM` more than abstaining.
So the best value of all, which has more calls, is at least as far ahead.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from random import Random
from typing import Any

from orchestrion import Key
from orchestrion_orchestration_bench.drawing import between, draw_sizes, draw_tables
from orchestrion_orchestration_bench.stop import Checker, Solver, Stop, StopTables
from orchestrion_orchestration_bench.stop_rules import NONE, RIGHT, WRONG

__all__ = ["ROOM", "SHORT", "best_value", "draw"]

ROOM, SHORT = 0.02, 3

Belief = tuple[float, ...]
"""Joint probability of (difficulty, answer): (easy, none), (easy, wrong), ..., (hard, right)."""


@lru_cache(64)
def draw(tables: StopTables, horizon: int | None) -> Mapping[str, Any]:
    """Return `types`, `solvers`, `checkers`, `abstain` and `horizon` for `Stop`.

    Args:
        tables: the seed, and sizes that are not to be drawn.
        horizon: calls at most; None to have it drawn as well.

    Raises:
        ValueError: no draw with these sizes makes checking worth its price.
    """
    key = Key(tables.seed).child("stop")
    random = key.child("sizes").random()
    given = tables.types, tables.solvers, tables.checkers
    types, solvers, checkers = draw_sizes(random, given, ((2, 4), (2, 3), (1, 2)))
    drawn_horizon = random.randint(5, 6)
    calls = horizon or drawn_horizon
    return draw_tables(
        key,
        lambda random: {**_tables(random, types, solvers, checkers), "horizon": calls},
        lambda chosen: _interesting(Stop(**chosen)),
        f"with {types} types, {solvers} solvers, {checkers} checkers and horizon {calls} makes "
        "checking worth its price; ask for other sizes, or a horizon of at least 3",
    )


def _tables(random: Random, types: int, solvers: int, checkers: int) -> dict[str, Any]:
    return {
        "types": {f"t{i + 1}": between(random, (0.05, 0.9)) for i in range(types)},
        "solvers": {
            f"a{i + 1}": row
            for i, row in enumerate(random.sample(_solvers(random, solvers), solvers))
        },
        "checkers": {f"c{i + 1}": _checker(random) for i in range(checkers)},
        "abstain": between(random, (0.05, 0.3)),
    }


def _solvers(random: Random, count: int) -> list[Solver]:
    """Dearer ones are better, above all at what is hard."""
    rows = []
    for i in range(count):
        level = i / (count - 1)
        rows.append(
            Solver(
                round(0.7 + 0.2 * level + random.uniform(0, 0.1), 2),
                round(0.15 + 0.4 * level + random.uniform(0, 0.2), 2),
                round(0.03 + 0.14 * level + random.uniform(0, 0.08), 2),
            )
        )
    return rows


def _checker(random: Random) -> Checker:
    skill = random.random()
    return Checker(
        round(0.8 + 0.1 * skill + random.uniform(0, 0.08), 2),
        round(0.55 + 0.25 * skill + random.uniform(0, 0.15), 2),
        round(0.01 + 0.05 * skill + random.uniform(0, 0.03), 2),
    )


# ---------------------------------------------------------------------- worth playing?


def _interesting(task: Stop) -> bool:
    checked = best_value(task, min(SHORT, task.horizon))
    return checked >= max(best_value(task, 1), task.abstain) + ROOM


def best_value(task: Stop, calls: int) -> float:
    """Return the best value at cost weight 1 with at most so many calls; exact, by enumeration."""
    values = [
        _value(task, (1 - hard, 0.0, 0.0, hard, 0.0, 0.0), calls) for hard in task.types.values()
    ]
    return sum(values) / len(values)


def _value(task: Stop, belief: Belief, calls: int) -> float:
    """The best value from a belief on; both scale with the probability of getting there."""
    likely = sum(belief)
    best = max(belief[RIGHT] + belief[3 + RIGHT], task.abstain * likely)
    if not calls:
        return best
    easy, hard = sum(belief[:3]), sum(belief[3:])
    for solver in task.solvers.values():
        p, q = solver.easy, solver.hard
        then = (0.0, easy * (1 - p), easy * p, 0.0, hard * (1 - q), hard * q)
        best = max(best, _value(task, then, calls - 1) - solver.cost * likely)
    if belief[NONE] + belief[3 + NONE] == 0:
        for checker in task.checkers.values():
            ok = [0.0, 0.0, 0.0]
            ok[WRONG], ok[RIGHT] = 1 - checker.wrong, checker.right
            says_ok = tuple(p * ok[i % 3] for i, p in enumerate(belief))
            says_bad = tuple(p * (1 - ok[i % 3]) for i, p in enumerate(belief))
            ahead = _value(task, says_ok, calls - 1) + _value(task, says_bad, calls - 1)
            best = max(best, ahead - checker.cost * likely)
    return best
