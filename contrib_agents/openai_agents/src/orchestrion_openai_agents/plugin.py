"""What this distribution supplies."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrion import Component, hookimpl

HERE = "orchestrion_openai_agents"


@hookimpl
def orchestrion_agents() -> Iterator[Component]:
    yield Component(
        "openai-agents",
        f"{HERE}.agent:OpenAIAgents",
        "runs an Agent of the OpenAI Agents SDK, with its tools and handoffs",
        example={"agent": f"{HERE}.demo:echo"},
    )
