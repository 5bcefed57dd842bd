"""The value `judge`: estimates of unfinished trajectories in a beam search."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from attrs import frozen
from orchestrion_beam.interfaces import Valued, ValueEstimator

from orchestrion import Branch, Key, OpenContext, Session, Usage
from orchestrion_judge.judging import Judge, Judging
from orchestrion_judge.prompt import Show


@frozen(kw_only=True)
class JudgeValue(Judging):
    """A model's judgement of an unfinished trajectory's prospects, 0 to 1, by a rubric.

    A trajectory without content has no value, and neither has one whose judgement cannot be read.
    """

    show: Show = "transcript"

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[OpenedValue]:
        """Read the rubric and yield the estimator."""
        yield OpenedValue(self, self.judge(ctx.key, unfinished=True))


@frozen
class OpenedValue(ValueEstimator):
    """An opened `JudgeValue`."""

    settings: JudgeValue
    judge: Judge

    label = "judge"
    scores = 0  # it needs no score of the verifier

    async def estimate(self, branch: Branch, session: Session, key: Key) -> Valued:
        work = self.settings.shown(
            branch.problem.public(), branch.trajectory, branch.step.observation
        )
        if not work.length:
            return Valued(None)
        judgement = await self.judge.judge(work, session.calls(key))
        return Valued(judgement.value, judgement.usage)

    def ceiling(self, tokens: int) -> Usage | None:
        return self.judge.ceiling(tokens)
