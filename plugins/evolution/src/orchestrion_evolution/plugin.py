"""The components that this distribution supplies."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrion import Component, hookimpl

ORCHESTRION_REMOVED = {
    f"trainer evolution.strategy={name}": f"the strategy {name} is gone, since nsga2 finds far "
    "more of the true front on every table of the benchmark; write `strategy: nsga2`"
    for name in ("map-elites", "mu-plus-lambda", "edge-reinforce")
}


@hookimpl
def orchestrion_trainers() -> Iterator[Component]:
    yield Component(
        "evolution",
        "orchestrion_evolution.trainer:Evolution",
        "evolves graphs of the team's agents: reward up, cost down",
        example={"evaluations": 12, "batch": 6, "problems": 2, "slots": 3},
        around={"policy": {"use": "orchestrion-dag:dag", "chain": "a"}},
    )
