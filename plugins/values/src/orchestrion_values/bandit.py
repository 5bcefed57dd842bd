"""The trainer `bandit`: settings."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from attrs import frozen

from orchestrion import JSON, Meta, OpenContext, Trainer

__all__ = ["Bandit", "batches", "sizes"]

FIRST, GROWTH, LEAST, LARGEST = 16, 0.15, 8, 4096
PHASES = 20


@frozen
class Bandit:
    """Teaches the policy `values` what comes of each choice, by trying what may be best.

    For one choice an episode, such as which model to ask, and for short cascades, such as whom to
    ask next and when to stop: what comes after a choice until the end is taken as its worth, so
    nothing is planned. See `orchestrion_values.tries` for the arithmetic.

    An episode that failed, or whose reward is missing, counts as a try with the lowest reward seen:
    a choice that never reports is tried less and less.

    Args:
        episodes: training episodes of the whole run.
        algorithm: how the next choice is found: by chance, as likely as it is the best
            (`thompson`); by its upper bound (`linucb`); or all alike, the worst one dropped after
            each of as many phases as there are choices (`rejects`), for few choices.
        feedback: `played`: each episode meets another problem; `full`: each choice is played first
            on every problem in turn, where episodes cost nothing, as with recorded answers.
        width: how many deviations of what is believed exploring goes by.
        text: learn from the words of problems as well.
        category: what is known of a problem's category: what the task shows, what the problem's
            words let guess (with `text`), or nothing.
        neighbours: with `text`, how many of the most similar problems give half of a value.
        start: statistics of earlier runs, as exported (JSON), to begin with.
        cap: how many tries of a choice those count for at most.
    """

    episodes: Annotated[int, Meta(ge=1)] = 300
    algorithm: Literal["thompson", "linucb", "rejects"] = "thompson"
    feedback: Literal["played", "full"] = "played"
    width: Annotated[float, Meta(ge=0)] = 1.0
    text: bool = False
    category: Literal["shown", "guessed", "hidden"] = "shown"
    neighbours: Annotated[int, Meta(ge=0)] = 100
    start: Path | None = None
    cap: Annotated[float, Meta(gt=0)] = 50.0

    smoke: ClassVar[Mapping[str, JSON]] = {"episodes": 12}

    def __attrs_post_init__(self) -> None:
        if self.category == "guessed" and not self.text:
            raise ValueError("category: guessed has no effect without text; set text: true")

    @property
    def iterations(self) -> int:
        """Of growing size; one with full feedback."""
        return len(sizes(self))

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[Trainer]:
        """The trainer at work."""
        from orchestrion_values.bandit_learner import BanditLearner

        yield BanditLearner(self, ctx)


def batches(episodes: int, algorithm: str = "thompson") -> list[int]:
    """Sizes of the iterations: small at first, then each a share of what was seen before.

    Successive rejects drops choices between iterations, which are of one size therefore.
    """
    sizes: list[int] = []
    if algorithm == "rejects":
        each = -(-episodes // PHASES)
        return [min(each, episodes - done) for done in range(0, episodes, each)]
    while (left := episodes - sum(sizes)) > 0:
        size = min(max(LEAST, int(GROWTH * sum(sizes))) if sizes else FIRST, LARGEST)
        sizes.append(left if left < size + LEAST else size)
    return sizes


def sizes(settings: Bandit) -> list[int]:
    """Episodes of each iteration. With full feedback nothing is explored, so it is fitted once."""
    if settings.feedback == "full":
        return [settings.episodes]
    return batches(settings.episodes, settings.algorithm)
