"""What this distribution supplies."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrion import Component, hookimpl

HERE = "orchestrion_langgraph"


@hookimpl
def orchestrion_agents() -> Iterator[Component]:
    yield Component(
        "langgraph",
        f"{HERE}.agent:LangGraph",
        "runs a compiled graph of LangGraph",
        example={"graph": f"{HERE}.demo:echo"},
    )
