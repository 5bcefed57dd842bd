"""The trainer `from-logs`: settings."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated

from attrs import frozen

from orchestrion import Meta, OpenContext, Trainer

__all__ = ["FromLogs"]


@frozen
class FromLogs:
    """Learns from a log of decisions what each choice is worth; runs no episode.

    It trains the policy `values`. The choices that the log names must be those of the team. A
    choice that the log tells too little of is never taken, and of the others the one that is worth
    most by a cautious estimate: exploring was the logging policy's job.

    Args:
        log: the file, in the format of `docs/logs.md`.
        cost_weight: of cost against score. By default a log's rewards are learned from, or, where
            it has scores alone, the scores.
        least: decisions without which a choice is not taken.
        caution: by how many standard errors a value is marked down before values are compared.
        clip: the largest weight (one over the propensity) a logged decision gets when errors of
            the model are corrected by it.
    """

    log: Path
    cost_weight: Annotated[float, Meta(ge=0)] | None = None
    least: Annotated[int, Meta(ge=1)] = 10
    caution: Annotated[float, Meta(ge=0)] = 1.0
    clip: Annotated[float, Meta(ge=1)] = 20.0

    @property
    def iterations(self) -> int:
        """One."""
        return 1

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[Trainer]:
        """Prepare to read the log."""
        from orchestrion_logged.learning import Learning

        yield Learning(self)
