"""What this distribution supplies."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrion import Component, Kind, hookimpl

HERE = "orchestrion_beam"
_AROUND = {"trainer": {"use": "grpo-beam", "value": "tested", "turns": 2, "held_out": 0}}


@hookimpl
def orchestrion_kinds() -> Iterator[Kind]:
    yield Kind("value", "values", f"{HERE}.interfaces:ValueEstimator")
    yield Kind("improver", "improvers", f"{HERE}.interfaces:Improver")


@hookimpl
def orchestrion_trainers() -> Iterator[Component]:
    yield Component(
        "grpo-beam",
        f"{HERE}.trainer:GrpoBeam",
        "searches the team's trajectories side by side, and learns from what wins",
        example={"rounds": 2, "problems": 2, "beam_width": 2, "samples": 2, "turns": 2},
    )


@hookimpl
def orchestrion_components() -> Iterator[tuple[str, Component]]:
    yield (
        "value",
        Component("task", f"{HERE}.values:TaskValue", "the task's partial score", around=_AROUND),
    )
    yield (
        "value",
        Component("noise", f"{HERE}.values:Noise", "says nothing: to compare with", around=_AROUND),
    )
    yield (
        "value",
        Component(
            "combined",
            f"{HERE}.values:Combined",
            "the weighted mean of several",
            example={"parts": [{"use": "task"}, {"use": "noise"}], "weights": [3, 1]},
            around=_AROUND,
        ),
    )
