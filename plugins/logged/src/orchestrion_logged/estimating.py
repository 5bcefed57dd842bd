"""What another policy would have got, from logged decisions: estimators, intervals, diagnostics.

Sources:
    Dudik, Langford & Li 2011, "Doubly robust policy evaluation and learning", eq. 1 to 3
    Swaminathan & Joachims 2015, "The self-normalized estimator for counterfactual learning", eq. 8
    Jiang & Li 2016, "Doubly robust off-policy value evaluation for reinforcement learning", eq. 10
    Kish 1965, "Survey sampling": the effective sample size (sum w)^2 / sum w^2

With the target policy pi, the logging policy mu, decisions t = 1..H of an episode, weights
rho_t = prod_{u <= t} pi(a_u | x_u) / mu(a_u | x_u), a model q of what follows on a choice, and
v(x) = sum_a pi(a | x) q(x, a):

    ips     mean over episodes of  sum_t rho_t r_t                      (per decision)
    snips   mean of  rho_H sum_t r_t / mean of rho_H
    direct  mean of  v(x_1)
    dr      mean of  v(x_1) + sum_t rho_t (r_t + v(x_{t+1}) - q(x_t, a_t)),  v(x_{H+1}) = 0

The sum of `dr` is eq. 10 of Jiang & Li, unrolled; for H = 1 it is Dudik's.

Deviations: the 95 % interval of `dr` is symmetric around the mean of its terms, with
- Student's t in place of the normal, with as many degrees of freedom as effective decisions, less
  one: variance is estimated from those that carry weight;
- the larger of two variances of a term: that of the terms themselves, and var(v) + sum_t E[rho_t^2]
  s^2, where s^2 is the mean square of the model's errors, weighted by rho (shrunk towards the plain
  mean by `SHRINK` effective decisions). Where success is rare, the few large weights seldom meet
  the few large errors, and the first is too small more often than not.
`tests/benchmarks/ope.py` shows how often the intervals cover the truth.
"""

from __future__ import annotations

from math import inf, nan, sqrt

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

__all__ = ["Estimate", "Overlap", "Terms", "direct", "dr", "effective", "ips", "mean_of", "snips"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

SHRINK = 30.0


@frozen
class Estimate:
    """A value an episode, with a 95 % interval."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.mean:.4f}  [{self.low:.4f}, {self.high:.4f}]"


@frozen(eq=False)
class Terms:
    """n decisions in m episodes, as estimators take them.

    Args:
        reward: what came after each decision, before the next [n].
        ratio: pi / mu of what was chosen [n].
        value: v of what each decision was taken on [n].
        guess: q of what was chosen [n].
        first: where each episode begins [m].
    """

    reward: Floats
    ratio: Floats
    value: Floats
    guess: Floats
    first: Ints

    @property
    def weights(self) -> Floats:
        """rho: the product of the episode's ratios up to each decision [n]."""
        rho = self.ratio.copy()
        ends = [*self.first[1:].tolist(), len(rho)]
        for start, end in zip(self.first.tolist(), ends, strict=True):
            if end - start > 1:
                rho[start:end] = np.cumprod(rho[start:end])
        return rho

    @property
    def whole(self) -> Floats:
        """rho of each episode's last decision [m]."""
        ends = np.append(self.first[1:], len(self.ratio)) - 1
        rho: Floats = self.weights[ends]
        return rho

    @property
    def surprise(self) -> Floats:
        """What came, and the value of what came next, less the guess [n]."""
        following = np.append(self.value[1:], 0.0)
        following[self.first[1:] - 1] = 0.0
        result: Floats = self.reward + following - self.guess
        return result

    def total(self, numbers: Floats) -> Floats:
        """The sum over each episode [m] of numbers of its decisions [n]."""
        return np.add.reduceat(numbers, self.first)


def effective(weights: Floats) -> float:
    """Return how many equally weighted decisions would tell as much (Kish)."""
    square = float((weights**2).sum())
    return float(weights.sum()) ** 2 / square if square > 0 else 0.0


def mean_of(values: Floats, count: float = inf, variance: float = 0.0) -> Estimate:
    """Return a mean with its interval.

    Args:
        values: independent ones [m].
        count: how many of them tell, if fewer than all.
        variance: that of one, if it is known to be larger than it looks.
    """
    from scipy.stats import t

    m, mean = len(values), float(values.mean())
    if m < 2:
        return Estimate(mean, nan, nan)
    spread = max(float(values.var(ddof=1)), variance)
    half = float(t.ppf(0.975, max(min(count, m) - 1, 1))) * sqrt(spread / m)
    return Estimate(mean, mean - half, mean + half)


def ips(terms: Terms) -> Estimate:
    """Return the mean of weighted rewards."""
    return mean_of(terms.total(terms.weights * terms.reward), effective(terms.whole))


def snips(terms: Terms) -> Estimate:
    """Return the weighted mean of rewards; interval by the delta method."""
    rho, reward = terms.whole, terms.total(terms.reward)
    if not rho.any():
        return Estimate(nan, nan, nan)
    mean = float((rho * reward).sum() / rho.sum())
    return _around(mean, mean_of(rho * (reward - mean) / rho.mean(), effective(rho)))


def direct(terms: Terms) -> Estimate:
    """Return what the model says; its interval does not know the model's own error."""
    return mean_of(terms.value[terms.first])


def dr(terms: Terms) -> tuple[Estimate, Floats]:
    """Return the doubly robust estimate, and its term of each episode [m]."""
    rho, surprise, starts = terms.weights, terms.surprise, terms.value[terms.first]
    values = starts + terms.total(rho * surprise)
    count = effective(terms.whole)
    plain = float((surprise**2).mean())
    total = float(rho.sum())
    target = float((rho * surprise**2).sum()) / total if total > 0 else plain
    square = (count * target + SHRINK * plain) / (count + SHRINK)
    spread = float(starts.var(ddof=1)) if len(starts) > 1 else 0.0
    spread += square * float((rho**2).sum()) / len(starts)
    return mean_of(values, count, spread), values


def _around(mean: float, estimate: Estimate) -> Estimate:
    return Estimate(mean, estimate.low + mean, estimate.high + mean)


@frozen
class Overlap:
    """Whether the log tells of what a policy does.

    Args:
        effective: episodes, by Kish.
        mean_weight: 1 on average over logs, if propensities are right and nothing is out of reach.
        deviation: the standard error of that mean.
        largest: weight.
        top_share: of all weight in the heaviest 1 % of episodes.
        outside: how often the policy takes a choice that was never logged, as a share.
    """

    effective: float
    mean_weight: float
    deviation: float
    largest: float
    top_share: float
    outside: float

    @classmethod
    def of(cls, weights: Floats, outside: float) -> Overlap:
        """Return the diagnostics of the weights of whole episodes [m]."""
        total, heaviest = float(weights.sum()), np.sort(weights)[::-1]
        top = float(heaviest[: max(1, len(weights) // 100)].sum())
        error = float(weights.std(ddof=1)) / sqrt(len(weights)) if len(weights) > 1 else 0.0
        return cls(
            effective(weights),
            float(weights.mean()),
            error,
            float(heaviest[0]),
            top / total if total > 0 else 0.0,
            outside,
        )

    def refusal(self, least: float) -> str:
        """Return why the log cannot tell; "" if it can.

        Args:
            least: effective episodes that are needed.
        """
        if self.outside > 0.01:
            return (
                f"it takes choices that were never logged, in {self.outside:.0%} of the decisions; "
                "log such choices too, now and then"
            )
        if abs(self.mean_weight - 1) > max(0.1, 4 * self.deviation):
            return (
                f"its weights average {self.mean_weight:.2f} and not 1: in part of the situations "
                "the log never has what it does, or the propensities are wrong"
            )
        if self.effective < least:
            return (
                f"only {self.effective:.1f} effective episodes of what it does are in the log, and "
                f"{least:g} are needed; log more, or with more exploration"
            )
        return ""
