"""The components of this distribution."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrion import Component, hookimpl

HERE = "orchestrion_dag"


@hookimpl
def orchestrion_policies() -> Iterator[Component]:
    yield Component(
        "dag",
        f"{HERE}.dag:Dag",
        "runs a chain or graph of agents: branches, joins, loops, retries",
        example={"edges": ["a -> b:x, c", "b:x -> c"]},
    )


@hookimpl
def orchestrion_agents() -> Iterator[Component]:
    yield Component(
        "map",
        f"{HERE}.each:Map",
        "runs a nested team on every element of a list",
        example={
            "over": "[problem.text, 'two']",
            "members": ["a"],
            "policy": {"use": "dag", "chain": "a"},
        },
    )
