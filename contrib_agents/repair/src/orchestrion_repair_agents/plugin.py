"""What this distribution supplies."""

from __future__ import annotations

from collections.abc import Iterable

from orchestrion import Component, hookimpl


@hookimpl
def orchestrion_agents() -> Iterable[Component]:
    """Tools that repair programs."""
    home = "orchestrion_repair_agents"
    yield Component(
        "run-tests",
        f"{home}.run_tests:RunTests",
        "runs the visible tests: which fail, how, and which lines they cover",
    )
    yield Component(
        "mutate",
        f"{home}.mutate:Mutate",
        "tries edits of some families on the most suspicious line, the next few, or the rest",
    )
    yield Component(
        "lint", f"{home}.lint:Lint", "names lines that look odd, and can normalise the layout"
    )
