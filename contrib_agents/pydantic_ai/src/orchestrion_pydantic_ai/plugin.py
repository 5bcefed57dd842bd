"""What this distribution supplies."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrion import Component, hookimpl

HERE = "orchestrion_pydantic_ai"


@hookimpl
def orchestrion_agents() -> Iterator[Component]:
    yield Component(
        "pydantic-ai",
        f"{HERE}.agent:PydanticAI",
        "runs an Agent of Pydantic AI",
        example={"agent": f"{HERE}.demo:echo"},
    )
