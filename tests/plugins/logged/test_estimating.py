"""Estimators against closed forms and enumeration."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from orchestrion_logged.estimating import (
    Overlap,
    Terms,
    direct,
    dr,
    effective,
    ips,
    mean_of,
    snips,
)
from scipy import stats


def terms(reward: list[float], ratio: list[float], value: float, guess: float) -> Terms:
    """Episodes of one decision, with a model that says the same everywhere."""
    n = len(reward)
    return Terms(
        np.array(reward), np.array(ratio), np.full(n, value), np.full(n, guess), np.arange(n)
    )


def test_estimates_by_hand() -> None:
    case = terms([1.0, 0.0, 1.0, 1.0], [2.0, 2.0, 0.0, 1.0], value=0.5, guess=0.25)
    assert ips(case).mean == pytest.approx((2 + 1) / 4)
    assert snips(case).mean == pytest.approx((2 + 1) / 5)
    assert direct(case).mean == 0.5
    assert dr(case)[0].mean == pytest.approx(0.5 + (2 * 0.75 - 2 * 0.25 + 0.75) / 4)


def test_effective_size_is_kishs() -> None:
    assert effective(np.ones(7)) == pytest.approx(7)
    assert effective(np.array([3.0, 1.0])) == pytest.approx(16 / 10)
    assert effective(np.zeros(3)) == 0


def test_the_interval_is_students_where_weights_are_even() -> None:
    from scipy.stats import t

    draw = np.random.default_rng(1)
    reward = draw.normal(size=40)
    estimate, values = dr(terms(reward.tolist(), [1.0] * 40, value=0.0, guess=0.0))
    half = t.ppf(0.975, 39) * values.std(ddof=1) / np.sqrt(40)
    assert estimate.high - estimate.mean >= half
    assert estimate.high - estimate.mean == pytest.approx(half, rel=0.05)


@pytest.mark.parametrize("wrong", [0.0, 5.0])
def test_several_steps_are_unbiased_whatever_the_model_says(wrong: float) -> None:
    """Two steps, two choices: the mean over all trajectories, by their probability, is exact."""
    mu, pi = (0.3, 0.7), (0.9, 0.1)
    reward = {(0,): 1.0, (1,): 0.0, (0, 0): 0.0, (0, 1): 2.0, (1, 0): 3.0, (1, 1): -1.0}
    truth = sum(
        pi[a] * pi[b] * (reward[(a,)] + reward[(a, b)]) for a, b in product((0, 1), repeat=2)
    )
    total = {"dr": 0.0, "ips": 0.0}
    for a, b in product((0, 1), repeat=2):
        value = np.array([0.4, -0.2 + a]) + wrong
        guess = np.array([0.1 + a, 0.7 * b]) - wrong
        ratio = np.array([pi[a] / mu[a], pi[b] / mu[b]])
        got = np.array([reward[(a,)], reward[(a, b)]])
        # v must be the mean of q under pi for eq. 10 to be unbiased.
        value[0] = pi[0] * (0.1 - wrong) + pi[1] * (1.1 - wrong)
        value[1] = pi[0] * (0.0 - wrong) + pi[1] * (0.7 - wrong)
        episode = Terms(got, ratio, value, guess, np.array([0]))
        total["dr"] += mu[a] * mu[b] * float(dr(episode)[1][0])
        total["ips"] += mu[a] * mu[b] * ips(episode).mean
    assert total["dr"] == pytest.approx(truth)
    assert total["ips"] == pytest.approx(truth)


@pytest.mark.parametrize(
    ("weights", "outside", "reason"),
    [
        (np.ones(100), 0.0, ""),
        (np.ones(100), 0.4, "never logged, in 40%"),
        (np.zeros(100), 0.0, "average 0.00"),
        (np.array([1.0, 0.0] * 200), 0.0, "average 0.50"),
        (np.array([100.0] + [0.0] * 99), 0.0, "1.0 effective"),
    ],
)
def test_no_overlap_is_refused_in_words(weights: np.ndarray, outside: float, reason: str) -> None:
    refusal = Overlap.of(weights, outside).refusal(20)
    assert (reason in refusal) if reason else refusal == ""


def test_the_interval_of_a_mean_is_students() -> None:
    values = np.array([0.0, 1.0, 1.0, 0.25])
    low, high = stats.t.interval(0.95, 3, values.mean(), stats.sem(values))
    mean = mean_of(values)
    assert (mean.low, mean.high) == pytest.approx((low, high))
    # With the weight of three, there is one degree of freedom less.
    low, high = stats.t.interval(0.95, 2, values.mean(), stats.sem(values))
    fewer = mean_of(values, count=3.0)
    assert (fewer.low, fewer.high) == pytest.approx((low, high))
