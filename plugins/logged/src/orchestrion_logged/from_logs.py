"""The trainer `from-logs`: settings."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated

from attrs import frozen

from orchestrion import Meta, OpenContext, Trainer


@frozen
class FromLogs:
    """Trains the policy `values` on a log of decisions, without playing episodes.

    The team must have all choices that the log names. A choice with too few logged decisions is
    never taken; of the others, the policy takes the one with the best cautious estimate.

    Args:
        log: the file, in the format of `docs/logs.md`.
        cost_weight: of cost against score. By default the log's rewards are used, or its scores if
            it has no rewards.
        least: the minimum of logged decisions of a choice that may be taken.
        caution: values are compared after subtracting so many standard errors.
        clip: the maximum weight (1 / propensity) of a logged decision in corrections of the model.
    """

    log: Path
    cost_weight: Annotated[float, Meta(ge=0)] | None = None
    least: Annotated[int, Meta(ge=1)] = 10
    caution: Annotated[float, Meta(ge=0)] = 1.0
    clip: Annotated[float, Meta(ge=1)] = 20.0

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[Trainer]:
        """Yield the trainer."""
        from orchestrion_logged.learning import Learning

        yield Learning(self)
