"""Sums of tries: what is believed of choices, and how sums travel."""

from __future__ import annotations

import json

import numpy as np
import pytest
from orchestrion_values.tries import Tries

from orchestrion import UsageError

NAMES = ("a", "b", "c")


def drawn(n: int, seed: int = 0, scale: float = 1.0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Numbers [n, 2], choices [n] and rewards [n]: b adds 1 + 2 x the first number."""
    rng = np.random.default_rng(seed)
    numbers, places = rng.normal(size=(n, 2)), rng.integers(0, 3, n)
    rewards = (places == 1) * (1 + 2 * numbers[:, 0]) + 0.1 * rng.normal(size=n)
    return numbers, places, scale * rewards


def tries(n: int, seed: int = 0, scale: float = 1.0) -> Tries:
    numbers, places, rewards = drawn(n, seed, scale)
    return Tries.none(NAMES, ("x", "y")).tried(numbers, places.tolist(), rewards.tolist())


def test_with_many_tries_values_are_those_of_least_squares() -> None:
    numbers, places, rewards = drawn(30_000)
    posterior = tries(30_000).posterior()
    assert posterior is not None
    shown = np.random.default_rng(5).normal(size=(4, 2))
    means = posterior.means(np.broadcast_to(shown[:, None], (4, 3, 2)))
    for a in range(3):
        mine = places == a
        x = np.c_[np.ones(mine.sum()), numbers[mine]]
        exact = np.linalg.lstsq(x, rewards[mine])[0]
        assert means[:, a] == pytest.approx(np.c_[np.ones(4), shown] @ exact, abs=0.01)
    assert posterior.noise == pytest.approx(0.1, rel=0.05)


def test_deviations_have_the_scale_of_the_rewards() -> None:
    shown = np.zeros((1, 3, 2))
    for scale in (1e-3, 1.0, 50.0):
        posterior = tries(60, scale=scale).posterior()
        assert posterior is not None
        unsure = posterior.deviations(shown)[0]
        plain = tries(60).posterior()
        assert plain is not None
        assert unsure == pytest.approx(scale * plain.deviations(shown)[0], rel=1e-3)


def test_an_untried_choice_has_the_common_value_and_the_largest_deviation() -> None:
    start = Tries.none(NAMES, ())
    posterior = start.tried(np.zeros((8, 0)), [0, 1] * 4, [0.2, 0.4] * 4).posterior()
    assert posterior is not None
    shown = np.zeros((1, 3, 0))
    assert posterior.means(shown)[0, 2] == pytest.approx(0.3)
    assert posterior.deviations(shown)[0].argmax() == 2


def test_nothing_tried_is_no_belief() -> None:
    assert Tries.none(NAMES, ("x",)).posterior() is None


def test_sums_of_two_runs_are_the_sums_of_all_tries() -> None:
    both = tries(40, 1).merged(tries(70, 2))
    first, second = drawn(40, 1), drawn(70, 2)
    numbers, places, rewards = (np.concatenate(parts) for parts in zip(first, second, strict=True))
    at_once = Tries.none(NAMES, ("x", "y")).tried(numbers, places.tolist(), rewards.tolist())
    assert both.squares == pytest.approx(at_once.squares)
    assert both.rewards == pytest.approx(at_once.rewards)
    assert both.spread == pytest.approx(at_once.spread)


def test_only_choices_of_this_team_are_taken_over() -> None:
    here = Tries.none(("c", "new"), ("x", "y")).merged(tries(90))
    assert here.counts.tolist() == [tries(90).counts[2], 0.0]


def test_other_numbers_cannot_be_merged() -> None:
    with pytest.raises(UsageError, match=r"other numbers \(x\) than this run \(x, y\)"):
        tries(5).merged(Tries.none(NAMES, ("x",)))


def test_a_cap_keeps_averages_and_never_adds() -> None:
    whole, capped = tries(900), tries(900).capped(50)
    assert capped.counts == pytest.approx([50, 50, 50])
    assert capped.rewards[:, 0] / 50 == pytest.approx(whole.rewards[:, 0] / whole.counts)
    few = tries(30)
    assert few.capped(50).counts.tolist() == few.counts.tolist()


def test_statistics_travel_as_json() -> None:
    data = json.loads(json.dumps(tries(20).exported()))
    back = Tries.imported(data)
    assert back.names == NAMES
    assert back.squares.tolist() == tries(20).squares.tolist()


@pytest.mark.parametrize(
    "change",
    [
        {"rewards": [[99.0, 0, 0]] * 3},  # a mean that no squares allow
        {"squares": np.full((3, 3, 3), -5.0).tolist()},
        {"spread": [float("nan")] * 3},
        {"spread": None},
        {"choices": ["a"]},
    ],
)
def test_statistics_that_no_tries_can_have_are_refused(change: dict[str, object]) -> None:
    with pytest.raises(UsageError, match="statistics"):
        Tries.imported({**tries(20).exported(), **change})
