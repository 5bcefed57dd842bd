"""Pools, and weights learned from likelihoods, against independent oracles."""

from __future__ import annotations

from math import exp, log

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from orchestrion_ensemble.average import Average, linear_pool, log_pool
from orchestrion_ensemble.interfaces import Ballot, Example
from orchestrion_ensemble.weights import (
    bma_weights,
    log_score,
    pseudo_bma_plus_weights,
    stacking_weights,
)
from scipy.special import softmax

from orchestrion import Key, UsageError
from tests.plugins.ensemble.support import PROBLEM, combine, silent

A, B = {"x": 0.8, "y": 0.2}, {"x": 0.3, "y": 0.3, "z": 0.4}

tables = st.integers(1, 5).flatmap(
    lambda k: st.lists(
        st.lists(st.floats(0.01, 1), min_size=k, max_size=k), min_size=1, max_size=12
    )
)


def likelihoods(n: int, k: int, seed: int) -> np.ndarray:
    """n points by k members."""
    return np.random.default_rng(seed).beta(2, 2, size=(n, k))


# ------------------------------------------------------------------ pools


def test_members_are_aligned_to_one_class_list_first() -> None:
    assert linear_pool([A, B]) == pytest.approx({"x": 0.55, "y": 0.25, "z": 0.2})


def test_the_log_pool_is_the_geometric_mean() -> None:
    pooled = log_pool([A, {"x": 0.5, "y": 0.5}], [1, 3])
    raw = {"x": 0.8**0.25 * 0.5**0.75, "y": 0.2**0.25 * 0.5**0.75}
    assert pooled == pytest.approx({name: value / sum(raw.values()) for name, value in raw.items()})


def test_a_hard_zero_is_no_veto() -> None:
    sure, other = {"x": 1.0, "y": 0.0}, {"x": 0.01, "y": 0.99}
    assert 0 < log_pool([sure, other], [1, 1])["y"] < 0.1


@given(st.permutations([0, 1, 2]), st.floats(1e-6, 1e6))
def test_neither_order_nor_scale_of_members_changes_a_pool(order: list[int], factor: float) -> None:
    members, weights = [A, B, {"z": 1.0}], [1.0, 2.0, 0.5]
    shuffled, scaled = [members[i] for i in order], [factor * weights[i] for i in order]
    for pool in (linear_pool, log_pool):
        assert pool(shuffled, scaled) == pytest.approx(pool(members, weights), rel=1e-12)


# ------------------------------------------------------------------ BMA


def test_bma_is_the_softmax_of_total_log_likelihood() -> None:
    for n, k, seed in ((1, 2, 0), (30, 4, 1), (400, 3, 2)):
        values = likelihoods(n, k, seed)
        assert bma_weights(values) == pytest.approx(softmax(np.log(values).sum(0)), abs=1e-9)


def test_bma_does_not_underflow_and_collapses_on_one_member() -> None:
    values = np.tile([[1e-5, 2e-5]], (5000, 1))
    assert bma_weights(values).tolist() == [0.0, 1.0]


def test_pseudo_bma_plus_is_softer_and_follows_its_seed() -> None:
    values = likelihoods(60, 3, 5)
    hard, soft = bma_weights(values), pseudo_bma_plus_weights(values, seed=1)
    assert soft.max() < hard.max()
    assert soft.sum() == pytest.approx(1)
    assert (soft == pseudo_bma_plus_weights(values, seed=1)).all()
    assert (soft != pseudo_bma_plus_weights(values, seed=2)).any()


# ------------------------------------------------------------------ stacking


@settings(max_examples=80, deadline=None)
@given(tables)
def test_no_direction_improves_on_the_stacking_weights(table: list[list[float]]) -> None:
    """At the optimum of a concave problem every derivative is at most their mean, which is 1."""
    values = np.array(table)
    w = stacking_weights(values)
    assert w.min() >= 0
    assert w.sum() == pytest.approx(1)
    assert (values / (values @ w)[:, None]).mean(axis=0).max() <= 1 + 1e-9


@settings(max_examples=40, deadline=None)
@given(tables, st.data())
def test_neither_order_of_points_nor_their_scale_changes_weights(
    table: list[list[float]], data: st.DataObject
) -> None:
    values = np.array(table)
    shuffled = np.array(data.draw(st.permutations(table))) * 0.37
    for learn in (bma_weights, stacking_weights):
        one, other = learn(values), learn(shuffled)
        assert log_score(values, one) == pytest.approx(log_score(values, other), abs=1e-8)
    columns = data.draw(st.permutations(range(values.shape[1])))
    assert bma_weights(values[:, columns]) == pytest.approx(bma_weights(values)[columns])


def test_stacking_uses_both_of_two_complementary_members_where_bma_selects() -> None:
    rng = np.random.default_rng(4)
    first = rng.random(400) < 0.52
    values = np.column_stack(
        [np.where(first, 0.8, 0.35), np.where(first, 0.35, 0.8), np.full(400, 0.5)]
    )
    stacked, selected = stacking_weights(values), bma_weights(values)
    assert 0.35 < stacked[0] < 0.65
    assert stacked[2] < 1e-6
    assert selected.max() > 0.9
    assert log_score(values, stacked) > log_score(values, selected) + 0.01


# ------------------------------------------------------------------ the aggregator


def soft(*rows: dict[str, float] | None) -> list[Ballot]:
    """Ballots with probabilities."""
    return [
        silent(f"v{i}") if row is None else Ballot(f"v{i}", probabilities=row)
        for i, row in enumerate(rows)
    ]


def test_averaging_can_elect_what_no_majority_prefers() -> None:
    given_rows = soft({"x": 0.55, "y": 0.45}, {"x": 0.55, "y": 0.45}, {"y": 1.0})
    result = combine(Average(), given_rows)
    assert (result.status, result.answer) == ("winner", "y")
    assert result.probabilities == pytest.approx({"x": 1.1 / 3, "y": 1.9 / 3})


def test_a_failed_member_leaves_the_average_and_lowers_coverage() -> None:
    result = combine(Average(), soft({"x": 0.9, "y": 0.1}, None))
    assert (result.answer, result.used) == ("x", 1)


def test_if_all_with_weight_fail_the_others_are_averaged_equally() -> None:
    result = combine(Average(weights={"v0": 1.0, "v1": 0.0}), soft(None, {"x": 0.9, "y": 0.1}))
    assert result.answer == "x"
    assert result.notes == ("no voter with a weight answered: all are equal",)


def test_without_probabilities_there_is_nothing_to_average() -> None:
    result = combine(Average(), [Ballot("v0", answer="x")])
    assert (result.status, result.notes) == ("no_consensus", ("nobody gave probabilities",))


def test_an_average_may_tie() -> None:
    result = combine(Average(tie="abstain"), soft({"x": 0.5, "y": 0.5}))
    assert (result.status, set(result.leaders)) == ("tie", {"x", "y"})


@pytest.mark.parametrize("fit", ["stacking", "bma", "pseudo-bma", "pseudo-bma-plus"])
def test_weights_are_learned_from_the_probabilities_of_the_truth(fit: str) -> None:
    good, poor = {"x": 0.9, "y": 0.1}, {"x": 0.4, "y": 0.6}
    example = Example(PROBLEM, tuple(soft(good, poor)), (None, None), "x")
    skipped = Example(PROBLEM, tuple(soft(good, None)), (None, None), "x")
    aggregator = Average(fit=fit)  # type: ignore[arg-type]
    weights = aggregator.learn([example] * 20 + [skipped], Key(1))["weights"]
    assert sum(weights.values()) == pytest.approx(1)
    assert weights["v0"] > 0.99
    if fit == "bma":
        expected = 1 / (1 + exp(20 * (log(0.4) - log(0.9))))
        assert weights["v0"] == pytest.approx(expected, abs=1e-12)


def test_learning_without_probabilities_is_refused() -> None:
    example = Example(PROBLEM, tuple(soft(None, None)), (None, None), None)
    with pytest.raises(UsageError, match="no weights can be learned"):
        Average().learn([example], Key(1))
