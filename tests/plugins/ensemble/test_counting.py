"""Counting votes: exact enumerations, weights, ties, and what must not matter."""

from __future__ import annotations

from itertools import pairwise
from math import log, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st
from orchestrion_ensemble.average import shares_of
from orchestrion_ensemble.votes import (
    Plurality,
    decide,
    leaders_of,
    log_odds,
    smoothed,
    tally,
    uncatchable,
    vote_accuracy,
    weigh,
)

from orchestrion import Key
from tests.plugins.ensemble.support import ballots, combine, votes

NINE_SIX = [0.9, 0.6, 0.6, 0.6, 0.6]
SIX = [0.8, 0.75, 0.7, 0.65, 0.6, 0.3]

# ------------------------------------------------------------------ exact enumerations


@pytest.mark.parametrize(
    ("accuracies", "plurality", "by_accuracy", "by_log_odds"),
    [
        (NINE_SIX, 0.78624, 0.78624, 0.9),
        ([0.9, 0.9, 0.4], 0.882, 0.882, 0.918),
        (SIX, 0.75017, 0.8401, 0.870305),
        ([0.7] * 5, 0.83692, 0.83692, 0.83692),
    ],
)
def test_exact_accuracies_of_votes(
    accuracies: list[float], plurality: float, by_accuracy: float, by_log_odds: float
) -> None:
    assert vote_accuracy(accuracies) == pytest.approx(plurality, abs=1e-9)
    assert vote_accuracy(accuracies, accuracies) == pytest.approx(by_accuracy, abs=1e-9)
    odds = [log_odds(p) for p in accuracies]
    assert vote_accuracy(accuracies, odds) == pytest.approx(by_log_odds, abs=1e-9)


@given(st.lists(st.floats(0.05, 0.95), min_size=1, max_size=6))
def test_log_odds_are_never_worse_than_the_best_member_or_any_other_weights(
    accuracies: list[float],
) -> None:
    best = vote_accuracy(accuracies, [log_odds(p) for p in accuracies])
    assert best >= max(accuracies) - 1e-9
    assert best >= vote_accuracy(accuracies) - 1e-9
    assert best >= vote_accuracy(accuracies, accuracies) - 1e-9


# ------------------------------------------------------------------ weights


def test_log_odds_are_zero_at_chance_and_negative_below() -> None:
    assert log_odds(0.5) == 0
    assert log_odds(0.25, 4) == pytest.approx(0, abs=1e-12)
    assert log_odds(0.4) == pytest.approx(log(0.4 / 0.6))
    assert log_odds(0.1, 4) < 0 < log_odds(0.3, 4)


def test_log_odds_stay_finite_at_certainty() -> None:
    assert log_odds(1.0) == pytest.approx(-log_odds(0.0))
    assert log_odds(1.0) < 20


@pytest.mark.parametrize("bad", [(-0.1, 2), (1.1, 2), (nan, 2), (0.5, 1)])
def test_log_odds_of_nonsense_are_refused(bad: tuple[float, int]) -> None:
    with pytest.raises(ValueError, match="log-odds need"):
        log_odds(*bad)


def test_huge_weights_are_scaled_without_overflow() -> None:
    assert shares_of([1e308, 1e308]) == [0.5, 0.5]


def test_a_smoothed_accuracy_starts_from_its_prior() -> None:
    assert smoothed(0, 0) == 0.5
    assert smoothed(9, 10, 2, 2) == 11 / 14


def test_weights_of_votes_may_be_negative() -> None:
    assert tally(["a", "b"], [1.0, -2.0]) == {"a": 1.0, "b": -2.0}


# ------------------------------------------------------------------ what must not matter


@given(votes, st.lists(st.floats(-3, 3), min_size=7, max_size=7), st.floats(1e-6, 1e6))
def test_scaling_all_weights_changes_nothing(
    said: list[str | None], weights: list[float], factor: float
) -> None:
    own = weights[: len(said)]
    # Differences at the tolerance are neither equal nor different.
    sums = sorted(tally(said, own).values())
    if any(0 < b - a < 1e-7 for a, b in pairwise(sums)):
        return
    if any(0 < abs(score) < 1e-7 for score in sums):
        return
    one = weigh(ballots(*said), own, (), "abstain", Key(1))
    other = weigh(ballots(*said), [factor * w for w in own], (), "abstain", Key(1))
    assert (one.status, one.answer) == (other.status, other.answer)
    assert set(one.leaders) == set(other.leaders)


def test_a_tie_survives_sums_that_differ_in_the_last_bit() -> None:
    assert 0.1 + 0.2 != 0.3
    result = weigh(ballots("a", "a", "b"), [0.1, 0.2, 0.3], (), "abstain", Key(1))
    assert result.status == "tie"
    assert set(result.leaders) == {"a", "b"}


# ------------------------------------------------------------------ ties


def test_a_tie_names_all_leaders_and_the_rule_that_chose() -> None:
    cast = ballots("b", "a", "a", "b", "c")
    result = decide({"b": 2, "a": 2, "c": 1}, cast, "first_by_member_order", Key(1))
    assert result.status == "tie"
    assert result.leaders == ("b", "a")
    assert (result.answer, result.rule) == ("b", "first_by_member_order")


def test_a_tie_may_be_left_open() -> None:
    result = combine(Plurality("abstain"), ballots("a", "b"))
    assert (result.status, result.answer) == ("tie", None)


def test_a_tie_is_broken_by_weight_or_confidence_unless_they_are_equal() -> None:
    cast = ballots("a", "b", confidence=[0.3, 0.8])
    assert combine(Plurality("by_weight", {"v0": 3.0, "v1": 1.0}), cast).answer == "a"
    assert combine(Plurality("by_confidence"), cast).answer == "b"
    assert combine(Plurality("by_weight"), cast).answer is None, "equal weights tell nothing"


def test_a_random_tie_follows_the_key_and_is_fair() -> None:
    cast = ballots("a", "b")
    drawn = [combine(Plurality("seeded_random"), cast, seed).answer for seed in range(400)]
    assert drawn == [combine(Plurality("seeded_random"), cast, seed).answer for seed in range(400)]
    assert 150 < drawn.count("a") < 250


# ------------------------------------------------------------------ catching up


@given(votes, st.lists(st.sampled_from(["a", "b", "new", None]), max_size=4), st.data())
def test_an_uncatchable_answer_wins_with_any_remaining_votes(
    said: list[str | None], later: list[str | None], data: st.DataObject
) -> None:
    size = len(said) + len(later)
    weights = data.draw(st.lists(st.floats(-2, 3), min_size=size, max_size=size))
    leader = uncatchable(tally(said, weights[: len(said)]), weights[len(said) :])
    if leader is not None:
        assert leaders_of(tally([*said, *later], weights)) == [leader]


def test_a_lead_as_large_as_what_is_outstanding_can_be_caught() -> None:
    assert uncatchable({"a": 3, "b": 1}, [1, 1]) is None
    assert uncatchable({"a": 4, "b": 1}, [1, 1]) == "a"
    assert uncatchable({"a": 2}, [1, 1]) is None, "an answer nobody named yet could draw level"
