"""What the trainers of the policy `values` share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np

from orchestrion import (
    Job,
    OpenContext,
    Plan,
    Policy,
    Problem,
    Session,
    Situation,
    Split,
    UsageError,
    laps,
)
from orchestrion_values.arrays import Floats, Mask
from orchestrion_values.policy import Exploring, ValuePolicy, sampling

SHORT = 4
"""Up to so many choices in an episode planning gains little."""


class ValueLearner:
    """Base of trainers that play a number of episodes in each iteration, on all problems in turn.

    Args:
        ctx: of the trainer.
        sizes: episodes of each iteration.
    """

    name: ClassVar[str]

    def __init__(self, ctx: OpenContext, sizes: Sequence[int]) -> None:
        self.path, self.key, self.turns = ctx.path, ctx.key, ctx.turns
        self.sizes = list(sizes)

    @property
    def iterations(self) -> int:
        return len(self.sizes)

    def plan(self, i: int, sizes: Mapping[Split, int]) -> Plan | None:
        return Plan(self.sizes[i])

    def check(self, session: Session) -> None:
        """Raise `UsageError` if the policy is not `values`, or there are no training problems."""
        if not isinstance(session.policy, ValuePolicy):
            raise UsageError(
                f"{self.path}: {self.name} trains the policy values; write "
                "`policy: {use: values}`"
            )
        if not session.problems("train"):
            raise UsageError(f"{self.path}: the task has no training problems")

    def problems(self, session: Session, start: int, count: int) -> list[Problem]:
        """Return training problems from number `start` on; all come equally often."""
        known = session.problems("train")
        return [known[i] for i in laps(len(known), self.key.child("problems"), start, count)]

    def jobs(self, session: Session, problems: Sequence[Problem], policy: Policy) -> list[Job]:
        """Return an episode on each problem."""
        return [
            Job(problem, session.key.child("episode", n), policy)
            for n, problem in enumerate(problems)
        ]


LONGEST = 12
"""The maximum of turns in a probing episode where the config sets none."""


def probing(policy: ValuePolicy, turns: int | None) -> Exploring:
    """Return an explorer that knows nothing: choices at random, episodes of random length."""
    # At the limit it is too late to stop.
    most = min(LONGEST, max(1, turns - 1) if turns else LONGEST)
    return sampling(policy, lambda situations, allowed: chances(policy, situations, allowed, most))


def chances(
    policy: ValuePolicy, situations: Sequence[Situation], allowed: Mask, most: int
) -> Floats:
    """Return the probability of each choice [n, k], weighed by hints.

    All lengths up to `most` are equally likely; only ending at once, whose reward is soon known, is
    tried a quarter as often.
    """
    weights = np.ones(allowed.shape)
    for row, situation in zip(weights, situations, strict=True):
        hints = situation.observation.hints if situation.observation is not None else {}
        for place, name in enumerate(policy.names):
            if hints.get(name):
                row[place] = 0.2 + 1.6 * hints[name][0]
    end = np.where(allowed & policy.ending, weights, 0)
    go = np.where(allowed & ~policy.ending, weights, 0)
    some_end, some_go = end.sum(axis=1, keepdims=True), go.sum(axis=1, keepdims=True)
    done = np.array([[len(situation.trajectory)] for situation in situations])
    stop = np.where(done, 1 / np.maximum(most + 1 - done, 1), 0.25 / (most + 0.25))
    stop = np.where(some_go == 0, 1.0, np.where(some_end == 0, 0.0, stop))
    result: Floats = stop * end / np.where(some_end == 0, 1, some_end)
    result += (1 - stop) * go / np.where(some_go == 0, 1, some_go)
    return result
