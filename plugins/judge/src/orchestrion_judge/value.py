"""A judge as an estimator of what unfinished trajectories are worth, for beam search."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from attrs import frozen
from orchestrion_beam.interfaces import Valued, ValueEstimator

from orchestrion import Branch, Key, OpenContext, Session, Usage
from orchestrion_judge.judging import Judge
from orchestrion_judge.llm_judge import Judging
from orchestrion_judge.showing import Show

__all__ = ["JudgeValue"]


@frozen(kw_only=True)
class JudgeValue(Judging):
    """What a model expects of a trajectory that is not finished yet, 0 to 1, by a rubric.

    A trajectory in which nothing was said yet is not judged, and neither it nor one whose
    judgement cannot be read has a value.
    """

    show: Show = "transcript"

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[OpenedValue]:
        """Read the rubric."""
        yield OpenedValue(self, self.judge(ctx.key, unfinished=True))


@frozen
class OpenedValue(ValueEstimator):
    """An opened `JudgeValue`."""

    settings: JudgeValue
    judge: Judge

    @property
    def label(self) -> str:
        """Its name."""
        return "judge"

    @property
    def scores(self) -> int:
        """None: it looks for itself."""
        return 0

    async def estimate(self, branch: Branch, session: Session, key: Key) -> Valued:
        """See `ValueEstimator.estimate`; calls are the session's, under `key`."""
        work = self.settings.shown(
            branch.problem.public(), branch.trajectory, branch.step.observation
        )
        if not work.length:
            return Valued(None)
        judgement = await self.judge.judge(work, session.calls(key))
        return Valued(judgement.value, judgement.usage)

    def ceiling(self, tokens: int) -> Usage | None:
        """The most one estimate takes."""
        return self.settings.ceiling(tokens)
