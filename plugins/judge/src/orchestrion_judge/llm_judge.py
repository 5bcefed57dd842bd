"""A language model as a reward: a rubric, strict scores, and no default."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

from attrs import Attribute, field, frozen

from orchestrion import (
    Calls,
    Episode,
    Key,
    Meta,
    Model,
    OpenContext,
    Reward,
    RewardFunction,
    Usage,
)
from orchestrion.bounds import unsupported_by
from orchestrion_judge.judging import Combine, Judge, Judgement, Orders
from orchestrion_judge.rubric import Rubric, ShippedRubric, read_rubric, shipped
from orchestrion_judge.showing import Showing, unjudged

__all__ = ["JudgeReward", "Judging", "LlmJudge", "parts_of"]

_FENCE = 2 * (64 + 80)
"""Bytes of the two lines around a turn, at most, for agents with names of 80 bytes or less."""


@frozen(kw_only=True)
class Judging(Showing):
    """Settings of everything that lets a model judge.

    Args:
        model: who judges; better not a model that takes part.
        rubric: a shipped one, or one written here.
        rubric_file: one in a file, instead.
        samples: judgements of one piece of work, each drawn anew.
        combine: what is made of them.
        orders: whether everything is judged again in the reverse order. That doubles the calls,
            cancels what position does, and reports it.
        needed: how many samples of an order must be usable; all by default.
        retries: how often an answer that cannot be read is asked for again.
        temperature: the model's own by default.
        structured: give the model a schema of the answer; turn it off where it takes none.
    """

    model: Model
    rubric: ShippedRubric | Rubric = "answer"
    rubric_file: Path | None = None
    samples: Annotated[int, Meta(ge=1, le=100)] = 1
    combine: Combine = "median"
    orders: Orders = "given"
    needed: Annotated[int, Meta(ge=1)] | None = field(default=None)
    retries: Annotated[int, Meta(ge=0, le=5)] = 1
    temperature: Annotated[float, Meta(ge=0)] | None = None
    structured: bool = field(default=True)

    @structured.validator
    def _check_structured(self, attribute: Attribute[Any], value: bool) -> None:
        if value and "schema" in unsupported_by(self.model):
            raise ValueError("this model cannot be held to a schema; set `structured: false`")

    @needed.validator
    def _check_needed(self, attribute: Attribute[Any], value: int | None) -> None:
        if value is not None and value > self.samples:
            raise ValueError(f"needed is {value}, but there are {self.samples} samples")

    @property
    def criteria(self) -> Rubric:
        """The rubric.

        Raises:
            UsageError: its file cannot be read, or something in it is wrong.
        """
        if self.rubric_file is not None:
            return read_rubric(self.rubric_file)
        return self.rubric if isinstance(self.rubric, Rubric) else shipped(self.rubric)

    def judge(self, key: Key, unfinished: bool = False) -> Judge:
        """What does the judging, with randomness of its own."""
        sampling = {} if self.temperature is None else {"temperature": self.temperature}
        return Judge(
            self.model,
            self.criteria,
            key,
            self.samples,
            self.combine,
            self.orders,
            self.needed or self.samples,
            self.retries,
            sampling,
            self.structured,
            unfinished,
        )

    def ceiling(self, tokens: int) -> Usage | None:
        """The most one judgement takes of work and problem with so many tokens."""
        # A reference is part of the problem's data, which `tokens` need not cover.
        fences = self.last_turns * _FENCE if self.show == "transcript" else 0
        return None if self.reference else self.judge(Key()).ceiling(tokens + fences)


@frozen(kw_only=True)
class LlmJudge(Judging):
    """A model's judgement by a rubric, 0 to 1.

    What cannot be read is asked for again, and is missing if that does not help. An episode that
    was not completed, or said nothing, has 0 and is not judged.

    Args:
        unfinished: what a run that was stopped is worth: 0, or what the judge says.
    """

    unfinished: Literal["zero", "judge"] = "zero"

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[JudgeReward]:
        """Read the rubric."""
        yield JudgeReward(self, self.judge(ctx.key))


@frozen
class JudgeReward(RewardFunction):
    """An opened `LlmJudge`."""

    settings: LlmJudge
    judge: Judge

    async def score(self, episode: Episode, calls: Calls) -> Reward | None:
        """The judgement; missing where the judge's answers cannot be read.

        Raises:
            CallError: the model could not be asked.
        """
        settings = self.settings
        work = settings.shown(episode.problem, episode.trajectory, episode.observation)
        if (reward := unjudged(episode, work, settings.unfinished)) is not None:
            return reward
        judgement = await self.judge.judge(work, calls)
        if judgement.value is None:
            return None
        return Reward(judgement.value, parts=parts_of(judgement, work.length))

    def ceiling(self, tokens: int) -> Usage | None:
        """See `Judging.ceiling`."""
        return self.settings.ceiling(tokens)


def parts_of(judgement: Judgement, length: int) -> dict[str, float]:
    """A judgement that has a value as parts of a reward."""
    assert judgement.value is not None
    parts = {
        "judge": judgement.value,
        **{f"judge.score.{name}": score for name, score in judgement.scores.items()},
        "judge.length": float(length),
        "judge.spread": judgement.spread,
        "judge.again": float(judgement.again),
        "judge.unusable": float(len(judgement.problems)),
    }
    if len(judgement.by_order) == 2:
        parts["judge.given"], parts["judge.reversed"] = judgement.by_order
    return parts
