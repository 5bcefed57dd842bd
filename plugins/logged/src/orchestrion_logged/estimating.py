"""Estimate the value of another policy from logged decisions, with intervals and diagnostics.

Sources:
    Dudik, Langford & Li 2011, "Doubly robust policy evaluation and learning", eq. 1 to 3
    Swaminathan & Joachims 2015, "The self-normalized estimator for counterfactual learning", eq. 8
    Jiang & Li 2016, "Doubly robust off-policy value evaluation for reinforcement learning", eq. 10
    Kish 1965, "Survey sampling": the effective sample size (sum w)^2 / sum w^2

With the target policy pi, the logging policy mu, decisions t = 1..H of an episode, weights
rho_t = prod_{u <= t} pi(a_u | x_u) / mu(a_u | x_u), a model q of the return after a choice, and
v(x) = sum_a pi(a | x) q(x, a):

    ips     mean over episodes of  sum_t rho_t r_t                      (per decision)
    snips   mean of  rho_H sum_t r_t / mean of rho_H
    direct  mean of  v(x_1)
    dr      mean of  v(x_1) + sum_t rho_t (r_t + v(x_{t+1}) - q(x_t, a_t)),  v(x_{H+1}) = 0

The sum of `dr` is eq. 10 of Jiang & Li, unrolled; for H = 1 it is Dudik's.

Deviations: the 95 % interval of `dr` is symmetric around the mean of its terms, with
- Student's t instead of the normal, with the number of effective decisions minus one as degrees of
  freedom, as the variance is estimated from decisions with weight;
- the larger of two variances of a term: that of the terms themselves, and var(v) + sum_t E[rho_t^2]
  s^2, where s^2 is the mean square of the model's errors, weighted by rho (shrunk towards the plain
  mean by `SHRINK` effective decisions). If success is rare, the few large weights seldom coincide
  with the few large errors, and the first variance is usually too small.
`tests/benchmarks/ope.py` measures the coverage of the intervals.
"""

from __future__ import annotations

from math import inf, nan, sqrt

import numpy as np
from attrs import frozen

from orchestrion_logged.decisions import Floats, Ints

SHRINK = 30.0


@frozen
class PolicyValue:
    """A mean value per episode, with a 95 % interval."""

    mean: float
    low: float
    high: float


@frozen(eq=False)
class Terms:
    """n decisions in m episodes, in the form of the estimators."""

    reward: Floats  # after each decision, before the next [n]
    ratio: Floats  # pi / mu of the choice [n]
    value: Floats  # v of the situation [n]
    guess: Floats  # q of the choice [n]
    first: Ints  # index of each episode's first decision [m]

    @property
    def weights(self) -> Floats:
        """Return rho, the product of the episode's ratios up to each decision [n]."""
        rho = self.ratio.copy()
        ends = [*self.first[1:].tolist(), len(rho)]
        for start, end in zip(self.first.tolist(), ends, strict=True):
            if end - start > 1:
                rho[start:end] = np.cumprod(rho[start:end])
        return rho

    @property
    def whole(self) -> Floats:
        """Return rho of each episode's last decision [m]."""
        rho: Floats = self.weights[np.append(self.first[1:], len(self.ratio)) - 1]
        return rho

    @property
    def surprise(self) -> Floats:
        """Return the temporal-difference error: reward plus next value minus the guess [n]."""
        following = np.append(self.value[1:], 0.0)
        following[self.first[1:] - 1] = 0.0
        result: Floats = self.reward + following - self.guess
        return result

    def total(self, numbers: Floats) -> Floats:
        """Return the sum over each episode [m] of numbers of its decisions [n]."""
        return np.add.reduceat(numbers, self.first)


def effective(weights: Floats) -> float:
    """Return the effective sample size (Kish)."""
    square = float((weights**2).sum())
    return float(weights.sum()) ** 2 / square if square > 0 else 0.0


def mean_of(values: Floats, count: float = inf, variance: float = 0.0) -> PolicyValue:
    """Return a mean with its interval.

    Args:
        values: independent ones [m].
        count: the effective number of them, if smaller.
        variance: a lower bound of the variance of one.
    """
    from scipy.stats import t

    m, mean = len(values), float(values.mean())
    if m < 2:
        return PolicyValue(mean, nan, nan)
    spread = max(float(values.var(ddof=1)), variance)
    half = float(t.ppf(0.975, max(min(count, m) - 1, 1))) * sqrt(spread / m)
    return PolicyValue(mean, mean - half, mean + half)


def ips(terms: Terms) -> PolicyValue:
    """Return the mean of weighted rewards."""
    return mean_of(terms.total(terms.weights * terms.reward), effective(terms.whole))


def snips(terms: Terms) -> PolicyValue:
    """Return the weighted mean of rewards; interval by the delta method."""
    rho, reward = terms.whole, terms.total(terms.reward)
    if not rho.any():
        return PolicyValue(nan, nan, nan)
    mean = float((rho * reward).sum() / rho.sum())
    error = mean_of(rho * (reward - mean) / rho.mean(), effective(rho))
    return PolicyValue(mean, error.low + mean, error.high + mean)


def direct(terms: Terms) -> PolicyValue:
    """Return the model's estimate; its interval ignores the error of the model."""
    return mean_of(terms.value[terms.first])


def dr(terms: Terms) -> tuple[PolicyValue, Floats]:
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


@frozen
class Overlap:
    """How well a log covers the choices of a policy."""

    effective: float  # number of effective episodes (Kish)
    mean_weight: float  # 1 is expected, if propensities are right and the log covers the policy
    deviation: float  # the standard error of that mean
    largest: float  # the largest weight
    top_share: float  # of all weight, in the heaviest 1 % of episodes
    outside: float  # the share of the policy's choices that were never logged

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
        """Return why the log is not sufficient; "" if it has `least` effective episodes or more."""
        if self.outside > 0.01:
            return (
                f"it takes choices that were never logged, in {self.outside:.0%} of the decisions; "
                "log such choices too"
            )
        if abs(self.mean_weight - 1) > max(0.1, 4 * self.deviation):
            return (
                f"its weights average {self.mean_weight:.2f} instead of 1: the log lacks its "
                "choices in some situations, or the propensities are wrong"
            )
        if self.effective < least:
            return (
                f"only {self.effective:.1f} effective episodes of its choices are in the log, and "
                f"{least:g} are needed; log more, or with more exploration"
            )
        return ""
