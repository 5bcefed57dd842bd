"""What this distribution supplies."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrion import Component, hookimpl


@hookimpl
def orchestrion_agents() -> Iterator[Component]:
    """Agents that speak A2A."""
    yield Component(
        "a2a",
        "orchestrion_a2a.agent:A2A",
        "an agent that speaks the A2A protocol, by the address of its card",
        # Nobody listens there: the checks of components ask nobody.
        example={"url": "http://127.0.0.1:9"},
    )
