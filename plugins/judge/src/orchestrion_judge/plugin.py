"""What this distribution supplies."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from orchestrion import Component, hookimpl

if TYPE_CHECKING:
    from pathlib import Path

HERE = "orchestrion_judge"
_MODEL = {"models": {"judge": {"use": "kit-model"}}}
_SEARCH = {"use": "grpo-beam", "value": "tested", "turns": 2, "held_out": 0}


@hookimpl
def orchestrion_rewards() -> Iterator[Component]:
    yield Component(
        "llm-judge",
        f"{HERE}.llm_judge:LlmJudge",
        "a model's judgement by a rubric, read strictly, missing if it cannot be read",
        example={"model": "judge"},
        around=_MODEL,
    )
    yield Component(
        "hybrid",
        f"{HERE}.hybrid:Hybrid",
        "a cheap score for every episode, a judgement for those that deserve one",
        example={"judge": {"use": "kit-reward"}},
    )
    yield Component(
        "human",
        f"{HERE}.human:Human",
        "a person's judgement, asked on the terminal or by questions that wait",
        example={"ask": "queue", "pending": "missing"},
    )


@hookimpl
def orchestrion_components() -> Iterator[tuple[str, Component]]:
    yield (
        "value",
        Component(
            "judge",
            f"{HERE}.value:JudgeValue",
            "what a model expects of an unfinished trajectory, by a rubric",
            example={"model": "judge"},
            around={**_MODEL, "trainer": _SEARCH},
        ),
    )


@hookimpl(specname="orchestrion_run_finished")
def leave_report(directory: Path | None, status: str) -> None:
    """Leave what the run's judgements are worth in its exports."""
    from orchestrion_judge.report import write_report

    if directory is not None:
        write_report(directory)
