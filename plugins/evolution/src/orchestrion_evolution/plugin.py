"""The components that this distribution supplies."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrion import Component, hookimpl


@hookimpl
def orchestrion_trainers() -> Iterator[Component]:
    yield Component(
        "evolution",
        "orchestrion_evolution.trainer:Evolution",
        "evolves graphs of the team's agents: reward up, cost down",
        example={"evaluations": 12, "batch": 6, "problems": 2, "slots": 3},
        around={"policy": {"use": "orchestrion-dag:dag", "chain": "a"}},
    )
