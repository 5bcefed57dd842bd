"""Agreement of two judgements of the same work, with intervals.

Episodes of one problem are not independent, so intervals are over problems: for correlations a
cluster bootstrap (Field and Welsh 2007), for the AUC the variance for clustered data (Obuchowski
1997, Biometrics 53, 567-578). With a single problem they are over episodes, and state so.

Ranks are computed once, over all episodes; a resample of problems then needs six sums per problem.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations, combinations_with_replacement

from attrs import frozen

from orchestrion import JSON, Key
from orchestrion.runs import estimate

RESAMPLES = 1000
_WIDTH = 1.959964


@frozen
class Interval:
    """A number with a 95 % interval; NaN if it is not defined, e.g. for equal values."""

    value: float = math.nan
    low: float = math.nan
    high: float = math.nan
    count: int = 0  # of episodes
    over: str = "problems"  # the unit of the interval, or "episodes"

    def excludes(self, number: float) -> bool:
        """Return whether the interval is known and does not contain the number."""
        return self.low > number or self.high < number

    @property
    def known(self) -> bool:
        """Return whether estimate and interval are defined."""
        return not (math.isnan(self.value) or math.isnan(self.low))

    def as_json(self) -> JSON:
        """Return the numbers for reports; null for unknown ones."""
        numbers = {"value": self.value, "low": self.low, "high": self.high}
        plain = {name: None if math.isnan(number) else number for name, number in numbers.items()}
        return {**plain, "episodes": self.count, "over": self.over}


def ranks(values: Sequence[float]) -> list[float]:
    """Return ranks from 1; equal values get their mean rank."""
    ordered = sorted(values)
    return [(bisect_left(ordered, v) + bisect_right(ordered, v) + 1) / 2 for v in values]


def rank_correlation(
    x: Sequence[float], y: Sequence[float], clusters: Sequence[str], key: Key
) -> Interval:
    """Return Spearman's correlation."""
    return _bootstrapped((x, y), clusters, key, _plain)


def partial(
    x: Sequence[float],
    y: Sequence[float],
    given: Sequence[float],
    clusters: Sequence[str],
    key: Key,
) -> Interval:
    """Return the partial Spearman correlation of x and y given a third variable."""
    return _bootstrapped((x, y, given), clusters, key, _partial)


def auc(score: Sequence[float], good: Sequence[bool], clusters: Sequence[str]) -> Interval:
    """Return how often a good episode has a higher score than a bad one; ties count half."""
    bad_scores, good_scores = (
        sorted(s for s, is_good in zip(score, good, strict=True) if is_good is side)
        for side in (False, True)
    )
    if not good_scores or not bad_scores:
        return Interval(count=len(score))
    # For a good episode the share of bad ones below it, for a bad one of good ones above it.
    shares = [
        _share_below(bad_scores, s) if is_good else 1 - _share_below(good_scores, s)
        for s, is_good in zip(score, good, strict=True)
    ]
    value = sum(s for s, is_good in zip(shares, good, strict=True) if is_good) / len(good_scores)
    names, over = _units(clusters)
    width = _WIDTH * math.sqrt(_auc_variance(shares, good, names, value))
    if math.isnan(width):
        return Interval(value, count=len(score), over=over)
    return Interval(value, max(value - width, 0.0), min(value + width, 1.0), len(score), over)


def _share_below(ordered: Sequence[float], score: float) -> float:
    """Return the share of sorted scores below a score; equal ones count half."""
    return (bisect_left(ordered, score) + bisect_right(ordered, score)) / 2 / len(ordered)


def _auc_variance(
    shares: Sequence[float], good: Sequence[bool], names: Sequence[str], value: float
) -> float:
    """Return Obuchowski's variance; NaN with fewer than two clusters on a side."""
    by_cluster: dict[str, dict[bool, list[float]]] = {}
    for share, side, name in zip(shares, good, names, strict=True):
        by_cluster.setdefault(name, {True: [], False: []})[side].append(share - value)
    variance = 0.0
    sums: dict[bool, list[float]] = {}
    for side in (True, False):
        sums[side] = [sum(cluster[side]) for cluster in by_cluster.values()]
        clusters = sum(bool(cluster[side]) for cluster in by_cluster.values())
        if clusters < 2:
            return math.nan
        squares = sum(total**2 for total in sums[side])
        variance += clusters / (clusters - 1) * squares / good.count(side) ** 2
    products = [a * b for a, b in zip(sums[True], sums[False], strict=True)]
    both = sum(products) * len(by_cluster) / (len(by_cluster) - 1)
    return max(variance + 2 * both / (good.count(True) * good.count(False)), 0.0)


def average(values: Sequence[float], clusters: Sequence[str], key: Key) -> Interval:
    """Return the mean over problems of their means."""
    names, over = _units(clusters)
    by_name: dict[str, list[float]] = {}
    for value, name in zip(values, names, strict=True):
        by_name.setdefault(name, []).append(value)
    result = estimate([sum(own) / len(own) for own in by_name.values()], key)
    if result.count < 2:
        return Interval(result.mean, count=len(values), over=over)
    return Interval(result.mean, result.low, result.high, len(values), over)


# ------------------------------------------------------------------------- the bootstrap


def _units(clusters: Sequence[str]) -> tuple[Sequence[str], str]:
    """Return the units of resampling: problems, or episodes if there is only one problem."""
    if len(set(clusters)) > 1:
        return clusters, "problems"
    return [str(i) for i in range(len(clusters))], "episodes"


def _bootstrapped(
    columns: Sequence[Sequence[float]],
    clusters: Sequence[str],
    key: Key,
    statistic: Callable[[Sequence[float]], float],
) -> Interval:
    """Return a statistic of the sums that `_sums` gives, with its interval over clusters."""
    count = len(clusters)
    names, over = _units(clusters)
    groups = _sums([ranks(column) for column in columns], names)
    if count < 3 or len(groups) < 3:
        return Interval(count=count, over=over)
    value = statistic(_added(groups))
    draw = key.child("agreement", count, len(groups)).random()
    resamples = (draw.choices(groups, k=len(groups)) for _ in range(RESAMPLES))
    values = [statistic(_added(resample)) for resample in resamples]
    sample = sorted(number for number in values if not math.isnan(number))
    if math.isnan(value) or len(sample) < RESAMPLES / 2:
        return Interval(value, count=count, over=over)
    low, high = sample[int(0.025 * len(sample))], sample[math.ceil(0.975 * len(sample)) - 1]
    return Interval(value, min(low, value), max(high, value), count, over)


def _sums(ranked: Sequence[Sequence[float]], names: Sequence[str]) -> list[list[float]]:
    """Return sums by cluster: of ones, of each column less its middle, of products of columns."""
    middle = (len(names) + 1) / 2
    sums: dict[str, list[float]] = {}
    for i, name in enumerate(names):
        row = [column[i] - middle for column in ranked]
        terms = [1.0, *row, *(a * b for a, b in combinations_with_replacement(row, 2))]
        sums[name] = [a + b for a, b in zip(sums.get(name, [0.0] * len(terms)), terms, strict=True)]
    return list(sums.values())


def _added(groups: Sequence[Sequence[float]]) -> list[float]:
    return [sum(terms) for terms in zip(*groups, strict=True)]


def _correlations(sums: Sequence[float], columns: int) -> Iterator[float]:
    """Yield the correlation of each pair of columns, from the sums over all clusters."""
    total, means = sums[0], sums[1 : columns + 1]
    pairs = list(combinations_with_replacement(range(columns), 2))
    products = zip(pairs, sums[columns + 1 :], strict=True)
    spread = {(a, b): product - means[a] * means[b] / total for (a, b), product in products}
    for a, b in combinations(range(columns), 2):
        known = min(spread[a, a], spread[b, b]) > 1e-9 * total
        scale = spread[a, a] * spread[b, b]
        yield spread[a, b] / math.sqrt(scale) if known else math.nan


def _plain(sums: Sequence[float]) -> float:
    return next(_correlations(sums, 2))


def _partial(sums: Sequence[float]) -> float:
    xy, xz, yz = _correlations(sums, 3)
    left = (1 - xz * xz) * (1 - yz * yz)
    return (xy - xz * yz) / math.sqrt(left) if left > 1e-9 else math.nan
