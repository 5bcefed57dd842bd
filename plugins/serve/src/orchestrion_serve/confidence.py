"""Compare two versions while their feedback comes in, valid whenever one looks.

Two groups of scores in [0, 1] come in any order. Consecutive scores are cut into blocks: one ends
as soon as it has a score of each group. Block i gives a difference and a number in [0, 1]

    D_i = mean of the new version's scores - mean of the old one's,    X_i = (D_i + 1) / 2

so that versions are compared with what came at about the same time: a change of traffic moves
both. Which version a request gets is drawn, and independent of everything before; hence if the new
version is not better, E[X_i | X_1 .. X_(i-1)] <= 1/2. About the mean m of X, the betting confidence
sequence of Waudby-Smith & Ramdas 2024 ("Estimating means of bounded random variables by betting",
the hedged capital process with approximate GRAPA bets):

    K+_t(m) = prod_(i <= t) (1 + b+_i(m) (X_i - m)),  b+_i(m) = clip(g_i(m), 0, 1 / (2 m))
    K-_t(m) = prod_(i <= t) (1 - b-_i(m) (X_i - m)),  b-_i(m) = clip(-g_i(m), 0, 1 / (2 (1 - m)))
    g_i(m)  = (mu_(i-1) - m) / (var_(i-1) + (mu_(i-1) - m)^2)
    mu_i    = (1/2 + sum_(j <= i) X_j) / (i + 1)
    var_i   = (1/4 + sum_(j <= i) (X_j - mu_j)^2) / (i + 1)

The bets depend on the past alone, so K+(m) is a supermartingale if the mean is at most m, and
K-(m) if it is at least m. By Ville's inequality either ever reaches 2 / alpha with a probability of
at most alpha / 2. The lower bound is the largest m such that K+ has reached that for all smaller
grid points and m itself, the upper bound likewise; both stay where they have once been.

Deviation: m is on a grid of steps of 0.005 (differences: 0.01), and bounds lie on it.
"""

from __future__ import annotations

from math import log
from typing import Any

import numpy as np
from attrs import define, field

POINTS = 200
_GRID: Any = np.arange(POINTS + 1) / POINTS
# At the ends of the interval nothing can be won: bets there are 0 or bounded by the other side.
_UP: Any = 0.5 / np.maximum(_GRID, 1e-9)
_DOWN: Any = 0.5 / np.maximum(1 - _GRID, 1e-9)


@define(eq=False)
class VersionComparison:
    """The difference of two versions' mean scores, new minus old.

    Args:
        alpha: the probability that the interval ever misses the truth, at most.
    """

    alpha: float = 0.05
    low: float = field(default=-1.0, init=False)
    """The lower bound of the difference."""
    high: float = field(default=1.0, init=False)
    """The upper bound."""
    scores: dict[bool, int] = field(factory=lambda: {False: 0, True: 0}, init=False)
    """How many came, of the new version (True) and of the old one."""
    _block: dict[bool, list[float]] = field(factory=lambda: {False: [], True: []}, init=False)
    _up: Any = field(factory=lambda: np.zeros(POINTS + 1), init=False)
    _down: Any = field(factory=lambda: np.zeros(POINTS + 1), init=False)
    """Logarithms of K+ and K-."""
    _times: int = field(default=0, init=False)
    _sum: float = field(default=0.5, init=False)
    _squares: float = field(default=0.25, init=False)

    @property
    def mean(self) -> float:
        """Return the mean difference of the blocks so far; 0 before the first."""
        return 2 * (self._sum - 0.5) / self._times - 1 if self._times else 0.0

    def add(self, score: float, *, new: bool) -> None:
        """Take a score of one version into account."""
        self.scores[new] += 1
        self._block[new].append(score)
        old_scores, new_scores = self._block[False], self._block[True]
        if old_scores and new_scores:
            difference = sum(new_scores) / len(new_scores) - sum(old_scores) / len(old_scores)
            self._add((difference + 1) / 2)
            self._block = {False: [], True: []}

    def _add(self, x: float) -> None:
        mean, variance = self._sum / (self._times + 1), self._squares / (self._times + 1)
        bet = (mean - _GRID) / (variance + (mean - _GRID) ** 2)
        self._up += np.log1p(np.clip(bet, 0, _UP) * (x - _GRID))
        self._down += np.log1p(-np.clip(-bet, 0, _DOWN) * (x - _GRID))
        self._times += 1
        self._sum += x
        self._squares += (x - self._sum / (self._times + 1)) ** 2
        enough = log(2 / self.alpha)
        # The first point from below, and from above, that is not excluded.
        below = int(np.argmin(self._up >= enough))
        above = int(np.argmin(self._down[::-1] >= enough))
        self.low = max(self.low, 2 * float(_GRID[max(below - 1, 0)]) - 1)
        self.high = min(self.high, 2 * float(_GRID[::-1][max(above - 1, 0)]) - 1)
