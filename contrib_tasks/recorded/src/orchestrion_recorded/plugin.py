"""What this distribution supplies."""

from __future__ import annotations

from collections.abc import Iterable

from orchestrion import Component, hookimpl

HERE = "orchestrion_recorded"
_SMALL = {"use": "recorded", "generated": {"questions": 40, "models": 3, "groups": 2}}
_TEAM = {"task": _SMALL, "agents": {"ask": {"use": "recorded", "models": ["m1", "m2", "m3"]}}}


@hookimpl
def orchestrion_tasks() -> Iterable[Component]:
    yield Component(
        "recorded",
        f"{HERE}.task:RecordedTask",
        "ask models whose answers are recorded; the vote over what was seen is the result",
        example={"generated": _SMALL["generated"]},
    )


@hookimpl
def orchestrion_agents() -> Iterable[Component]:
    yield Component(
        "recorded",
        f"{HERE}.agent:RecordedAgent",
        "asks one of the models of a table of recorded answers",
        example={"models": ["m1", "m2", "m3"]},
        around={"task": _SMALL},
    )


@hookimpl
def orchestrion_policies() -> Iterable[Component]:
    yield Component(
        "cascade",
        f"{HERE}.cascade:Cascade",
        "asks some, stops if enough of them agree, else asks one more",
        example={"first": ["a"], "agree": 1, "then": "b:x"},
    )
    yield Component(
        "inquiry",
        f"{HERE}.inquiry:Inquiry",
        "asks one after the other by a plan that goes by who agrees with whom",
    )


@hookimpl
def orchestrion_trainers() -> Iterable[Component]:
    yield Component(
        "best-cascade",
        f"{HERE}.cascade:BestCascade",
        "finds the best cascade or fixed set by exhaustive search over the training questions",
        example={"task": "task", "reward": "reward"},
        around={**_TEAM, "policy": {"use": "cascade"}},
    )
    yield Component(
        "best-inquiry",
        f"{HERE}.inquiry:BestInquiry",
        "finds the plans of an inquiry, by category, from the training questions",
        example={"task": "task", "reward": "reward", "models": 2},
        around={**_TEAM, "policy": {"use": "inquiry"}},
    )
