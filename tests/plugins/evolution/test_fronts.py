"""Dominance, fronts, crowding and hypervolume, against their definitions."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st
from orchestrion_evolution.fronts import (
    FAILED,
    Value,
    crowding,
    dominates,
    front_of,
    hypervolume,
    ranks,
)

# Few different numbers, so that equal ones are frequent.
VALUES = st.lists(st.builds(Value, st.integers(0, 6), st.integers(0, 6), st.just(1)), max_size=30)


@given(VALUES)
def test_a_rank_is_how_often_the_front_has_to_be_taken_away(values: list[Value]) -> None:
    left, level, slow = set(range(len(values))), 0, [0] * len(values)
    while left:
        best = {i for i in left if not any(dominates(values[j], values[i]) for j in left)}
        for i in best:
            slow[i] = level
        left, level = left - best, level + 1
    assert ranks(values) == slow


@given(VALUES)
def test_a_front_holds_one_of_each_value_that_nothing_dominates(values: list[Value]) -> None:
    found = [values[i] for i in front_of(values)]
    free = {v for v in values if not any(dominates(other, v) for other in values)}
    assert set(found) == free
    assert len(found) == len(free)
    assert found == sorted(found, key=lambda value: value.cost)


@given(VALUES)
def test_the_hypervolume_counts_dominated_squares(values: list[Value]) -> None:
    squares = sum(
        any(v.quality > q and v.cost <= c for v in values) for q in range(6) for c in range(6)
    )
    assert hypervolume(values, quality=0, cost=6) == squares


@given(VALUES)
def test_the_ends_of_a_front_are_never_crowded(values: list[Value]) -> None:
    front = [values[i] for i in front_of(values)]
    alone = crowding(front)
    if front:
        assert alone[0] == alone[-1] == math.inf
    assert all(one >= 0 for one in alone)


def test_equal_values_crowd_each_other_out() -> None:
    assert crowding([Value(1, 1), Value(2, 2), Value(2, 2), Value(3, 3)])[1:3] == [2.0, 0.0]


def test_what_failed_is_behind_everything() -> None:
    assert dominates(Value(-100.0, 1e9), FAILED)
    assert ranks([FAILED, Value(0, 1)]) == [1, 0]
