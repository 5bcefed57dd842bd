"""Means with intervals over episodes, and the length of training.

Intervals are percentile bootstraps over problems (Efron 1979), 95 %, with resamples drawn from a
key, so that the same episodes give the same interval. Where all or none are solved, the share's
interval is exact (Clopper and Pearson 1934), as resamples of equal values do not differ.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from math import fsum

from attrs import evolve, frozen

from orchestrion._keys import Key

RESAMPLES = 1000
_HIGH = int(0.975 * RESAMPLES) - 1


@frozen
class Estimate:
    """A mean over `count` values, with a 95 % interval; NaN for no values."""

    mean: float
    low: float
    high: float
    count: int

    @property
    def excludes_zero(self) -> bool:
        """Return whether the interval lies on one side of zero."""
        return self.low > 0 or self.high < 0


def mean(values: Sequence[float]) -> float:
    """Return the mean, summed exactly, so that the order has no effect; 0 for no values."""
    return fsum(values) / len(values) if values else 0.0


def convergence(history: Sequence[tuple[int, float]], window: int = 10) -> int:
    """Return the episodes until the reward had risen by 90 % of its rise; 0 without a rise.

    Rewards are means of `window` consecutive iterations, or of a quarter of all in a short run. The
    rise is used and not the level, because rewards may start below 0.

    Args:
        history: (episodes so far, mean reward) of each iteration.
        window: iterations that are averaged.
    """
    if len(history) < 2:
        return 0
    width = max(1, min(window, len(history) // 4))
    rewards = [reward for _, reward in history]
    means = [mean(rewards[i : i + width]) for i in range(len(rewards) - width + 1)]
    if not means[-1] > means[0]:
        return 0
    level = means[0] + 0.9 * (means[-1] - means[0])
    reached = next((i for i, value in enumerate(means) if value >= level), len(means) - 1)
    return history[reached + width - 1][0]


def estimate(values: Sequence[float], key: Key) -> Estimate:
    """Return the mean of independent values with its interval."""
    count = len(values)
    if count == 0:
        return Estimate(math.nan, math.nan, math.nan, 0)
    smallest, largest = min(values), max(values)
    if smallest == largest:
        return Estimate(smallest, smallest, smallest, count)
    draw = key.child("bootstrap", count).random()
    means = sorted(sum(draw.choices(values, k=count)) / count for _ in range(RESAMPLES))
    # Rounding may move a mean out of the range of its values.
    low, high = max(means[int(0.025 * RESAMPLES)], smallest), min(means[_HIGH], largest)
    return Estimate(min(max(mean(values), smallest), largest), low, high, count)


def estimate_share(values: Sequence[float], key: Key) -> Estimate:
    """Return the mean of shares, from 0 to 1, with an interval that has a width."""
    bounds = estimate(values, key)
    if bounds.mean not in (0.0, 1.0):
        return bounds
    width = 1 - 0.025 ** (1 / bounds.count)
    return evolve(bounds, high=width) if bounds.mean == 0 else evolve(bounds, low=1 - width)


def difference(first: Sequence[float], second: Sequence[float], key: Key) -> Estimate:
    """Return the mean of the paired difference `first - second` with its interval."""
    return estimate([a - b for a, b in zip(first, second, strict=True)], key.child("paired"))
