"""The page that compares runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from itertools import accumulate
from typing import Any

from orchestrion import UsageError
from orchestrion.config import flat, to_yaml
from orchestrion.runs import (
    ComparedResult,
    Comparison,
    RunReader,
    compare_outcomes,
    stored_config,
    stored_results,
)
from orchestrion_studio.catalogue import catalogue_of
from orchestrion_studio.contents import clipped
from orchestrion_studio.drawing import plot_of, series_of
from orchestrion_studio.page import Data, Page, Query, page_address
from orchestrion_studio.run import FIRST, SHARES

MOST_RUNS = 8
FIGURES = ("solved", "reward", "cost", "turns")
MOST_PROBLEMS = 200
"""Limit of problems that are named; counts include the rest."""
EMPTY = ("", "null", '""', "[]", "{}")
LONGEST = 500
"""Characters of a setting that are shown."""


def compare_data(query: Query, reader: None) -> Data:
    """Return runs beside each other: curves, figures, differences, settings and problems."""
    base = query.text("base")
    names = list(dict.fromkeys([*([base] if base else []), *query.texts("run")]))
    known = list(catalogue_of(query.folder).look())
    chooser = {"folder": query.folder.name, "known": sorted(known)}
    if len(names) > MOST_RUNS:
        raise UsageError(f"{len(names)} runs are named; {MOST_RUNS} can be compared at once")
    if len(names) < 2:
        return {**chooser, "chosen": names, "result": None}
    with ExitStack() as stack:
        readers = {name: stack.enter_context(query.open(name)) for name in names}
        return {**chooser, "chosen": names, "result": compared(readers)}


def compared(readers: Mapping[str, RunReader]) -> dict[str, Any]:
    """Return the comparison of runs; the first is compared with each of the others."""
    first, *others = readers
    # A run's own team is its first result; a run that was not evaluated has none.
    results = {name: next(iter(stored_results(r).values()), None) for name, r in readers.items()}
    return {
        "runs": [_head(name, reader, results[name]) for name, reader in readers.items()],
        "plots": _plots(readers, {name: judged.unit for name, judged in results.items() if judged}),
        "pairs": [_pair(first, name, results[first], results[name]) for name in others],
        "settings": differing_settings({n: stored_config(r) for n, r in readers.items()}),
        "problems": _problems(results),
    }


def _head(name: str, reader: RunReader, judged: ComparedResult | None) -> dict[str, Any]:
    rows = list(judged.outcomes.values()) if judged is not None else []
    means = {}
    for field in FIGURES:
        values = [value for row in rows if (value := row[field]) is not None]
        means[field] = sum(values) / len(values) if values else None
    return {
        "name": name,
        "address": page_address("/run/{run}", name),
        "status": reader.status,
        "iterations": len(reader.iterations()),
        "problems": len(rows),
        "unit": judged.unit if judged is not None else "",
        "usd": reader.spend().usd,
        "calls": reader.spend().calls,
        **means,
    }


def _plots(readers: Mapping[str, RunReader], units: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the curves of all runs over training episodes, metric by metric.

    Costs in different units have a plot each.
    """
    curves: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for number, (name, reader) in enumerate(readers.items()):
        iterations = reader.iterations()
        x = list(accumulate(iteration.episodes for iteration in iterations))
        for metric in FIRST:
            y = [iteration.metrics.get(metric) for iteration in iterations]
            if any(value is not None for value in y):
                unit = units.get(name, "unit not known yet") if metric == "cost" else ""
                line = series_of(name, x, y, colour=number)
                curves.setdefault((metric, unit), []).append(line)
    plots = []
    for (metric, unit), series in sorted(curves.items(), key=lambda row: [*FIRST].index(row[0][0])):
        title, axis = (f"{text}, {unit}" if unit else text for text in FIRST[metric])
        id = f"compare-{title.lower().replace(', ', '-').replace(' ', '-')}"
        shares = metric in SHARES
        plots.append(plot_of(title, "training episodes", axis, series, id=id, shares=shares))
    return plots


# ------------------------------------------------------------------ results


def _pair(
    name: str, other: str, first: ComparedResult | None, second: ComparedResult | None
) -> dict[str, Any]:
    """Return the first run minus another on the problems that both were judged on."""
    pair: dict[str, Any] = {"first": name, "second": other, "why_not": "", "rows": []}
    if first is None or second is None:
        missing = name if first is None else other
        return pair | {"why_not": f"{missing} was not evaluated yet"}
    try:
        comparison = compare_outcomes(first, second)
    except UsageError as error:
        return pair | {"why_not": str(error)}
    return pair | {
        "problems": comparison.problems,
        "unit": comparison.unit,
        "rows": _rows(comparison),
        "only_first": _named(comparison.better[0]),
        "only_second": _named(comparison.better[1]),
        "alone": list(comparison.alone),
        "several": comparison.several,
        "notes": list(comparison.notes),
    }


def _rows(comparison: Comparison) -> list[dict[str, Any]]:
    plain = comparison.as_json()["means"]
    titles = {"limit": "ended at a limit", "cost": f"cost ({comparison.unit})"}
    return [
        {
            "name": titles.get(field, field),
            "is_share": field in ("solved", "limit", "failed"),
            "first": first,
            "second": second,
            **difference,
        }
        for field, (first, second, difference) in plain.items()
    ]


def _named(problems: Sequence[str]) -> dict[str, Any]:
    return {"count": len(problems), "names": list(problems[:MOST_PROBLEMS])}


def _problems(results: Mapping[str, ComparedResult | None]) -> dict[str, Any]:
    """Return the problems that some runs solve and others do not: a row each, a share for each run.

    Only runs that share problems with the first, and only problems with the same content in all.
    """
    judged = {name: result for name, result in results.items() if result is not None}
    first = next(iter(judged.values()), None)
    together = {name: r for name, r in judged.items() if first and _shared([first, r])}
    shared = _shared(list(together.values()))
    rows = [
        {"problem": id, "solved": [r.outcomes[id]["solved"] for r in together.values()]}
        for id in shared
    ]
    differing = [row for row in rows if len(set(row["solved"])) > 1]
    return {
        "runs": list(together),
        "left_out": [name for name in results if name not in together],
        "rows": differing[:MOST_PROBLEMS],
        "count": len(differing),
        "shared": len(shared),
    }


def _shared(judged: Sequence[ComparedResult]) -> list[str]:
    """Return the ids of the problems with the same content in all results."""
    if not judged:
        return []
    first, *others = judged
    return [
        id
        for id in first.outcomes
        if all(id in o.outcomes and o.digests.get(id) == first.digests.get(id) for o in others)
    ]


# ------------------------------------------------------------------ settings


def differing_settings(configs: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the settings that are not the same in all configs: a path, and a value for each.

    A value of None means that the config has no such setting. What is empty in one config and
    missing in another is no difference.
    """
    known = {
        name: {path: _text(value) for path, value in flat(config)}
        for name, config in configs.items()
    }
    paths = dict.fromkeys(path for values in known.values() for path in values)
    rows = []
    for path in paths:
        texts = [values.get(path) for values in known.values()]
        if len({None if text in EMPTY else text for text in texts}) > 1:
            cells = [None if text is None else clipped(text, LONGEST) for text in texts]
            rows.append({"path": path, "cells": cells})
    return rows


def _text(value: Any) -> str:
    if isinstance(value, str) and len(value) > LONGEST:  # as YAML it takes seconds
        return value
    return to_yaml({"value": value}).removeprefix("value:").strip()


PAGES = [
    Page(
        "/compare",
        "compare.html",
        compare_data,
        "Two to eight runs beside each other: curves, results, settings, problems",
        {
            "run": "a run, given two to eight times; the first is compared with each of the others",
            "base": "the run that is compared with each of the others, whichever comes first",
        },
    )
]
