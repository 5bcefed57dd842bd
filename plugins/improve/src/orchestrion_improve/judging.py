"""Whether a change helps: paired differences, their interval, and how sure one can be.

The unit is the problem: several draws on one problem are averaged first. A change helps if two
things agree at the level asked for: the lower end of a percentile bootstrap interval (Efron 1979)
is above zero, and so few random flips of signs give a mean as high (Fisher's randomisation test).
The bootstrap alone is too kind to few problems: of four differences that are all positive it has
no doubt at all, though a coin falls that way once in sixteen times.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil, fsum, log2, sqrt
from statistics import NormalDist

from attrs import frozen

from orchestrion import Key

__all__ = ["Verdict", "fewest_problems", "hopeless", "judge"]

LEAST_RESAMPLES, MOST_RESAMPLES = 1000, 20_000
TAIL = 20
"""Resamples that should lie below the lower end of an interval."""
SLIM = 0.02
"""A chance of success below this is not worth the rest of the trial."""


@frozen
class Verdict:
    """What a trial says of a change.

    Args:
        effect: mean difference in reward, with the change less without.
        low: lower end of its interval.
        high: upper end.
        p: share of random signs that give an effect as high.
        problems: how many problems it was tried on.
        pairs: how many pairs of episodes.
        level: chance that was allowed for calling something useless helpful.
    """

    effect: float
    low: float
    high: float
    p: float
    problems: int
    pairs: int
    level: float

    @property
    def helps(self) -> bool:
        """Whether both tests say so."""
        return self.low > 0 and self.p <= self.level

    @property
    def harms(self) -> bool:
        """Whether all of the interval lies below zero."""
        return self.high < 0


def judge(differences: Mapping[str, Sequence[float]], level: float, key: Key) -> Verdict:
    """Judge a change by its differences, problem by problem.

    Args:
        differences: by problem, one number a pair of episodes; problems without are left out.
        level: one-sided chance of error at each end of the interval.
        key: of the resamples.
    """
    means = [fsum(one) / len(one) for one in differences.values() if one]
    pairs = sum(map(len, differences.values()))
    count = len(means)
    if not count:
        return Verdict(0.0, 0.0, 0.0, 1.0, 0, 0, level)
    effect = fsum(means) / count
    if not any(means):
        return Verdict(0.0, 0.0, 0.0, 1.0, count, pairs, level)
    resamples = min(max(LEAST_RESAMPLES, ceil(TAIL / level)), MOST_RESAMPLES)
    draw = key.child("bootstrap").random()
    sums = sorted(sum(draw.choices(means, k=count)) for _ in range(resamples))
    cut = int(level * resamples)
    p = _sign_flips(means, resamples, key.child("signs"))
    return Verdict(effect, sums[cut] / count, sums[-1 - cut] / count, p, count, pairs, level)


def _sign_flips(means: Sequence[float], resamples: int, key: Key) -> float:
    """The share of sign patterns, this one included, whose sum is at least as high."""
    values = [one for one in means if one]  # zeros have no sign
    # A little slack: equal sums may differ in their last bit.
    reached = fsum(values) - 1e-9
    draw, count = key.random(), len(values)
    found = 0
    for _ in range(resamples):
        signs = draw.getrandbits(count)
        total = 0.0
        for value in values:
            total += value if signs & 1 else -value
            signs >>= 1
        found += total >= reached
    return (1 + found) / (1 + resamples)


def fewest_problems(level: float) -> int:
    """So many problems at least can reach a level: all differences positive, by chance 1 in 2^n."""
    return ceil(log2(1 / level))


def hopeless(differences: Sequence[float], total: int, level: float) -> bool:
    """Whether a trial under way has next to no chance to succeed.

    Conditional power (Lan, Simon, Halperin 1982): even if the true effect were a standard error
    above what was measured so far, the end of the trial would hardly be significant. Stopping can
    only refuse, so it makes no error of the first kind more likely.

    Args:
        differences: of the pairs so far.
        total: pairs of the whole trial.
        level: of its test.
    """
    count = len(differences)
    if count >= total:
        return False
    if count < 2:
        return False
    mean = fsum(differences) / count
    error = sqrt(fsum((one - mean) ** 2 for one in differences) / (count - 1) / count)
    if error == 0:
        return mean <= 0
    normal, done, z = NormalDist(), count / total, mean / error
    drift = (z + 1) / sqrt(done)
    missing = normal.inv_cdf(1 - level) - z * sqrt(done) - drift * (1 - done)
    return 1 - normal.cdf(missing / sqrt(1 - done)) < SLIM
