"""What this distribution supplies."""

from __future__ import annotations

from collections.abc import Iterable

from orchestrion import Component, hookimpl


@hookimpl
def orchestrion_trainers() -> Iterable[Component]:
    """Return the trainer that learns which edits to try first."""
    yield Component(
        "edit-ranking",
        "orchestrion_repair.edit_ranking:EditRanking",
        "learns which edits repair programs, as the ranking of the task repair",
        around={"task": {"use": "repair", "max_problems": 4, "steps": 5_000}},
    )


@hookimpl
def orchestrion_tasks() -> Iterable[Component]:
    """Return the repair task."""
    yield Component(
        "repair",
        "orchestrion_repair.task:Repair",
        "buggy Python functions with tests: find the edit that makes them pass",
        example={"max_problems": 4, "steps": 5_000},
    )
