"""The trainer `fitted-q`: settings."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Annotated, ClassVar

from attrs import Factory, frozen

from orchestrion import JSON, Meta, OpenContext, Trainer


@frozen
class FittedQ:
    """Trains the policy `values` by fitted Q iteration on all episodes so far.

    The first episodes make random choices and have random lengths. Then an ensemble of value
    functions is fitted on all episodes, and a model of transcripts: who was called, and what was
    replied. Some of the further episodes follow one member of the ensemble, which explores what is
    little known; the others follow the best plan of a drawn model. In the end the policy uses the
    mean of the ensemble or the plan, whichever did better. See `orchestrion_values.fitted` and
    `transcripts` for the arithmetic.

    Args:
        episodes: training episodes of the whole run.
        members: size of the ensemble, besides the mean.
        trees: number of trees on the residuals of the linear values; 0 for none.
        caution: in use, values are lowered by so many standard deviations of the ensemble.
        plans: the share of episodes, after the first and before the last 30 % (300 at most), that
            follow plans; 0 for no plans. All of them do where the task shows nothing that values
            could be told apart by.
        runs: folders or names of other runs with the same choices; their stored training episodes
            are learned from too, whatever their policy was.
    """

    episodes: Annotated[int, Meta(ge=1)] = 300
    members: Annotated[int, Meta(ge=1, le=256)] = 16
    trees: Annotated[int, Meta(ge=0, le=1000)] = 40
    caution: Annotated[float, Meta(ge=0)] = 0.0
    plans: Annotated[float, Meta(ge=0, le=1)] = 0.8
    runs: list[str] = Factory(list)

    smoke: ClassVar[Mapping[str, JSON]] = {"episodes": 12}

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[Trainer]:
        from orchestrion_values.fitted_learner import FittedLearner

        yield FittedLearner(self, ctx)


FIRST, GROWTH, LEAST = 6, 0.15, 8


def batches(episodes: int, last: int = 0) -> list[int]:
    """Return sizes of iterations: a first batch, then shares of the episodes before.

    Args:
        episodes: in all.
        last: how many begin with an iteration of their own.
    """
    sizes = [max(1, min(64, episodes // FIRST))]
    while (left := episodes - sum(sizes)) > 0:
        size = max(LEAST, int(GROWTH * sum(sizes)))
        size = left if left < 2 * LEAST or left < size else size
        sizes.append(left - last if 0 < left - last < size else size)
    return sizes
