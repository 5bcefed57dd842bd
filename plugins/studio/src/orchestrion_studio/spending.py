"""What a run paid against its budget, in all and over the iterations, and which calls failed."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import accumulate
from math import isclose
from pathlib import Path
from typing import Any

from orchestrion import Usage
from orchestrion.runs import Iteration, RunReader, run_identity
from orchestrion_studio.drawing import plot_of, series_of
from orchestrion_studio.page import Data

PATIENCE = 20.0
"""Sums that took s seconds to compute are kept for PATIENCE * s seconds."""
RUNS = 64
_Sums = tuple[Usage, Sequence[Any]]
_sums: dict[Path, tuple[tuple[Any, ...], float, _Sums]] = {}
"""By run folder: the identity of its files, when the sums expire, and the sums."""

FAULTS = {
    "rate_limit": "rate limit of the service",
    "overload": "service overloaded",
    "transient": "no answer, or none in time",
    "malformed": "answer that could not be used",
    "permanent": "refused by the service",
    "quota": "account empty",
    "": "reason not kept",
}
"""Calls that failed for good, by the fault of their last attempt."""
ATTEMPTS = {
    "timeout": "attempts that timed out",
    "cut": "attempts cut off by the run",
    "lost": "attempts cut off by a crash",
    "billed": "attempts that failed after being sent",
}


def spending_of(
    reader: RunReader, budget: Mapping[str, Any], iterations: Sequence[Iteration]
) -> Data:
    """Return what was spent of each thing that a budget may limit, its course, and failed calls."""
    total, sums = _sums_of(reader)
    rows = spent_rows(reader, budget, total)
    return {"rows": rows, "plot": _course(rows, sums, iterations), "failed": _failed(sums)}


def own_cost(total: Usage) -> float | None:
    """Return a cost in the agents' own unit; None where it is nothing, or money, calls or tokens.

    Those are shown by themselves.
    """
    others = (total.usd, total.calls, total.tokens)
    return None if not total.cost or any(isclose(total.cost, t) for t in others) else total.cost


def spent_rows(reader: RunReader, budget: Mapping[str, Any], total: Usage) -> list[Data]:
    """Return what was spent of each thing, in all, and its limit."""
    spent = {
        "usd": ("US dollars", total.usd),
        "calls": ("calls", float(total.calls)),
        "tokens": ("tokens", float(total.tokens)),
        "minutes": ("minutes", reader.seconds / 60),
    }
    if (cost := own_cost(total)) is not None:
        spent["cost"] = ("cost (agents' unit)", cost)
    return [
        {"name": name, "text": text, "spent": value, "limit": budget.get(name)}
        for name, (text, value) in spent.items()
    ]


def _course(
    rows: Sequence[Data], sums: Sequence[Any], iterations: Sequence[Iteration]
) -> Data | None:
    """Return the plot of what is limited, else of what was paid; None if that is nothing."""
    limited = [row for row in rows if row["limit"] is not None]
    paid = [row for row in rows if row["spent"] and row["name"] in ("usd", "calls", "tokens")]
    chosen = next(iter([*limited, *paid]), None)
    if chosen is None or len(iterations) < 2:
        return None
    name, last = chosen["name"], len(iterations)
    if name == "minutes":
        steps = [iteration.seconds / 60 for iteration in iterations]
    else:
        steps = [0.0] * (last + 1)
        for each in sums:
            steps[min(each.seq - 1, last)] += getattr(each.usage, name)
        if not any(steps):  # stated by turns, and in no record of calls
            return None
        if not steps[last]:
            del steps[last]
    numbers = list(range(1, len(steps) + 1))
    series = [series_of("spent", numbers, list(accumulate(steps)))]
    if chosen["limit"] is not None:
        series.append(series_of("budget", numbers, [chosen["limit"]] * len(steps), style="rule"))
    axis = "iteration" if len(steps) == last else f"iteration; {last + 1}: since then"
    return plot_of(f"Spent: {chosen['text']}", axis, chosen["text"], series, id="spent")


def _failed(sums: Sequence[Any]) -> list[Data]:
    """Return what went wrong with calls, the most frequent first."""
    counts = Counter[str]()
    for row in sums:
        if row.kind == "failed":
            counts[f"failed for good: {FAULTS.get(row.fault, row.fault)}"] += row.number
        elif row.kind in ATTEMPTS:
            counts[ATTEMPTS[row.kind]] += row.number
        if row.kind in ("answer", "failed"):
            counts["attempts that were repeated"] += row.retried
    return [{"kind": kind, "count": count} for kind, count in counts.most_common() if count]


def _sums_of(reader: RunReader) -> _Sums:
    """Return what all of the run took, and its parts."""
    version, now = run_identity(reader.directory), time.monotonic()
    known = _sums.get(reader.directory)
    if known is not None and (known[0] == version or now < known[1]):
        return known[2]
    sums = reader.spend(), reader.journal.sums()
    while len(_sums) >= RUNS:
        _sums.pop(next(iter(_sums)), None)
    end = time.monotonic()
    _sums[reader.directory] = version, end + PATIENCE * (end - now), sums
    return sums
