"""What this distribution supplies."""

from __future__ import annotations

from collections.abc import Iterable

from orchestrion import Component, hookimpl

HERE = "orchestrion_repair_agents"
_TASK = {"task": {"use": "repair", "max_problems": 4, "steps": 5_000}}


@hookimpl
def orchestrion_agents() -> Iterable[Component]:
    """Tools that repair programs."""
    yield Component(
        "run-tests",
        f"{HERE}.run_tests:RunTests",
        "runs the visible tests: which fail, how, and which lines they cover",
        around=_TASK,
    )
    yield Component(
        "mutate",
        f"{HERE}.mutate:Mutate",
        "tries edits of some families on the most suspicious line, the next few, or the rest",
        example={"operators": ["comparison", "off-by-one"]},
        around=_TASK,
    )
    yield Component(
        "lint",
        f"{HERE}.lint:Lint",
        "names lines that look odd, and can normalise the layout",
        around=_TASK,
    )
