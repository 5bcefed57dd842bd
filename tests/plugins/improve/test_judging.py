"""Whether a change helps: intervals, signs, and giving up early."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from orchestrion_improve.trials import fewest_problems, has_little_chance, judge

from orchestrion import Key

NUMBERS = st.lists(st.floats(-1, 1), min_size=1, max_size=30)


def by_problem(values: list[float]) -> dict[str, list[float]]:
    return {str(n): [value] for n, value in enumerate(values)}


def luck(random: Random, count: int, effect: float) -> list[float]:
    """Differences of right-or-wrong pairs whose luck is independent: .5 against .5 + effect."""
    return [(random.random() < 0.5 + effect) - float(random.random() < 0.5) for _ in range(count)]


@settings(max_examples=30)
@given(NUMBERS)
def test_the_effect_lies_in_its_interval(values: list[float]) -> None:
    verdict = judge(by_problem(values), 0.025, Key(1))
    assert verdict.low - 1e-12 <= verdict.effect <= verdict.high + 1e-12
    assert verdict.pairs == verdict.problems == len(values)
    assert 0 < verdict.p <= 1


@settings(max_examples=30)
@given(NUMBERS)
def test_a_change_and_its_reverse_do_not_both_help(values: list[float]) -> None:
    forward = judge(by_problem(values), 0.025, Key(1))
    backward = judge(by_problem([-value for value in values]), 0.025, Key(1))
    assert not (forward.helps and backward.helps)
    assert backward.effect == pytest.approx(-forward.effect)


def test_no_difference_at_all_does_not_help() -> None:
    verdict = judge(by_problem([0.0] * 50), 0.05, Key(1))
    assert (verdict.effect, verdict.low, verdict.high, verdict.p) == (0, 0, 0, 1)
    assert not verdict.helps
    assert not verdict.harms


def test_four_problems_that_all_improve_are_too_few() -> None:
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
    random = Random(3)
    tries = 150
    helpful = sum(
        judge(by_problem(luck(random, 60, 0.0)), 0.05, Key(n)).helps for n in range(tries)
    )
    assert helpful <= 0.05 * tries + 3 * (0.05 * 0.95 * tries) ** 0.5


def test_giving_up_saves_half_of_a_useless_trial_and_loses_little_of_a_good_one() -> None:
    random, total, level = Random(4), 320, 0.05 / 3
    spent, lost = 0, 0
    for _ in range(200):
        useless, good = luck(random, total, 0.0), luck(random, total, 0.15)
        looks = [total // 4, total // 2, 3 * total // 4]
        spent += next((n for n in looks if has_little_chance(useless[:n], total, level)), total)
        lost += any(has_little_chance(good[:n], total, level) for n in looks)
    assert spent / 200 < 0.7 * total
    assert lost <= 8


def test_a_finished_trial_is_never_given_up() -> None:
    assert not has_little_chance([-1.0] * 10, 10, 0.05)
    assert has_little_chance([-1.0] * 5, 10, 0.05)
    assert not has_little_chance([1.0] * 5, 10, 0.05)
