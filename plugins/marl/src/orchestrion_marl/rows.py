"""The calls of an iteration as arrays, and statistics of cells of them."""

from __future__ import annotations

from typing import Any

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


def _integers(values: Any) -> Integers:
    return np.asarray(values, np.int64)


def _floats(values: Any) -> Floats:
    return np.asarray(values, np.float64)


@frozen(eq=False)
class Rows:
    """The calls of an iteration as arrays of shape [B]; ids are any integers.

    Args:
        outcome: reward of the episode of each call.
        group: id of the group.
        episode: id of the episode, unique over all groups.
        agent: id of the agent that was called.
        penalty: penalty of the call, e.g. for a response that could not be read; by default 0.
        turn: index of the turn in its episode (`gigpo`, `gae`); by default 0.
        situation: equal ids for equal situations (`gigpo`); by default 0.
    """

    outcome: Floats = field(converter=_floats)
    group: Integers = field(converter=_integers)
    episode: Integers = field(converter=_integers)
    agent: Integers = field(converter=_integers)
    penalty: Floats = field(converter=_floats)
    turn: Integers = field(converter=_integers)
    situation: Integers = field(converter=_integers)

    @penalty.default
    @turn.default
    @situation.default
    def _zeros(self) -> Floats:
        return np.zeros(len(self.outcome))

    def __len__(self) -> int:
        return len(self.outcome)


class Cells:
    """Rows grouped by equal ids, and statistics of each cell.

    Args:
        ids: arrays of shape [B]; rows that agree in all of them are in one cell.

    Attributes:
        of: index of the cell of each row, shape [B]; `statistic[cells.of]` is a value a row.
        count: number of rows in each cell, shape [C].
    """

    def __init__(self, *ids: Integers) -> None:
        _, indices = np.unique(np.stack(ids, axis=1), axis=0, return_inverse=True)
        self.of: Integers = indices.reshape(-1)
        self.count: Integers = np.bincount(self.of)

    def mean(self, values: Floats) -> Floats:
        """Return the mean of each cell, shape [C]."""
        return self.sum(values) / self.count

    def sum(self, values: Floats) -> Floats:
        """Return the sum of each cell, shape [C]."""
        return np.asarray(np.bincount(self.of, values, len(self.count)), np.float64)

    def std(self, values: Floats, ddof: int) -> Floats:
        """Return the standard deviation of each cell, shape [C]; exactly 0 for equal values.

        Values count as equal if rounding could explain their difference.
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
