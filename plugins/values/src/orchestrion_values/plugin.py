"""What this distribution supplies."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrion import Component, hookimpl

HERE = "orchestrion_values"


@hookimpl
def orchestrion_policies() -> Iterator[Component]:
    yield Component(
        "values", f"{HERE}.values:Values", "takes the choice of the highest learned value"
    )


@hookimpl
def orchestrion_trainers() -> Iterator[Component]:
    yield Component(
        "bandit", f"{HERE}.bandit:Bandit", "tries what may be best, in proportion to its promise"
    )
    yield Component(
        "optimistic",
        f"{HERE}.optimistic:Optimistic",
        "learns what choices lead to, tries what is unknown, and plans",
    )
    yield Component(
        "fitted-q", f"{HERE}.fitted_q:FittedQ", "learns values and plans from every episode"
    )
    yield Component(
        "auto", f"{HERE}.auto:Auto", "picks a trainer by what some episodes show, and says why"
    )
