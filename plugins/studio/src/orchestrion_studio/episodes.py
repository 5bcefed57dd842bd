"""The page of a run's episodes: a table with filters, a page at a time from the database."""

from __future__ import annotations

from typing import Any, get_args

from attrs import asdict

from orchestrion import Status
from orchestrion.runs import EpisodeFilter, EpisodeOrder, EpisodePage, EpisodeRow, RunReader
from orchestrion_studio.page import Data, Page, Query

FILTERS = {
    "source": "`train`, or the name of an evaluation",
    "status": "how the episode ended",
    "solved": "`yes` or `no`",
    "agent": "the name of an agent that has a turn in it",
    "problem": "part of the problem's id or category",
    "stage": "number of the stage, from 1",
    "iteration": "number of the iteration, from 1",
    "from": "the smallest reward",
    "to": "the largest reward",
    "text": "part of the content or of the error of a turn",
    "order": "`number`, `reward`, `cost` or `turns`",
    "direction": "`down` (default) or `up`",
}
_LIMIT = 50
_SOLVED = {"yes": True, "no": False}


def filter_of(query: Query) -> EpisodeFilter:
    """Return the filter that an address describes; iterations and stages are those of training."""
    stage, iteration = _stored(query, "stage"), _stored(query, "iteration")
    timed = stage is not None or iteration is not None
    return EpisodeFilter(
        source=query.text("source") or ("train" if timed else None),
        stage=stage,
        iteration=iteration,
        status=query.text("status") or None,
        success=_SOLVED.get(query.text("solved")),
        problem=query.text("problem"),
        reward_from=query.real("from"),
        reward_to=query.real("to"),
        agent=query.text("agent"),
        text=query.text("text"),
    )


def _stored(query: Query, name: str) -> int | None:
    """Return a number as it is stored, from 0; an address has it as it is shown, from 1."""
    if not query.text(name):
        return None
    return query.number(name, 1, low=1) - 1


def _order(query: Query) -> tuple[EpisodeOrder, bool]:
    order: Any = query.text("order", "number")
    known: EpisodeOrder = order if order in get_args(EpisodeOrder) else "number"
    return known, query.text("direction") != "up"


def page_of(query: Query, reader: RunReader, **arguments: Any) -> EpisodePage:
    """Return a page of the episodes that an address describes."""
    order, descending = _order(query)
    return reader.episode_page(filter_of(query), order=order, descending=descending, **arguments)


def place_in(query: Query, row: EpisodeRow) -> str:
    """Return where a row stands in the list, as `EpisodePage.after` says it."""
    order, descending = _order(query)
    value = getattr(row, order)
    missing = "-inf" if descending else "inf"
    return f"{missing if value is None else repr(value)},{row.number}"


def link_values(query: Query) -> dict[str, str]:
    """Return the parameters that describe the list, for links that keep it; "" for missing ones."""
    return {name: query.text(name) for name in FILTERS}


def episodes_data(query: Query, reader: RunReader) -> Data:
    """Return a page of a run's episodes, and what its filters offer."""
    order, descending = _order(query)
    page = page_of(
        query,
        reader,
        limit=_LIMIT,
        after=query.text("after") or None,
        before=query.text("before") or None,
    )
    wanted = filter_of(query)
    agents = dict.fromkeys(name for i in reader.iterations() for name in i.agents)
    rows = [{**asdict(row), "at": place_in(query, row)} for row in page.rows]
    return {
        "run": query.run,
        "filters": link_values(query),
        "order": order,
        "descending": descending,
        "rows": rows,
        "candidates": page.candidates,
        "looked": page.looked,
        "reads": wanted.reads,
        "filtered": wanted != EpisodeFilter(),
        "after": page.after,
        "before": page.before,
        "offers": {
            "source": ["train", *reader.evaluation_names()],
            "status": [str(status) for status in Status],
            "agent": sorted(agents),
        },
        "kept": reader.retention,
        "priced": any(row.usd and row.usd != row.cost for row in page.rows),
        "running": reader.status == "running",
    }


PAGES = [
    Page(
        "/episodes/{run}",
        "episodes.html",
        episodes_data,
        "Episodes of a run, a page at a time",
        {
            **FILTERS,
            "after": "`after` of the page before",
            "before": "`before` of the page after",
        },
    )
]
