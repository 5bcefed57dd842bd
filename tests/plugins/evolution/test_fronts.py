"""Dominance, fronts, crowding and hypervolume, compared with their definitions."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st
from orchestrion_evolution import FAILED, RandomSearch, Space, Value, hypervolume
from orchestrion_evolution.nsga2 import crowding, front_order, ranks
from orchestrion_evolution.search import front_of

# Few different numbers, so that equal values are frequent.
VALUES = st.lists(st.builds(Value, st.integers(0, 6), st.integers(0, 6), st.just(1)), max_size=30)


def dominates(a: Value, b: Value) -> bool:
    """Return whether `a` is at least as good as `b` in both objectives, and better in one."""
    return a[:2] != b[:2] and a.quality >= b.quality and a.cost <= b.cost


@given(VALUES)
def test_a_rank_counts_how_often_the_front_must_be_removed(values: list[Value]) -> None:
    left, level, expected = set(range(len(values))), 0, [0] * len(values)
    while left:
        best = {i for i in left if not any(dominates(values[j], values[i]) for j in left)}
        for i in best:
            expected[i] = level
        left, level = left - best, level + 1
    assert ranks(values) == expected


@given(VALUES)
def test_a_front_holds_one_of_each_value_that_no_other_dominates(values: list[Value]) -> None:
    front = [values[i] for i in front_of(values)]
    not_dominated = {v for v in values if not any(dominates(other, v) for other in values)}
    assert set(front) == not_dominated
    assert len(front) == len(not_dominated)
    assert front == sorted(front, key=lambda value: value.cost)


@given(VALUES)
def test_the_hypervolume_counts_dominated_squares(values: list[Value]) -> None:
    squares = sum(
        any(v.quality > q and v.cost <= c for v in values) for q in range(6) for c in range(6)
    )
    assert hypervolume(values, quality=0, cost=6) == squares


def test_a_crowding_distance_is_the_sum_of_both_gaps_as_shares_of_the_front() -> None:
    front = [Value(2, 1), Value(4, 2), Value(5, 5), Value(12, 6), Value(4, 2, 9)]
    assert crowding(front) == [math.inf, 4 / 5 + 3 / 10, 4 / 5 + 8 / 10, math.inf, 0]
    assert crowding([]) == []


def test_a_front_order_goes_by_rank_and_then_by_crowding_distance() -> None:
    values = [Value(1, 2), Value(1, 1), Value(2, 2), Value(2.2, 2.1), Value(5, 5)]
    order = [i for i, _ in front_order(values)]
    assert order == [1, 4, 3, 2, 0]


def test_a_failed_graph_is_worse_than_everything() -> None:
    assert dominates(Value(-100.0, 1e9), FAILED)
    assert ranks([FAILED, Value(0, 1)]) == [1, 0]
    for cost_weight in (0.0, 1.0):
        assert RandomSearch(Space(("a",)), cost_weight).fitness(FAILED) == -math.inf
