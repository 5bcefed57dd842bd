"""The task `inspect`: an evaluation of Inspect, whose solver is the team."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from attrs import field, frozen

from orchestrion import Meta, Model, OpenContext, SplitShares, Task


@frozen
class Inspect:
    """An evaluation of Inspect: its samples are the problems, its scorers judge the team's answer.

    The evaluation's own solver writes the question, and may read the answer (as `multiple_choice`
    does); the last completed turn replaces the model's answer. A solver that asks models or tools
    itself is left out, and the question is the sample's input. A solver that asks a second time
    fails the episode, because a team answers once.

    The first scorer counts; the scores of the others are parts. A problem is solved if its score is
    1. A score that a scorer withholds is 0, and named in the parts.

    Args:
        evaluation: `module:function` that returns an Inspect task, installed or in the folder of
            the command; or the name of a task that an installed package registers, such as
            `inspect_evals/gsm8k`.
        args: arguments of the evaluation.
        limit: the number of first samples to use.
        split: how samples are divided; equal inputs stay together.
        model: the grader, for scorers that ask a model; it is called for every verdict.
    """

    evaluation: str
    args: dict[str, Any] = field(factory=dict)
    limit: Annotated[int, Meta(ge=1)] | None = None
    split: SplitShares = SplitShares()
    model: Model | None = None

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[Task]:
        """Load the evaluation and yield the task.

        Raises:
            UsageError: there is no such evaluation, or it needs a sandbox, pictures, or a grader
                that is not set.
        """
        from orchestrion_inspect.running import RunningInspect

        yield await RunningInspect.loaded(self, ctx.path)
