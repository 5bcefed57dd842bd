"""What tasks made of environments share: seeds, actions in turns, and returns as scores."""

from __future__ import annotations

import json
from typing import Annotated, Any

from attrs import Attribute, field, frozen

from orchestrion import Key, Meta, Split, Turn

__all__ = ["Counts", "Returns", "action_of", "seed_of"]

SPLITS: tuple[Split, ...] = ("train", "validation", "test")


Count = Annotated[int, Meta(ge=0, le=1_000_000)]


@frozen
class Counts:
    """How many problems each split has; each is an episode from a seed of its own."""

    train: Count = 64
    validation: Count = 16
    test: Count = 32


@frozen
class Returns:
    """Say how good a return is, which is the sum of an episode's rewards.

    Args:
        worst: a return that is worth 0, and all below.
        best: a return that is worth 1, and all above.
        solved: from which return on an episode counts as solved; by default `best`, or the
            environment's own threshold if that is less.
    """

    worst: float
    best: float = field()
    solved: float | None = None

    @best.validator
    def _check_order(self, attribute: Attribute[Any], value: float) -> None:
        if not self.worst < value:
            raise ValueError(f"must be more than worst, {self.worst:g}; got {value:g}")

    def value(self, total: float) -> float:
        """Return what a return is worth, 0 to 1."""
        return min(1.0, max(0.0, (total - self.worst) / (self.best - self.worst)))


def seed_of(seed: int, split: Split, number: int) -> int:
    """Return the seed of a split's problem; no two splits share one."""
    drawn = Key(seed).child("environment", split, number).integer() >> 33
    return drawn * len(SPLITS) + SPLITS.index(split)


def action_of(turn: Turn) -> Any:
    """Return the JSON value that a turn gives as its action.

    It is the `data`, or that data's "action", or else the content read as JSON.

    Raises:
        ValueError: the turn has no value.
    """
    if turn.status != "completed":
        raise ValueError(turn.error or f"the turn was {turn.status}")
    value = turn.output.data
    if value is None:
        try:
            value = json.loads(turn.output.content)
        except (ValueError, RecursionError):
            raise ValueError(f"not JSON: {turn.output.content!r:.80}") from None
    if isinstance(value, dict) and "action" in value:
        return value["action"]
    return value
