"""What this distribution supplies."""

from __future__ import annotations

from collections.abc import Iterable

from orchestrion import Component, hookimpl

PACKAGE = "orchestrion_orchestration_bench"


@hookimpl
def orchestrion_tasks() -> Iterable[Component]:
    yield Component("relay", f"{PACKAGE}.relay:Relay", "skills with prerequisites, fully observed")
    yield Component(
        "stop", f"{PACKAGE}.stop:Stop", "solve, verify, escalate, then submit or abstain"
    )
    yield Component(
        "committee", f"{PACKAGE}.committee:Committee", "build a voting graph slot by slot"
    )


@hookimpl
def orchestrion_agents() -> Iterable[Component]:
    yield Component(
        "bench-agent",
        f"{PACKAGE}.agents:BenchAgent",
        "plays one row of a relay or stop table",
        example={"plays": "planner"},
        around={"task": {"use": "relay"}},
    )
    yield Component(
        "committee-agent",
        f"{PACKAGE}.agents:CommitteeAgent",
        "places one type of member in a committee",
        example={"plays": "coder"},
        around={"task": {"use": "committee"}},
    )
