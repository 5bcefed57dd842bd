"""Compare two results on the problems that both were judged on."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

from attrs import Factory, frozen

from orchestrion._errors import UsageError
from orchestrion._manifest import changed_code
from orchestrion._report import OWN_UNIT, Outcomes, paired, plain_data, unit_of
from orchestrion._statistics import Estimate, mean

SIZES = ("train", "validation", "test")
"""Settings of a task that say how many problems a split has: they change no problem."""

_APART = ("task", "run", "budget", "evaluation")
"""Sections of a config that say nothing of the team: the task's are told with the problems."""

_NAMED = 8
"""At most so many settings of the team are named."""


@frozen
class ComparedResult:
    """One of two results to compare.

    Args:
        name: in the comparison.
        outcomes: by problem.
        seeds: tries per problem.
        digests: see `Report.digests`.
        config: with which it was made, if known; at least the task that the problems are from.
        code: see `code_of`; empty if unknown.
    """

    name: str
    outcomes: Outcomes
    seeds: int = 1
    digests: Mapping[str, str] = Factory(dict)
    config: Mapping[str, Any] = Factory(dict)
    code: Mapping[str, Any] = Factory(dict)

    @property
    def unit(self) -> str:
        return unit_of(self.outcomes.values())


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


def compare_outcomes(first: ComparedResult, second: ComparedResult) -> Comparison:
    """Compare two results problem by problem.

    Problems are paired if they have the same id and the same content.

    Raises:
        UsageError: the results have no problem in common; says why.
    """
    shared, notes = _shared(first, second)
    a, b = ({id: judged.outcomes[id] for id in shared} for judged in (first, second))
    # What cost nothing has no unit of its own.
    units = [unit_of(rows.values()) for rows in (a, b) if _mean(rows, "cost")] or [OWN_UNIT]
    means = {
        field: (_mean(a, field), _mean(b, field), paired(a, b, field))
        for field in ("solved", "reward", "cost", "turns", "limit", "failed")
    }
    if units[0] != units[-1]:
        del means["cost"]
        notes.append(f"costs are not compared: A has {units[0]}, B has {units[-1]}")
    notes += _config_note(first.config, second.config)
    if code := changed_code(first.code, second.code):
        notes.append(f"code differs: {code}")
    if first.seeds != second.seeds:
        notes.append(f"A tried each problem {first.seeds} times, B {second.seeds} times")

    def better(rows: Outcomes, others: Outcomes) -> tuple[str, ...]:
        return tuple(p for p in shared if (rows[p]["solved"] or 0) > (others[p]["solved"] or 0))

    return Comparison(
        names=(first.name, second.name),
        problems=len(shared),
        unit=units[0],
        means=means,
        better=(better(a, b), better(b, a)),
        alone=(len(first.outcomes) - len(shared), len(second.outcomes) - len(shared)),
        several=max(first.seeds, second.seeds) > 1,
        notes=tuple(notes),
    )


def _shared(first: ComparedResult, second: ComparedResult) -> tuple[list[str], list[str]]:
    """Return the ids of the problems in both results, and what a reader should know of them."""
    names = f"{first.name} and {second.name}"
    ids = [id for id in first.outcomes if id in second.outcomes]
    if not ids:
        raise UsageError(f"{names} were judged on no problem with the same id")
    if not (first.digests and second.digests):
        raise UsageError(
            f"{names} cannot be compared: an earlier version of orchestrion did not store what "
            "their problems are; evaluate both again with `orchestrion eval`"
        )
    shared = [id for id in ids if first.digests.get(id) == second.digests.get(id)]
    tasks = (judged.config.get("task") or {} for judged in (first, second))
    settings = ", ".join(_differing_settings(*tasks))
    notes = []
    if not shared:
        because = f" (the settings of their tasks differ: {settings})" if settings else ""
        raise UsageError(
            f"{names} were judged on other problems: {len(ids)} have the same id, and none of "
            f"them the same content{because}"
        )
    if len(shared) < len(ids):
        others = len(ids) - len(shared)
        notes.append(f"not paired: {others} problems with the same id and other content")
    if settings:
        notes.append(
            f"problems are paired by their content; the settings of their tasks differ: {settings}"
        )
    return shared, notes


def _differing_settings(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[str]:
    """Return how each setting differs, sizes of splits left out."""
    return [
        f"{path} is {_short(ours)} in A and {_short(theirs)} in B"
        for path, ours, theirs in differences(first, second)
        if path not in SIZES
    ]


def _config_note(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[str]:
    """Return a note of the settings of team, policy and trainer that differ; none if unknown."""
    if not (first.get("agents") and second.get("agents")):
        return []  # a file of an earlier version has the task's settings alone
    teams = ({k: v for k, v in config.items() if k not in _APART} for config in (first, second))
    texts = _differing_settings(*teams)
    more = f", and {len(texts) - _NAMED} more" if len(texts) > _NAMED else ""
    return [f"their settings differ: {', '.join(texts[:_NAMED])}{more}"] if texts else []


def differences(then: Any, now: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield the path and both values of each place where two JSON values differ."""
    if isinstance(then, Mapping) and isinstance(now, Mapping):
        for name in dict.fromkeys([*then, *now]):
            inside = f"{path}.{name}" if path else name
            yield from differences(then.get(name), now.get(name), inside)
    elif isinstance(then, list) and isinstance(now, list):
        for i, (before, after) in enumerate(zip(then, now, strict=False)):
            yield from differences(before, after, f"{path}[{i}]")
        if len(then) != len(now):
            yield f"length of {path}", len(then), len(now)
    elif then != now and not (then != then and now != now):  # two unknown prices are alike
        yield path, then, now


def _short(value: Any) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 40 else f"{text[:37]}..."


def _mean(rows: Outcomes, field: str) -> float:
    values = [value for row in rows.values() if (value := row[field]) is not None]
    return mean(values) if values else math.nan
