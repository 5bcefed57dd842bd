"""What every advantage estimator works on: arrays with one element a call of an agent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

__all__ = ["Cells", "Floats", "Integers", "Rows"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


def _integers(values: Any) -> Integers:
    return np.asarray(values, np.int64)


def _floats(values: Any) -> Floats:
    return np.asarray(values, np.float64)


@frozen(eq=False)
class Rows:
    """One element a call. A group is a problem's episodes; ids are any integers.

    Args:
        outcome: reward of the episode that the call belongs to, shape [B].
        group: of the episode, shape [B].
        episode: id of the episode, unique over all groups, shape [B].
        agent: who was called, shape [B].
        penalty: what the call itself is fined, e.g. for an answer that cannot be read, shape [B].
    """

    outcome: Floats = field(converter=_floats)
    group: Integers = field(converter=_integers)
    episode: Integers = field(converter=_integers)
    agent: Integers = field(converter=_integers)
    penalty: Floats = field(converter=_floats)

    @penalty.default
    def _no_penalty(self) -> Floats:
        return np.zeros(len(self.outcome))

    def __attrs_post_init__(self) -> None:
        for name in ("group", "episode", "agent", "penalty"):
            if getattr(self, name).shape != self.outcome.shape or self.outcome.ndim != 1:
                raise ValueError(
                    f"{name} has shape {getattr(self, name).shape}, outcome {self.outcome.shape}; "
                    "both must be [B]"
                )

    def __len__(self) -> int:
        return len(self.outcome)

    def take(self, chosen: Any) -> Rows:
        """The rows chosen by a mask or by indices."""
        return Rows(
            self.outcome[chosen],
            self.group[chosen],
            self.episode[chosen],
            self.agent[chosen],
            self.penalty[chosen],
        )

    @property
    def firsts(self) -> Integers:
        """The first row of every episode."""
        found: Integers = np.unique(self.episode, return_index=True)[1]
        return found


class Cells:
    """Rows put together by equal ids, and statistics over each; `of` gives them back by row.

    Args:
        ids: arrays of shape [B]; rows that agree in all of them share a cell.
    """

    def __init__(self, *ids: Integers) -> None:
        self.of: Integers
        """The cell of each row, from 0, shape [B]."""
        stacked = np.stack(ids, axis=1) if ids[0].size else np.zeros((0, len(ids)), np.int64)
        _, self.of = np.unique(stacked, axis=0, return_inverse=True)
        self.of = self.of.reshape(-1)
        self.count: Integers = np.bincount(self.of)
        """Rows of each cell, shape [C]."""

    def mean(self, values: Floats) -> Floats:
        """Mean of each cell, shape [C]."""
        return self.sum(values) / self.count

    def sum(self, values: Floats) -> Floats:
        """Sum of each cell, shape [C]."""
        return np.asarray(np.bincount(self.of, values, len(self.count)), np.float64)

    def std(self, values: Floats, ddof: int) -> Floats:
        """Standard deviation of each cell, shape [C]; exactly 0 where its values are equal.

        Values count as equal if they differ by less than rounding could make them differ: a
        spread of 1e-17 is not divided by.
        """
        low = np.full(len(self.count), np.inf)
        high = np.full(len(self.count), -np.inf)
        np.minimum.at(low, self.of, values)
        np.maximum.at(high, self.of, values)
        equal = high - low <= 1e-12 * np.maximum(1.0, np.maximum(abs(low), abs(high)))
        squares = self.sum((values - self.mean(values)[self.of]) ** 2)
        deviation: Floats = np.sqrt(squares / np.maximum(1, self.count - ddof))
        deviation[equal] = 0.0
        return deviation


def ragged(values: Sequence[float] | Floats, lengths: Integers) -> Floats:
    """Values of rows repeated over their tokens, shape [sum of lengths]."""
    return np.repeat(_floats(values), lengths)
