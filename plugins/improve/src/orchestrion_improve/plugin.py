"""What this distribution supplies."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrion import Component, hookimpl

HERE = "orchestrion_improve"
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
_ROUNDS = {"iterations": 1, "problems": 4, "samples": 2}
_HABITS = {"model": "coach", "pairs": 24, "elsewhere": 8}
_TEXTS = {"model": "coach", "evaluations": 40, "pairs": 24, "instances": 6}
_SUMMARY = {
    "behaviours": "habits from the best and the worst episodes, kept if they help",
    "gepa": "instructions evolved by reflection, with a front by instance",
}


@hookimpl
def orchestrion_components() -> Iterator[tuple[str, Component]]:
    for name, cls, example in (
        ("behaviours", "behaviours:Behaviours", _HABITS),
        ("gepa", "gepa:Gepa", _TEXTS),
    ):
        trainer = {"use": "grpo-beam", "improver": "tested", "turns": 2}
        around = {**_AROUND, "trainer": trainer}
        yield (
            "improver",
            Component(name, f"{HERE}.{cls}", _SUMMARY[name], example=example, around=around),
        )


@hookimpl
def orchestrion_trainers() -> Iterator[Component]:
    for name, cls, example in (
        ("behaviours", "behaviours:BehavioursTrainer", _HABITS),
        ("gepa", "gepa:GepaTrainer", _TEXTS),
    ):
        yield Component(
            name,
            f"{HERE}.{cls}",
            f"{_SUMMARY[name]}; with the team's own policy",
            example={**_ROUNDS, **example},
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
        "is right at a known rate, which what it is told changes by a known amount",
        around={"task": _PROBLEMS},
    )


@hookimpl
def orchestrion_models() -> Iterator[Component]:
    yield Component(
        "practice-coach",
        f"{HERE}.practice:PracticeCoach",
        "proposes the habits and lessons that it is given",
        example={"habits": [{"habit": "take care"}], "lessons": {"sums": "take care"}},
    )
