"""Agreement, bias, and what may be said about them."""

from __future__ import annotations

import math
import statistics

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from orchestrion_judge.agreement import Interval, auc, average, partial, rank_correlation, ranks

from orchestrion import Key

few = st.lists(
    st.tuples(st.integers(0, 5), st.integers(0, 5), st.integers(0, 3)), min_size=3, max_size=30
)


def own(count: int) -> list[str]:
    return [str(i) for i in range(count)]


@given(st.lists(st.integers(0, 9)))
def test_ranks_count_who_is_below_and_half_of_who_is_equal(values: list[int]) -> None:
    wanted = [
        sum(other < one for other in values) + (sum(other == one for other in values) + 1) / 2
        for one in values
    ]
    assert ranks(values) == wanted


@settings(max_examples=15)
@given(few)
def test_the_rank_correlation_is_pearsons_of_the_ranks(rows: list[tuple[int, int, int]]) -> None:
    x, y = [row[0] for row in rows], [row[1] for row in rows]
    found = rank_correlation(x, y, own(len(rows)), Key(1))
    if len(set(x)) == 1 or len(set(y)) == 1:
        assert math.isnan(found.value)
    else:
        assert found.value == pytest.approx(statistics.correlation(ranks(x), ranks(y)), abs=1e-9)


def residuals(y: list[float], z: list[float]) -> list[float]:
    line = statistics.linear_regression(z, y)
    return [b - line.slope * a - line.intercept for a, b in zip(z, y, strict=True)]


@settings(max_examples=15)
@given(few)
def test_the_partial_correlation_is_that_of_what_the_third_leaves(
    rows: list[tuple[int, int, int]],
) -> None:
    x, y, z = ([float(row[i]) for row in rows] for i in range(3))
    found = partial(x, y, z, own(len(rows)), Key(1))
    if min(len(set(x)), len(set(y)), len(set(z))) == 1:
        assert math.isnan(found.value)
        return
    left, right = (residuals(ranks(one), ranks(z)) for one in (x, y))
    if min(max(map(abs, left)), max(map(abs, right))) > 1e-3:
        assert found.value == pytest.approx(statistics.correlation(left, right), abs=1e-6)


@settings(max_examples=15)
@given(few)
def test_the_auc_counts_pairs(rows: list[tuple[int, int, int]]) -> None:
    score, good = [float(row[0]) for row in rows], [row[2] > 1 for row in rows]
    found = auc(score, good, own(len(rows)))
    pairs = [
        (a > b) + (a == b) / 2
        for a, is_good in zip(score, good, strict=True)
        for b, is_better in zip(score, good, strict=True)
        if is_good and not is_better
    ]
    if not pairs:
        assert math.isnan(found.value)
        return
    assert found.value == pytest.approx(sum(pairs) / len(pairs))
    assert not found.known or 0 <= found.low <= found.value <= found.high <= 1


def draws(seed: int, problems: int, each: int) -> tuple[list[float], list[float], list[str]]:
    """Two unrelated judgements, each with a share that all work on a problem has in common."""
    draw = Key(seed).random()
    x, y, names = [], [], []
    for problem in range(problems):
        shared = draw.gauss(0, 1), draw.gauss(0, 1)
        for _ in range(each):
            x.append(shared[0] + draw.gauss(0, 1))
            y.append(shared[1] + draw.gauss(0, 1))
            names.append(f"p{problem}")
    return x, y, names


def test_the_interval_of_a_correlation_covers_the_truth_although_problems_repeat() -> None:
    missed = naive = 0
    for seed in range(20):
        x, y, names = draws(seed, problems=8, each=10)
        missed += rank_correlation(x, y, names, Key(seed)).excludes(0)
        naive += rank_correlation(x, y, own(len(x)), Key(seed)).excludes(0)
    assert missed <= 4, "of 20 at 5 % each, with 8 problems"
    assert naive > missed + 2, "episodes taken as independent would claim too much"


def test_the_interval_of_the_auc_covers_the_truth_although_problems_repeat() -> None:
    covered = 0
    for seed in range(150):
        x, y, names = draws(seed, problems=30, each=6)
        covered += not auc(x, [one > 0 for one in y], names).excludes(0.5)
    assert 0.88 <= covered / 150 <= 1


X = [3.0, 1.0, 4.0, 1.0, 5.0, 9.0, 2.0, 6.0, 5.0, 3.0, 5.0, 8.0]
Y = [2.0, 7.0, 1.0, 8.0, 2.0, 8.0, 1.0, 8.0, 2.0, 8.0, 4.0, 5.0]
Z = [1.0, 4.0, 1.0, 4.0, 2.0, 1.0, 3.0, 5.0, 6.0, 2.0, 3.0, 7.0]
NAMES, ONE = list("aaabbbccddee"), ["p"] * 12


@pytest.mark.parametrize(
    ("measured", "value", "low", "high", "over"),
    [
        (rank_correlation(X, Y, NAMES, Key(1)), 0.14157969, -0.40809883, 0.59910088, "problems"),
        (
            rank_correlation(X, Y, ["p"] * 12, Key(1)),
            0.14157969,
            -0.47323149,
            0.81554113,
            "episodes",
        ),
        (partial(X, Y, Z, NAMES, Key(1)), 0.12778373, -0.52737213, 0.81128544, "problems"),
        (auc(X, [y > 4 for y in Y], NAMES), 0.54166667, 0.18870158, 0.89463175, "problems"),
        (average(X, NAMES, Key(1)), 4.43333333, 3.4, 5.5, "problems"),
    ],
    ids=["correlation", "of one problem", "partial", "auc", "average"],
)
def test_an_interval_is_the_same_for_the_same_key(
    measured: Interval, value: float, low: float, high: float, over: str
) -> None:
    numbers = [measured.value, measured.low, measured.high]
    assert numbers == pytest.approx([value, low, high], abs=1e-8)
    assert (measured.count, measured.over, measured.known) == (12, over, True)
    assert measured.excludes(low - 0.01)
    assert measured.excludes(high + 0.01)
    assert not measured.excludes(value)


@pytest.mark.parametrize(
    ("measured", "value"),
    [
        *((rank_correlation(X[:n], X[:n], own(n), Key(1)), math.nan) for n in (0, 1, 2)),
        (rank_correlation(X, Y, [*"a" * 6, *"b" * 6], Key(1)), math.nan),
        (auc(X, [True] + [False] * 11, NAMES), 3.5 / 11),
        (auc([1.0, 2.0], [True, True], ["a", "b"]), math.nan),
        (average([1.0], ["a"], Key(1)), 1.0),
    ],
)
def test_few_episodes_have_no_interval(measured: Interval, value: float) -> None:
    assert not measured.known
    assert not measured.excludes(0)
    assert [measured.value, measured.low] == pytest.approx([value, math.nan], nan_ok=True)
    shown = measured.as_json()
    assert shown["value"] == (None if math.isnan(value) else measured.value)
    assert (shown["low"], shown["high"], shown["over"]) == (None, None, measured.over)
