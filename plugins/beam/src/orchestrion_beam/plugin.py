"""Register the trainer, the values and the kinds of this distribution."""

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
        "searches the team's trajectories side by side, and learns from the best",
        example={"rounds": 2, "problems": 2, "beam_width": 2, "samples": 2, "turns": 2},
    )


@hookimpl
def orchestrion_components() -> Iterator[tuple[str, Component]]:
    for name, cls, summary, example in (
        ("task", "TaskValue", "the task's partial score", {}),
        ("noise", "Noise", "a random number, to compare with", {}),
        (
            "combined",
            "Combined",
            "the weighted mean of several",
            {"parts": [{"use": "task"}, {"use": "noise"}], "weights": [3, 1]},
        ),
    ):
        path = f"{HERE}.values:{cls}"
        yield "value", Component(name, path, summary, example=example, around=_AROUND)
