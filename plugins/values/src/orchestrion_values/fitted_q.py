"""The trainer `fitted-q`: settings."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Annotated, ClassVar

from attrs import Factory, frozen

from orchestrion import JSON, Meta, OpenContext, Trainer

__all__ = ["FittedQ", "batches"]


@frozen
class FittedQ:
    """Teaches the policy `values` what each choice is worth, from every episode it has seen.

    The first episodes try choices at random and end at a random length. Then an ensemble of value
    functions is fitted on all episodes so far. Some of the further episodes go by one member of it,
    so that what is little known is tried, stopping no more than the rest; the others follow fixed
    sequences that may be the best. In the end the policy goes by the mean, or follows a sequence,
    whichever did better. See `orchestrion_values.fitted` and `plans` for the arithmetic.

    Args:
        episodes: training episodes of the whole run.
        members: of the ensemble, besides the mean.
        trees: in the regression of what a linear value leaves over; 0 for none.
        caution: how many deviations of the ensemble a value is lowered by in use.
        plans: the share of episodes, after the first and before the last 30 %, that follow fixed
            sequences, up to 200 in all; 0 for no sequences at all.
        runs: folders or names of other runs of the same choices, whose stored training episodes
            are learned from too, whatever policy they went by.
    """

    episodes: Annotated[int, Meta(ge=1)] = 300
    members: Annotated[int, Meta(ge=1, le=256)] = 16
    trees: Annotated[int, Meta(ge=0, le=1000)] = 40
    caution: Annotated[float, Meta(ge=0)] = 0.0
    plans: Annotated[float, Meta(ge=0, le=1)] = 0.8
    runs: list[str] = Factory(list)

    smoke: ClassVar[Mapping[str, JSON]] = {"episodes": 12}

    @property
    def iterations(self) -> int:
        """Of growing size; see `sizes.batches`."""
        return len(batches(self.episodes))

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[Trainer]:
        """The trainer at work."""
        from orchestrion_values.fitted_learner import FittedLearner

        yield FittedLearner(self, ctx)


FIRST, GROWTH, LEAST = 6, 0.15, 8


def batches(episodes: int) -> list[int]:
    """Sizes of the iterations: a first batch, then each a share of what was seen before."""
    sizes = [max(1, min(64, episodes // FIRST))]
    while (left := episodes - sum(sizes)) > 0:
        size = max(LEAST, int(GROWTH * sum(sizes)))
        sizes.append(left if left < 2 * LEAST or left < size else size)
    return sizes
