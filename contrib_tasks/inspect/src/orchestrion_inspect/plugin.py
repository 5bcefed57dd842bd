"""What this distribution supplies."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrion import Component, hookimpl

HERE = "orchestrion_inspect"


@hookimpl
def orchestrion_tasks() -> Iterator[Component]:
    yield Component(
        "inspect",
        f"{HERE}.task:Inspect",
        "an evaluation of Inspect: its samples, prompts and scorers",
        example={"evaluation": f"{HERE}.demo:capitals"},
    )
