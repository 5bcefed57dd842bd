"""What this distribution supplies."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrion import Component, hookimpl

HERE = "orchestrion_reinforce"
ORCHESTRION_REMOVED = {
    f"policy neural.{setting}": f"this setting is gone; write `encoders: [{{use: {encoder}}}, ...]`"
    for setting, encoder in (("text", "text"), ("roles", "members"), ("cost_unit", "counts"))
}


@hookimpl
def orchestrion_policies() -> Iterator[Component]:
    yield Component("neural", f"{HERE}.neural:Neural", "a neural network over what happened so far")


@hookimpl
def orchestrion_trainers() -> Iterator[Component]:
    yield Component(
        "reinforce",
        f"{HERE}.reinforce:Reinforce",
        "policy gradients: REINFORCE with baselines, up to PPO",
    )
