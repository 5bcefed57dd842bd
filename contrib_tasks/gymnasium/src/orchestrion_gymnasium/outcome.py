"""What tasks made of environments share: problems by seed, actions in turns, returns as scores."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Any

from attrs import Attribute, field, frozen

from orchestrion import (
    Key,
    Meta,
    Problem,
    Split,
    Task,
    Turn,
    UsageError,
    no_calls,
)

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
    number_drawn = Key(seed).child("environment", split, number).integer() >> 33
    return number_drawn * len(SPLITS) + SPLITS.index(split)


class Seeds:
    """The settings of a task whose problems are seeds.

    Attributes:
        environment: its name.
        episodes: how many problems each split has.
        seed: what the seeds of all problems are drawn from.
    """

    environment: str
    episodes: Counts
    seed: int


class OpenedSeeds(Task):
    """An opened task whose problems are seeds.

    Args:
        seeds: its settings.
        text: of all problems.
    """

    ceiling = no_calls

    def __init__(self, seeds: Seeds, text: str) -> None:
        self._seeds, self._text = seeds, text
        self._problems: dict[Split, list[Problem]] = {}

    def problems(self, split: Split) -> Sequence[Problem]:
        """Return the problems of a split."""
        if split not in self._problems:
            self._problems[split] = [
                self._problem(f"{split}-{n}", seed_of(self._seeds.seed, split, n))
                for n in range(getattr(self._seeds.episodes, split))
            ]
        return self._problems[split]

    def _problem(self, name: str, seed: int) -> Problem:
        """Return the problem of a seed, which agents do not see: it tells what will happen."""
        return Problem(name, self._text, hidden={"seed": seed})

    def problem_from(self, text: str) -> Problem:
        """Return the problem of a seed that a person names.

        Raises:
            UsageError: the text is no whole number of at least 0.
        """
        if not text.strip().isdecimal():
            raise UsageError(f"the input of this task is a seed such as 17; got {text!r:.80}")
        return self._problem("input", int(text))


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
