"""The values `judge` and `reward`: estimates for unfinished trajectories in a beam search."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from attrs import frozen
from orchestrion_beam.interfaces import Valued, ValueEstimator

from orchestrion import (
    Branch,
    Episode,
    Key,
    OpenContext,
    RewardFunction,
    RunError,
    Session,
    Usage,
    ceiling_of,
)
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

    @property
    def label(self) -> str:
        return "judge"

    @property
    def scores(self) -> int:
        return 0  # it needs no score of the verifier

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


@frozen(kw_only=True)
class RewardValue(ValueEstimator):
    """The reward that a trajectory would get if it ended here, by its partial score.

    So a cheap reward can lead the search while the run's own, e.g. `llm-judge`, decides at the end.

    Args:
        reward: gives values from 0 to 1.
    """

    reward: RewardFunction

    @property
    def label(self) -> str:
        return "reward"

    async def estimate(self, branch: Branch, session: Session, key: Key) -> Valued:
        """Return the reward; raise `RunError` if it is not from 0 to 1."""
        episode = Episode(
            f"value/{key.hex()}",
            branch.problem.public(),
            branch.trajectory,
            scores=await session.score(branch),
            observation=branch.step.observation,
        )
        reward = await self.reward.score(episode, session.calls(key))
        if reward is None:
            return Valued(None)
        if not 0 <= reward.total <= 1:
            kind = type(self.reward).__name__
            raise RunError(
                f"{kind} gave a trajectory {reward.total:g}; a value is from 0 to 1, so use a "
                "reward without bonuses and costs"
            )
        return Valued(reward.total)

    def ceiling(self, tokens: int) -> Usage | None:
        """Return a bound of one estimate, beside the verifier's partial score."""
        return ceiling_of(self.reward, tokens)
