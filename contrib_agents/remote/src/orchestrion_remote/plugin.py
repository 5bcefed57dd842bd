"""What this distribution supplies."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrion import Component, hookimpl

HERE = "orchestrion_remote"


@hookimpl
def orchestrion_agents() -> Iterator[Component]:
    """Agents that are asked over a network."""
    # Nobody listens at these addresses: the checks of components ask nobody.
    yield Component(
        "http",
        f"{HERE}.http:Http",
        "an agent behind HTTP: JSON, or a chat endpoint compatible with OpenAI's",
        example={"urls": ["http://127.0.0.1:9"]},
    )
    yield Component(
        "grpc",
        f"{HERE}.rpc:Grpc",
        "an agent behind gRPC, such as one that `orchestrion agent-server` serves",
        example={"addresses": ["127.0.0.1:9"]},
    )
