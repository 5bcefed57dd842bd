"""What this distribution supplies."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrion import Component, hookimpl


@hookimpl
def orchestrion_executors() -> Iterator[Component]:
    yield Component(
        "processes",
        "orchestrion_executors.processes:Processes",
        "runs episodes in processes of this machine",
        example={"workers": 2},
    )
    yield Component(
        "ray",
        "orchestrion_executors.ray:Ray",
        "runs episodes in actors of a Ray cluster",
        example={"workers": 2},
    )
