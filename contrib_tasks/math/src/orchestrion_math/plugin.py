"""What this distribution supplies."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrion import Component, hookimpl

HERE = "orchestrion_math"
_TEAM = {"a": {"use": "kit-agent"}, "b": {"use": "kit-agent", "choose": ["x", "y"]}}


@hookimpl
def orchestrion_tasks() -> Iterator[Component]:
    yield Component(
        "math",
        f"{HERE}.task:Math",
        "problems with one answer, compared by value and not by text",
        example={"generated": {"train": 8, "validation": 4, "test": 4}},
        around={"agents": {**_TEAM, "solver": {"use": "kit-agent"}}},
    )


@hookimpl
def orchestrion_models() -> Iterator[Component]:
    yield Component(
        "math-teacher",
        f"{HERE}.generate:MathTeacher",
        "plays solver and verifier of generated problems with stated mistakes",
    )
