"""The trainer `bandit`: settings."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from attrs import frozen

from orchestrion import JSON, Meta, OpenContext, Trainer

FIRST, GROWTH, LEAST, LARGEST = 16, 0.15, 8, 4096
PHASES = 20


@frozen
class Bandit:
    """Trains the policy `values` as a contextual bandit.

    For one choice per episode, such as which model to ask, and for short cascades, such as whom to
    ask next and when to stop: the value of a choice is the sum of rewards until the end, so nothing
    is planned. Where episodes are longer, a note says what to take. See `orchestrion_values.tries`
    for the arithmetic.

    An episode that failed, or whose reward is missing, counts as a try with the lowest reward seen,
    so that a choice without rewards is tried less and less.

    Args:
        episodes: training episodes of the whole run.
        algorithm: `thompson` draws by the probability of being the best; `linucb` takes the highest
            upper confidence bound; `rejects` tries all equally often and drops the worst after each
            of k phases, for few choices.
        feedback: `played` plays another problem in each episode; `full` plays every choice on every
            problem, for tasks whose episodes cost nothing, such as recorded answers.
        width: the number of standard deviations for exploring.
        text: learn from the words of problems too.
        category: of problems: as the task shows it, predicted from the words (with `text`), or
            ignored.
        neighbours: with `text`, the number of similar problems that make up half of a value.
        start: a file with exported statistics of earlier runs (JSON) to begin with.
        cap: these count for at most so many tries of a choice.
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

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[Trainer]:
        from orchestrion_values.bandit_learner import BanditLearner

        yield BanditLearner(self, ctx)


def batches(settings: Bandit) -> list[int]:
    """Return sizes of iterations: small at first, then shares of the episodes before.

    Full feedback is fitted once. Successive rejects drops choices between iterations, which
    therefore have equal sizes.
    """
    episodes, sizes = settings.episodes, list[int]()
    if settings.feedback == "full":
        return [episodes]
    if settings.algorithm == "rejects":
        each = -(-episodes // PHASES)
        return [min(each, episodes - done) for done in range(0, episodes, each)]
    while (left := episodes - sum(sizes)) > 0:
        size = min(max(LEAST, int(GROWTH * sum(sizes))) if sizes else FIRST, LARGEST)
        sizes.append(left if left < size + LEAST else size)
    return sizes
