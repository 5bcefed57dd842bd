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

    The evaluation's own solver writes the question, and reads the answer where it does (as
    `multiple_choice` does); what a model would have said in between is the last completed turn. A
    solver that asks models or tools itself is left out, and the question is the sample's input. One
    that asks a second time fails the episode: a team answers once.

    The first scorer counts; what the others say is in the scores' parts. Solved is a score of 1. A
    score that a scorer withholds is 0, and named in the parts.

    Args:
        evaluation: `module:function` that returns an Inspect task, installed or in the folder of
            the command; or the name of a task that an installed package registers, such as
            `inspect_evals/gsm8k`.
        args: what the evaluation is called with.
        limit: use only so many samples, the first ones.
        split: how samples are divided; equal inputs stay together.
        model: who grades, for scorers that ask a model; it is asked for every verdict.
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
            UsageError: there is no such evaluation, or it needs what a team's answer cannot have:
                a sandbox, pictures, or a grader that is not given.
        """
        from orchestrion_inspect.running import RunningInspect

        yield await RunningInspect.loaded(self, ctx.path)
