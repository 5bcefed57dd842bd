"""Group-relative advantages, credit and rank correlation."""

from __future__ import annotations

import itertools
from math import fsum

import pytest
from hypothesis import given
from hypothesis import strategies as st
from orchestrion_beam.comparison import ranks_of, spearman
from orchestrion_beam.interfaces import credits_by_agent, equal_shares, group_advantages

rewards = st.lists(
    st.one_of(st.none(), st.floats(-100, 100).map(lambda x: round(x, 3))), max_size=12
)
scales = st.sampled_from(["mean", "std"])


@given(rewards, scales)
def test_advantages_sum_to_zero_and_keep_the_order_of_rewards(
    group: list[float | None], scale: str
) -> None:
    advantages = group_advantages(group, scale)  # type: ignore[arg-type]
    assert [a is None for a in advantages] == [a is None for a in group]
    known = [(reward, a) for reward, a in zip(group, advantages, strict=True) if a is not None]
    assert fsum(a for _, a in known) == pytest.approx(0, abs=1e-9)
    for (r1, a1), (r2, a2) in itertools.pairwise(known):
        assert r1 is not None
        assert r2 is not None
        assert (a1 > a2) == (r1 > r2)


def test_a_worked_example() -> None:
    assert group_advantages([1.0, 1.0, 0.0, 0.0]) == [0.5, 0.5, -0.5, -0.5]
    advantages = group_advantages([1.0, 1.0, 0.0, 0.0], "std")
    assert advantages == pytest.approx([0.8660254, 0.8660254, -0.8660254, -0.8660254])


@pytest.mark.parametrize("scale", ["mean", "std"])
@pytest.mark.parametrize("reward", [0.1, -3.0, 1e-9, 0.7])
def test_groups_of_one_and_equal_groups_have_exactly_no_advantage(
    scale: str, reward: float
) -> None:
    for size in (1, 2, 7):
        advantages = group_advantages([reward] * size, scale)  # type: ignore[arg-type]
        assert advantages == [0.0] * size


def test_missing_rewards_have_no_advantage_and_are_not_in_the_mean() -> None:
    assert group_advantages([1.0, None, 0.0]) == [0.5, None, -0.5]
    assert group_advantages([None, 0.4]) == [None, 0.0]
    assert group_advantages([]) == []


def test_the_least_deviation_keeps_tiny_differences_small() -> None:
    nearly = [0.5, 0.5, 0.5, 0.501]
    assert max(map(float, group_advantages(nearly, "std"))) == pytest.approx(1.5)  # type: ignore[arg-type]
    floored = group_advantages(nearly, "std", least_std=0.05)
    assert max(map(float, floored)) == pytest.approx(0.015)  # type: ignore[arg-type]


@given(st.floats(-5, 5), st.integers(0, 9))
def test_equal_shares_sum_to_the_advantage(advantage: float, turns: int) -> None:
    shares = equal_shares(advantage, turns)
    assert len(shares) == turns
    assert fsum(shares) == pytest.approx(advantage if turns else 0)
    assert equal_shares(None, turns) == (0.0,) * turns
    assert credits_by_agent(["a", "b", "a"], [1.0, 2.0, 0.5]) == {"a": 1.5, "b": 2.0}


# ------------------------------------------------------------------------- rank correlation


def test_equal_numbers_share_their_mean_rank() -> None:
    assert ranks_of([3.0, 1.0, 3.0, 2.0]) == [2.5, 0.0, 2.5, 1.0]


def test_spearman_by_hand() -> None:
    assert spearman([1, 2, 3, 4], [10, 20, 30, 40]) == pytest.approx(1)
    assert spearman([1, 2, 3, 4], [4, 3, 2, 1]) == pytest.approx(-1)
    # d = 0, 1, 1, 0: 1 - 6 * 2 / (4 * 15)
    assert spearman([1, 2, 3, 4], [1, 3, 2, 4]) == pytest.approx(0.8)


def test_equal_scores_have_no_correlation_and_equal_values_have_0() -> None:
    assert spearman([1, 2, 3], [5, 5, 5]) is None
    assert spearman([], []) is None
    assert spearman([5, 5, 5], [1, 2, 3]) == 0.0
