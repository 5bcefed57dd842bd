"""Agreement of two judgements of the same work, with intervals.

Episodes of one problem are not independent, so intervals are over problems: for correlations a
cluster bootstrap (Field and Welsh 2007), for the AUC the variance for clustered data (Obuchowski
1997, Biometrics 53, 567-578). With a single problem they are over episodes, and state so.

Ranks are computed once, over all episodes; a resample of problems then needs six sums per problem.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence

from attrs import frozen

from orchestrion import JSON, Key
from orchestrion.runs import Estimate, estimate

RESAMPLES = 1000
_WIDTH = 1.959964


@frozen
class Interval:
    """A number with a 95 % interval; NaN if it is not defined, e.g. for equal values.

    Args:
        value: the estimate.
        low: lower end.
        high: upper end.
        count: number of episodes.
        over: the unit of the interval, problems or episodes.
    """

    value: float = math.nan
    low: float = math.nan
    high: float = math.nan
    count: int = 0
    over: str = "problems"

    def excludes(self, number: float) -> bool:
        """Return whether the interval is known and does not contain the number."""
        return self.low > number or self.high < number

    @property
    def known(self) -> bool:
        """Whether estimate and interval are defined."""
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
    count, goods = len(score), sum(good)
    bads = count - goods
    if not goods or not bads:
        return Interval(count=count)
    names, over = _units(clusters)
    everybody = ranks(score)
    among = {
        side: dict(zip([i for i in range(count) if good[i] is side], own, strict=True))
        for side in (True, False)
        for own in [ranks([score[i] for i in range(count) if good[i] is side])]
    }
    # For a good episode the share of bad ones below it, for a bad one of good ones above it.
    beats = [
        (everybody[i] - among[True][i]) / bads
        if good[i]
        else 1 - (everybody[i] - among[False][i]) / goods
        for i in range(count)
    ]
    value = sum(beats[i] for i in range(count) if good[i]) / goods
    width = _WIDTH * math.sqrt(_auc_variance(beats, good, names, value, goods, bads))
    if math.isnan(width):
        return Interval(value, count=count, over=over)
    return Interval(value, max(value - width, 0.0), min(value + width, 1.0), count, over)


def _auc_variance(
    beats: Sequence[float],
    good: Sequence[bool],
    names: Sequence[str],
    value: float,
    goods: int,
    bads: int,
) -> float:
    """Return Obuchowski's variance; NaN with fewer than two clusters on a side."""
    sums: dict[str, list[float]] = {}
    for beat, side, name in zip(beats, good, names, strict=True):
        own = sums.setdefault(name, [0.0, 0.0, 0, 0])
        own[0 if side else 1] += beat - value
        own[2 if side else 3] += 1
    with_good = sum(1 for pair in sums.values() if pair[2])
    with_bad = sum(1 for pair in sums.values() if pair[3])
    if with_good < 2 or with_bad < 2:
        return math.nan
    first = with_good / (with_good - 1) * sum(pair[0] ** 2 for pair in sums.values()) / goods**2
    second = with_bad / (with_bad - 1) * sum(pair[1] ** 2 for pair in sums.values()) / bads**2
    both = sum(pair[0] * pair[1] for pair in sums.values()) * len(sums) / (len(sums) - 1)
    return max(first + second + 2 * both / (goods * bads), 0.0)


def average(values: Sequence[float], clusters: Sequence[str], key: Key) -> Interval:
    """Return the mean over problems of their means."""
    names, over = _units(clusters)
    by_name: dict[str, list[float]] = {}
    for value, name in zip(values, names, strict=True):
        by_name.setdefault(name, []).append(value)
    result: Estimate = estimate([sum(own) / len(own) for own in by_name.values()], key)
    if result.count < 2:
        return Interval(result.mean, count=len(values), over=over)
    return Interval(result.mean, result.low, result.high, len(values), over)


# ------------------------------------------------------------------------- the bootstrap


def _units(clusters: Sequence[str]) -> tuple[Sequence[str], str]:
    """Return the units of resampling: problems, or episodes if there is only one problem."""
    if len(set(clusters)) > 1:
        return clusters, "problems"
    return [str(i) for i in range(len(clusters))], "episodes"


_Sums = tuple[float, ...]
_Statistic = Callable[[_Sums, int], float]


def _bootstrapped(
    columns: Sequence[Sequence[float]], clusters: Sequence[str], key: Key, of: _Statistic
) -> Interval:
    count = len(clusters)
    names, over = _units(clusters)
    ranked = [ranks(column) for column in columns]
    middle = (count + 1) / 2
    sums: dict[str, list[float]] = {}
    for i, name in enumerate(names):
        row = [column[i] - middle for column in ranked]
        terms = [1.0, *row, *(row[a] * row[b] for a, b in _pairs(len(row)))]
        own = sums.setdefault(name, [0.0] * len(terms))
        for place, term in enumerate(terms):
            own[place] += term
    if count < 3 or len(sums) < 3:
        return Interval(count=count, over=over)
    groups = list(sums.values())
    value = of(_added(groups), len(columns))
    draw = key.child("agreement", count, len(groups)).random()
    sample = sorted(
        found
        for _ in range(RESAMPLES)
        if not math.isnan(found := of(_added(draw.choices(groups, k=len(groups))), len(columns)))
    )
    if math.isnan(value) or len(sample) < RESAMPLES / 2:
        return Interval(value, count=count, over=over)
    low, high = sample[int(0.025 * len(sample))], sample[math.ceil(0.975 * len(sample)) - 1]
    return Interval(value, min(low, value), max(high, value), count, over)


def _pairs(columns: int) -> list[tuple[int, int]]:
    return [(a, b) for a in range(columns) for b in range(a, columns)]


def _added(groups: Sequence[Sequence[float]]) -> _Sums:
    return tuple(map(sum, zip(*groups, strict=True)))


def _correlations(sums: _Sums, columns: int) -> dict[tuple[int, int], float]:
    total, means = sums[0], sums[1 : columns + 1]
    products = dict(zip(_pairs(columns), sums[columns + 1 :], strict=True))
    spread = {pair: products[pair] - means[pair[0]] * means[pair[1]] / total for pair in products}
    correlations = {}
    for a, b in spread:
        scale = spread[a, a] * spread[b, b]
        known = min(spread[a, a], spread[b, b]) > 1e-9 * total
        correlations[a, b] = spread[a, b] / math.sqrt(scale) if known else math.nan
    return correlations


def _plain(sums: _Sums, columns: int) -> float:
    return _correlations(sums, columns)[0, 1]


def _partial(sums: _Sums, columns: int) -> float:
    correlations = _correlations(sums, columns)
    xy, xz, yz = correlations[0, 1], correlations[0, 2], correlations[1, 2]
    left = (1 - xz * xz) * (1 - yz * yz)
    return (xy - xz * yz) / math.sqrt(left) if left > 1e-9 else math.nan
