"""What this distribution supplies."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrion import Component, hookimpl

HERE = "orchestrion_search"
_TEAM = {
    "a": {"use": "kit-agent"},
    "b": {"use": "kit-agent", "choose": ["x", "y"]},
    "searcher": {"use": "kit-agent"},
    "answerer": {"use": "kit-agent"},
}


@hookimpl
def orchestrion_tasks() -> Iterator[Component]:
    yield Component(
        "lookup", f"{HERE}.lookup:Lookup", "which of two is larger, once letters are looked up"
    )
    yield Component(
        "search",
        f"{HERE}.task:Search",
        "questions over a corpus: search, then answer",
        example={"generated": {"people": 10, "train": 8, "validation": 4, "test": 4}},
        around={"agents": _TEAM},
    )


@hookimpl
def orchestrion_agents() -> Iterator[Component]:
    yield Component(
        "retrieve",
        f"{HERE}.retrieve:Retrieve",
        "asks a retrieval server for the documents of the latest query",
        example={"url": "http://127.0.0.1:9/retrieve"},
    )


@hookimpl
def orchestrion_models() -> Iterator[Component]:
    yield Component(
        "lookup-teacher",
        f"{HERE}.lookup:LookupTeacher",
        "plays the roles of `lookup` with stated mistakes",
    )
    yield Component(
        "search-teacher",
        f"{HERE}.world:SearchTeacher",
        "plays the roles of `search` on generated questions with stated mistakes",
    )
