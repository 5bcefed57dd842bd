"""What this distribution supplies."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrion import Component, hookimpl

HERE = "orchestrion_gymnasium"
_LAKE = {
    "environment": "FrozenLake-v1",
    "returns": {"worst": 0, "best": 1},
    "horizon": 6,
    "episodes": {"train": 4, "validation": 2, "test": 2},
}
_TASK = {"task": {"use": "gymnasium", **_LAKE}}


@hookimpl
def orchestrion_tasks() -> Iterator[Component]:
    yield Component(
        "gymnasium",
        f"{HERE}.task:Gymnasium",
        "an environment of Gymnasium, in which a policy chooses which controller acts",
        example=_LAKE,
    )


@hookimpl
def orchestrion_agents() -> Iterator[Component]:
    yield Component(
        "gym-constant",
        f"{HERE}.controllers:Constant",
        "always the same action, or one of several that the policy chooses",
        example={"actions": {"left": 0, "right": 2}},
        around=_TASK,
    )
    yield Component(
        "gym-random",
        f"{HERE}.controllers:RandomController",
        "a random action",
        around=_TASK,
    )
    yield Component(
        "gym-function",
        f"{HERE}.controllers:FunctionController",
        "the action that a function of yours returns for the observation",
        example={"function": "operator:index"},
        around=_TASK,
    )
