"""Common parts of tasks with environments: problems by seed, actions of turns, returns."""

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
_DIGITS = 18
"""Of a seed: more may not fit in the 64 bits that records have for it."""


@frozen
class Counts:
    """The number of problems of each split; each problem is a seed."""

    train: Count = 64
    validation: Count = 16
    test: Count = 32


@frozen
class Returns:
    """The value of a return, which is the sum of an episode's rewards.

    Args:
        worst: the return with the value 0; lower ones have it too.
        best: the return with the value 1; higher ones have it too.
        solved: the lowest return of a solved episode; by default `best`, or the environment's own
            threshold if that is lower.
    """

    worst: float
    best: float = field()
    solved: float | None = None

    @best.validator
    def _check_order(self, attribute: Attribute[Any], value: float) -> None:
        if not self.worst < value:
            raise ValueError(f"must be more than worst, {self.worst:g}; got {value:g}")

    def value(self, total: float) -> float:
        """Return the value of a return, from 0 to 1."""
        return min(1.0, max(0.0, (total - self.worst) / (self.best - self.worst)))


def seed_of(seed: int, split: Split, number: int) -> int:
    """Return the seed of a split's problem; no two splits share one."""
    number_drawn = Key(seed).child("environment", split, number).integer() >> 33
    return number_drawn * len(SPLITS) + SPLITS.index(split)


class Seeds:
    """The settings of a task whose problems are seeds.

    Attributes:
        environment: its name.
        episodes: the number of problems of each split.
        seed: of the draws of all problems' seeds.
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
        """Return the problem of a seed, which is hidden: it determines what will happen."""
        return Problem(name, self._text, hidden={"seed": seed})

    def problem_from(self, text: str) -> Problem:
        """Return the problem of the seed in a text.

        Raises:
            UsageError: the text is not a whole number of at least 0, with at most 18 digits.
        """
        if not text.strip().isdecimal() or len(text.strip()) > _DIGITS:
            raise UsageError(
                f"the input of this task is a seed such as 17, of at most {_DIGITS} digits; "
                f"got {text!r:.80}"
            )
        return self._problem("input", int(text))


def action_of(turn: Turn) -> Any:
    """Return the action of a turn as a JSON value.

    It is the "action" in the `data`, or all of the `data`, or else the content read as JSON.

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
