"""The reward `llm-judge`: a model judges by a rubric; an unreadable judgement gives no reward."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Literal

from attrs import frozen

from orchestrion import Calls, Episode, OpenContext, Reward, RewardFunction, Usage
from orchestrion_judge.judging import Judge, Judging
from orchestrion_judge.prompt import unjudged


@frozen(kw_only=True)
class LlmJudge(Judging):
    """A model's judgement by a rubric, 0 to 1.

    An answer that cannot be read is requested again; if that fails too, the reward is missing. An
    episode that was not completed, or has no content, gets 0 without a judgement.

    Args:
        unfinished: the reward of a stopped episode: 0, or the judgement.
    """

    unfinished: Literal["zero", "judge"] = "zero"

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[JudgeReward]:
        """Read the rubric and yield the reward."""
        yield JudgeReward(self, self.judge(ctx.key))


@frozen
class JudgeReward(RewardFunction):
    """An opened `LlmJudge`."""

    settings: LlmJudge
    judge: Judge

    async def score(self, episode: Episode, calls: Calls) -> Reward | None:
        """Return the judgement; None if the judge's answers cannot be read.

        Raises:
            CallError: a call failed.
        """
        settings = self.settings
        work = settings.shown(episode.problem, episode.trajectory, episode.observation)
        if (reward := unjudged(episode, work, settings.unfinished)) is not None:
            return reward
        judgement = await self.judge.judge(work, calls)
        if judgement.value is None:
            return None
        parts = {
            "judge": judgement.value,
            **{f"judge.score.{name}": score for name, score in judgement.scores.items()},
            "judge.length": float(work.length),
            "judge.spread": judgement.spread,
            "judge.again": float(judgement.again),
            "judge.unusable": float(len(judgement.problems)),
        }
        if len(judgement.by_order) == 2:
            parts["judge.given"], parts["judge.reversed"] = judgement.by_order
        return Reward(judgement.value, parts=parts)

    def ceiling(self, tokens: int) -> Usage | None:
        return self.judge.ceiling(tokens)
