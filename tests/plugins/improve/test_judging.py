"""Whether a change helps: intervals, signs, and giving up early."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from orchestrion_improve.judging import fewest_problems, hopeless, judge

from orchestrion import Key

NUMBERS = st.lists(st.floats(-1, 1), min_size=1, max_size=30)


def by_problem(values: list[float]) -> dict[str, list[float]]:
    return {str(n): [value] for n, value in enumerate(values)}


def luck(draw: Random, count: int, effect: float) -> list[float]:
    """Differences of right-or-wrong pairs whose luck is independent: .5 against .5 + effect."""
    return [(draw.random() < 0.5 + effect) - float(draw.random() < 0.5) for _ in range(count)]


@given(NUMBERS)
def test_the_effect_lies_in_its_interval(values: list[float]) -> None:
    found = judge(by_problem(values), 0.025, Key(1))
    assert found.low - 1e-12 <= found.effect <= found.high + 1e-12
    assert found.pairs == found.problems == len(values)
    assert 0 < found.p <= 1


@given(NUMBERS)
def test_what_helps_one_way_does_not_help_the_other(values: list[float]) -> None:
    there = judge(by_problem(values), 0.025, Key(1))
    back = judge(by_problem([-one for one in values]), 0.025, Key(1))
    assert not (there.helps and back.helps)
    assert back.effect == pytest.approx(-there.effect)


def test_no_difference_at_all_does_not_help() -> None:
    found = judge(by_problem([0.0] * 50), 0.05, Key(1))
    assert (found.effect, found.low, found.high, found.p) == (0, 0, 0, 1)
    assert not found.helps
    assert not found.harms


def test_four_problems_that_all_get_better_do_not_convince() -> None:
    """A bootstrap has no doubt at all here; coins fall so once in sixteen times."""
    few = judge(by_problem([1.0] * 4), 0.025, Key(1))
    assert few.low == 1.0
    assert few.p > 0.025
    assert not few.helps
    assert fewest_problems(0.025) == 6
    assert judge(by_problem([1.0] * 8), 0.025, Key(1)).helps


def test_draws_on_one_problem_are_no_substitute_for_problems() -> None:
    many = {"one": [1.0] * 50, "two": [1.0] * 50}
    assert not judge(many, 0.05, Key(1)).helps
    assert judge(many, 0.05, Key(1)).problems == 2


def test_nothing_helps_if_every_reward_is_missing() -> None:
    assert not judge({"one": []}, 0.05, Key(1)).helps


def test_useless_changes_are_called_helpful_no_more_often_than_allowed() -> None:
    draw = Random(3)
    tries = 300
    found = sum(judge(by_problem(luck(draw, 60, 0.0)), 0.05, Key(n)).helps for n in range(tries))
    assert found <= 0.05 * tries + 3 * (0.05 * 0.95 * tries) ** 0.5


def test_giving_up_saves_half_of_a_useless_trial_and_loses_little_of_a_good_one() -> None:
    draw, total, level = Random(4), 320, 0.05 / 3
    spent, lost = 0, 0
    for _ in range(200):
        useless, good = luck(draw, total, 0.0), luck(draw, total, 0.15)
        looks = [total // 4, total // 2, 3 * total // 4]
        spent += next((n for n in looks if hopeless(useless[:n], total, level)), total)
        lost += any(hopeless(good[:n], total, level) for n in looks)
    assert spent / 200 < 0.7 * total
    assert lost <= 8


def test_a_finished_trial_is_never_given_up() -> None:
    assert not hopeless([-1.0] * 10, 10, 0.05)
    assert hopeless([-1.0] * 5, 10, 0.05)
    assert not hopeless([1.0] * 5, 10, 0.05)
