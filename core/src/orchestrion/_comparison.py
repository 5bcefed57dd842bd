"""Compare two results on the problems that both were judged on."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from attrs import frozen

from orchestrion._errors import UsageError
from orchestrion._keys import Key
from orchestrion._report import Outcomes, paired, plain_data, unit_of
from orchestrion._statistics import Estimate, mean

__all__ = ["Comparison", "compare_outcomes"]


@frozen
class Comparison:
    """Two results on the problems that both were judged on.

    Args:
        names: of the two results.
        problems: how many problems both were judged on.
        unit: of both costs.
        means: by column of the outcomes: both means, and the paired difference.
        better: problems that the first solves more often, and those that the second does.
        alone: how many problems only one of them was judged on.
        several: whether problems were tried more than once.
        notes: what limits the comparison.
    """

    names: tuple[str, str]
    problems: int
    unit: str
    means: Mapping[str, tuple[float, float, Estimate]]
    better: tuple[tuple[str, ...], tuple[str, ...]]
    alone: tuple[int, int]
    several: bool
    notes: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """Return plain data, as `--json` prints it; null for unknown numbers."""
        return plain_data(self)


def compare_outcomes(
    names: tuple[str, str], first: Outcomes, second: Outcomes, seeds: tuple[int, int], key: Key
) -> Comparison:
    """Compare two results problem by problem.

    Args:
        names: of both.
        first: one result.
        second: the other.
        seeds: tries per problem of each.
        key: of the bootstrap.

    Raises:
        UsageError: no problem is in both.
    """
    shared = [problem for problem in first if problem in second]
    if not shared:
        raise UsageError(f"{names[0]} and {names[1]} were judged on no problem with the same id")
    a, b = ({problem: rows[problem] for problem in shared} for rows in (first, second))
    units = unit_of(a.values()), unit_of(b.values())
    means = {
        field: (_mean(a, field), _mean(b, field), paired(a, b, field, key.child(field)))
        for field in ("solved", "reward", "cost", "turns", "limit", "failed")
    }
    notes = []
    if units[0] != units[1]:
        del means["cost"]
        notes.append(f"costs are not compared: A has {units[0]}, B has {units[1]}")
    if seeds[0] != seeds[1]:
        notes.append(f"A tried each problem {seeds[0]} times, B {seeds[1]} times")

    def better(rows: Outcomes, others: Outcomes) -> tuple[str, ...]:
        return tuple(p for p in shared if (rows[p]["solved"] or 0) > (others[p]["solved"] or 0))

    return Comparison(
        names,
        len(shared),
        units[0],
        means,
        (better(a, b), better(b, a)),
        (len(first) - len(shared), len(second) - len(shared)),
        max(seeds) > 1,
        tuple(notes),
    )


def _mean(rows: Outcomes, field: str) -> float:
    values = [value for row in rows.values() if (value := row[field]) is not None]
    return mean(values) if values else math.nan
