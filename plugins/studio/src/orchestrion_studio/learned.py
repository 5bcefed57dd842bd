"""The page of what a run learned."""

from __future__ import annotations

from orchestrion.runs import RunReader
from orchestrion_studio.lessons import lessons_of
from orchestrion_studio.page import Data, Page, Query

__all__ = ["PAGES"]


def learned_data(query: Query, reader: RunReader | None) -> Data:
    """Return what training changed, and what is not recorded of it."""
    assert reader is not None
    iteration = query.number("iteration", 0)
    lessons = lessons_of(reader, iteration=iteration or None, problem=query.text("problem"))
    return {"run": query.run, **lessons}


PAGES = [
    Page(
        "/learned/{run}",
        "learned.html",
        learned_data,
        "What was learned: settings, habits, instructions, fronts, trees, rules, diagnostics",
        {
            "iteration": "whose search tree is shown, counted from 1; the newest by default",
            "problem": "whose search tree is shown; the first by default",
        },
    )
]
