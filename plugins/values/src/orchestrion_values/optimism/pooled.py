"""Estimates that states share: a forest's prediction, worth as many tries as it has proved to be.

    mean = (k * predicted + sum of what was seen) / (k + n)

k is the one of `WORTH` with the least squared error when each single observation is predicted from
the others of its state and from trees that never saw the state (out of bag). Where that says
nothing, as before anything differs, k is the smallest: nothing is taken for granted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from orchestrion_values.optimism.seen import Floats, Ints

if TYPE_CHECKING:
    from sklearn.tree import ExtraTreeRegressor

__all__ = ["WORTH", "Pooled", "pool"]

WORTH = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
LEAF = 4.0
"""Tries that a leaf holds at least."""
TREES = 10
FEWEST = 4
"""Rows that trees need; fewer are predicted by their mean."""


class Pooled:
    """What trees predict, and how many tries that is worth.

    Attributes:
        worth: k, for each group.
    """

    def __init__(self, trees: list[ExtraTreeRegressor], mean: Floats, worth: Floats) -> None:
        self._trees, self._mean, self.worth = trees, mean, worth

    def predict(self, numbers: Floats) -> Floats:
        """For each row, a row of as many values as were fitted [n, c]."""
        if not self._trees or not len(numbers):
            return np.tile(self._mean, (len(numbers), 1))
        single = numbers.astype(np.float32)
        total = np.zeros((len(numbers), len(self._mean)))
        for tree in self._trees:
            total += tree.predict(single, check_input=False).reshape(total.shape)
        return total / len(self._trees)


def pool(
    numbers: Floats,
    times: Floats,
    sums: Floats,
    squares: Floats,
    group: Ints,
    groups: int,
    seed: int,
) -> Pooled:
    """Fit trees to the means of rows.

    Args:
        numbers: what tells rows apart [n, f].
        times: how often each was seen, at least once [n].
        sums: of what was seen [n, c].
        squares: sums of its squares [n, c].
        group: of each row [n]; each has a k of its own.
        groups: how many there are.
        seed: of the trees.
    """
    mean = sums.sum(axis=0) / times.sum()
    if len(numbers) < FEWEST:
        return Pooled([], mean, np.full(groups, WORTH[0]))
    from sklearn.tree import ExtraTreeRegressor  # slow to load, and not needed to open a run

    means = sums / times[:, None]
    single = numbers.astype(np.float32)
    rng = np.random.default_rng(seed)
    trees, guess, votes = [], np.zeros_like(sums), np.zeros(len(numbers))
    for _ in range(TREES):
        drawn = rng.poisson(1.0, len(numbers))
        if not drawn.any():
            continue
        weights = times * drawn
        tree = ExtraTreeRegressor(
            max_features=0.7,
            min_weight_fraction_leaf=min(0.5, LEAF / weights.sum()),
            random_state=int(rng.integers(2**31)),
        )
        inside, outside = np.flatnonzero(drawn), np.flatnonzero(drawn == 0)
        tree.fit(single[inside], means[inside], weights[inside], check_input=False)
        if len(outside):
            guess[outside] += tree.predict(single[outside], check_input=False).reshape(
                -1, len(mean)
            )
            votes[outside] += 1
        trees.append(tree)
    guess = np.where(votes[:, None] > 0, guess / np.maximum(votes, 1)[:, None], mean)
    worth = np.full(groups, WORTH[0])
    for i in range(groups):
        mine = group == i
        if mine.any():
            worth[i] = _worth(times[mine], sums[mine], squares[mine], guess[mine])
    return Pooled(trees, mean, worth)


def _worth(times: Floats, sums: Floats, squares: Floats, guess: Floats) -> float:
    """The k with the least squared error over single observations, left out one at a time."""
    n, errors = times[:, None], []
    for k in WORTH:
        # (k g + S - x) / (k + n - 1) - x = (k g + S - (k + n) x) / (k + n - 1), summed over x
        first, both = k * guess + sums, k + n
        total = n * first**2 - 2 * first * both * sums + both**2 * squares
        errors.append(float((total / (k + n - 1) ** 2).sum()))
    best = min(errors)
    return next(k for k, error in zip(WORTH, errors, strict=True) if error <= best + 1e-9)
