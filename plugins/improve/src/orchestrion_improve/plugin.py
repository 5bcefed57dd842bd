"""Register the improvers, their trainer and their doubles."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrion import Component, hookimpl

HERE = "orchestrion_improve"
ORCHESTRION_REMOVED = {
    f"trainer {name}": f"{name} is an improver: write `trainer: {{use: improve, improver: "
    f"{{use: {name}, ...}}}}`, with `iterations` and the other settings of `improve` beside `use`"
    for name in ("behaviours", "gepa")
}
_PROBLEMS = {"use": "practice", "train": 8, "validation": 24, "test": 4}
_AROUND = {
    "task": _PROBLEMS,
    "agents": {"a": {"use": "pupil", "effects": {"take care": {"any": 0.4}}}},
    "models": {
        "coach": {
            "use": "practice-coach",
            "habits": [{"habit": "take care", "category": "any"}],
            "lessons": {"sums": "take care"},
        }
    },
}
_HABITS = {"model": "coach", "pairs": 24, "elsewhere": 8}
_TEXTS = {"model": "coach", "evaluations": 40, "pairs": 24, "instances": 6}


@hookimpl
def orchestrion_components() -> Iterator[tuple[str, Component]]:
    around = {**_AROUND, "trainer": {"use": "grpo-beam", "improver": "tested", "turns": 2}}
    yield (
        "improver",
        Component(
            "behaviours",
            f"{HERE}.behaviours:Behaviours",
            "habits from the best and the worst episodes, kept if they help",
            example=_HABITS,
            around=around,
        ),
    )
    yield (
        "improver",
        Component(
            "gepa",
            f"{HERE}.gepa:Gepa",
            "instructions evolved by reflection, with a front by instance",
            example=_TEXTS,
            around=around,
        ),
    )


@hookimpl
def orchestrion_trainers() -> Iterator[Component]:
    yield Component(
        "improve",
        f"{HERE}.trainer:Improve",
        "lets an improver learn from episodes of the team's own policy",
        example={
            "improver": {"use": "behaviours", **_HABITS},
            "iterations": 1,
            "problems": 4,
            "samples": 2,
        },
        around={**_AROUND, "policy": {"use": "kit-policy"}},
    )


@hookimpl
def orchestrion_tasks() -> Iterator[Component]:
    yield Component("practice", f"{HERE}.practice:Practice", "sums and differences for pupils")


@hookimpl
def orchestrion_agents() -> Iterator[Component]:
    yield Component(
        "pupil",
        f"{HERE}.practice:Pupil",
        "is right at a known rate, which instructions and habits change by a known amount",
        around={"task": _PROBLEMS},
    )


@hookimpl
def orchestrion_models() -> Iterator[Component]:
    yield Component(
        "practice-coach",
        f"{HERE}.practice:PracticeCoach",
        "proposes the habits and lessons of its settings",
        example={"habits": [{"habit": "take care"}], "lessons": {"sums": "take care"}},
    )
