"""The page of all runs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from typing import Any

from orchestrion.runs import Glance
from orchestrion_studio.catalogue import catalogue_of
from orchestrion_studio.page import Data, Page, Query
from orchestrion_studio.spending import own_cost

SHOWN = 100
"""Runs per page."""
SPARKS = 60
"""Limit of points in a small curve."""

ORDERS: dict[str, Callable[[str, Glance], Any]] = {
    "created": lambda name, run: run.created,
    "name": lambda name, run: name,
    "status": lambda name, run: run.status,
    "iterations": lambda name, run: run.iterations,
    "reward": lambda name, run: _reward(run),
    "solved": lambda name, run: run.solved,
    "spend": lambda name, run: run.spend.usd,
}
"""The keys to sort by; by default all but `name` start with the largest."""


def runs_data(query: Query, reader: None) -> Data:
    """Return a page of the runs below the folder."""
    runs = catalogue_of(query.folder).look()
    words, status = query.text("q").lower().split(), query.text("status")
    order = query.text("sort") if query.text("sort") in ORDERS else "created"
    down = (query.text("order") or ("asc" if order == "name" else "desc")) == "desc"
    read = {name: run for name, run in runs.items() if run is not None}
    matching = {
        name: run
        for name, run in read.items()
        if all(word in name.lower() for word in words) and status in ("", run.status)
    }
    names = _sorted(matching, ORDERS[order], down)
    pages = max(1, math.ceil(len(names) / SHOWN))
    page = query.number("page", 1, 1, pages)
    return {
        "folder": query.folder.name,
        "total": len(runs),
        "unread": len(runs) - len(read),
        "matching": len(names),
        "statuses": dict(sorted(Counter(run.status for run in read.values()).items())),
        "q": query.text("q"),
        "status": status,
        "sort": order,
        "order": "desc" if down else "asc",
        "page_number": page,
        "pages": pages,
        "live": any(run.status == "running" for run in read.values()) or len(runs) > len(read),
        "runs": [_row(name, matching[name]) for name in names[(page - 1) * SHOWN : page * SHOWN]],
    }


def _sorted(runs: dict[str, Glance], key: Callable[[str, Glance], Any], down: bool) -> list[str]:
    """Return names in order; those without a value come last either way."""
    values = {name: key(name, run) for name, run in runs.items()}
    known = [name for name in runs if values[name] is not None]
    return [
        *sorted(known, key=lambda name: values[name], reverse=down),
        *(name for name in runs if values[name] is None),
    ]


def _row(name: str, run: Glance) -> Data:
    step = math.ceil(len(run.rewards) / SPARKS) or 1
    return {
        "name": name,
        "status": run.status,
        "detail": run.detail,
        "created": run.created,
        "seconds": run.seconds,
        **progress_of(run.status, run.iterations, run.planned, run.pace),
        "episodes": run.episodes,
        "solved": run.solved,
        "reward": _reward(run),
        "rewards": list(run.rewards[::-1][::step][::-1]),
        "usd": run.spend.usd,
        "cost": own_cost(run.spend),
        "tokens": run.spend.input_tokens + run.spend.output_tokens,
        "calls": run.spend.calls,
    }


def progress_of(status: str, done: int, planned: int | None, pace: float | None) -> Data:
    """Return how far a run is, and the seconds left at `pace` seconds an iteration, if it runs."""
    left = None
    if status == "running" and planned is not None and pace is not None and done < planned:
        left = (planned - done) * pace
    return {
        "iterations": done,
        "planned": planned,
        "progress": min(1.0, done / planned) if planned else None,
        "seconds_left": left,
    }


def _reward(run: Glance) -> float | None:
    return next((reward for reward in reversed(run.rewards) if reward is not None), None)


PAGES = [
    Page(
        "/runs",
        "runs.html",
        runs_data,
        "All runs below the folder",
        {
            "q": "words that the name has",
            "status": "running, completed, failed, budget, cancelled, interrupted or unreadable",
            "sort": f"one of {', '.join(ORDERS)}",
            "order": "asc or desc",
            "page": "number of the page, from 1",
        },
    )
]
