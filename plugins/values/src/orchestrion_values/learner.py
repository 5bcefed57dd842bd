"""What all trainers of the policy `values` have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from orchestrion import OpenContext, Plan, Problem, Session, Split, UsageError, laps
from orchestrion_values.policy import ValuePolicy

__all__ = ["ValueLearner", "refuse_others"]


def refuse_others(session: Session, path: str, trainer: str) -> None:
    """Check that the session can be trained.

    Raises:
        UsageError: its policy does not go by values, or the task has no training problems.
    """
    if not isinstance(session.policy, ValuePolicy):
        raise UsageError(
            f"{path}: {trainer} trains the policy values; write `policy: {{use: values}}`"
        )
    if not session.problems("train"):
        raise UsageError(f"{path}: the task has no training problems")


class ValueLearner:
    """A trainer whose iterations are so many episodes each, on every problem in turn.

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
        """As many as there are sizes."""
        return len(self.sizes)

    def plan(self, i: int, sizes: Mapping[Split, int]) -> Plan:
        """Whole episodes."""
        return Plan(self.sizes[i])

    def check(self, session: Session) -> None:
        """See `refuse_others`."""
        refuse_others(session, self.path, self.name)

    def problems(self, session: Session, start: int, count: int) -> list[Problem]:
        """Training problems from the `start`-th on, in an order in which all come equally often."""
        known = session.problems("train")
        return [known[i] for i in laps(len(known), self.key.child("problems"), start, count)]
