"""What this distribution supplies."""

from __future__ import annotations

from collections.abc import Iterable

from orchestrion import Component, hookimpl

HERE = "orchestrion_code_review"


@hookimpl
def orchestrion_tasks() -> Iterable[Component]:
    """Return the code-review task."""
    yield Component(
        "code-review",
        f"{HERE}.task:CodeReview",
        "write, review and refactor functions: hidden tests, static measures, teamwork, cost",
        example={"max_problems": 2, "measures": []},
    )


@hookimpl
def orchestrion_trainers() -> Iterable[Component]:
    """Return what a turn was worth."""
    yield Component(
        "turn-credit",
        f"{HERE}.credit:TurnCredit",
        "measures what each agent's turns were worth by playing episodes again without them",
        example={"episodes": 1},
        around={"task": {"use": "code-review", "max_problems": 2, "measures": []}},
    )
