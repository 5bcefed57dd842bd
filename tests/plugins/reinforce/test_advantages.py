"""Advantage estimators: their equations, their edge cases, their invariants."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from orchestrion_reinforce.ppo import clipped, gae, leave_one_out, normalize

NUMBER = st.floats(-100, 100, allow_subnormal=False)


def array(*values: float) -> np.ndarray:
    return np.array(values, float)


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


@st.composite
def flat_episodes(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rewards, values and lengths."""
    lengths = draw(st.lists(st.integers(1, 5), min_size=1, max_size=6))
    numbers = st.lists(NUMBER, min_size=sum(lengths), max_size=sum(lengths))
    return array(*draw(numbers)), array(*draw(numbers)), ints(*lengths)


@given(flat_episodes(), st.floats(0, 1), st.floats(0, 1))
def test_gae_obeys_its_recursion_in_each_episode(
    data: tuple[np.ndarray, np.ndarray, np.ndarray], gamma: float, lam: float
) -> None:
    rewards, values, lengths = data
    result, at = gae(rewards, values, lengths, gamma, lam), 0
    for length in lengths:
        after = next_value = 0.0
        for t in range(at + length - 1, at - 1, -1):
            after = rewards[t] + gamma * next_value - values[t] + gamma * lam * after
            next_value = values[t]
            assert result[t] == pytest.approx(after)
        at += length


def test_leave_one_out_compares_with_the_others_of_the_group() -> None:
    result = leave_one_out(array(1, 0, 10, 0.5, 20), ints(0, 0, 1, 0, 1))
    assert result == pytest.approx([0.75, -0.75, -10, 0, 10])
    # A group of one has no advantage.
    assert leave_one_out(array(5, 1, 2), ints(7, 8, 8)) == pytest.approx([0, -1, 1])


@given(NUMBER, st.integers(1, 9))
def test_equal_returns_have_exactly_no_advantage(value: float, count: int) -> None:
    assert not leave_one_out(np.full(count, value), np.zeros(count, np.int64)).any()


@given(st.lists(st.tuples(NUMBER, st.integers(0, 3)), min_size=1, max_size=20), NUMBER)
def test_leave_one_out_sums_to_0_in_a_group_and_ignores_an_offset(
    rows: list[tuple[float, int]], offset: float
) -> None:
    returns, groups = array(*(r for r, _ in rows)), ints(*(g for _, g in rows))
    result = leave_one_out(returns, groups)
    for group in set(groups.tolist()):
        assert result[groups == group].sum() == pytest.approx(0, abs=1e-9)
    assert leave_one_out(returns + offset, groups) == pytest.approx(result, abs=1e-9)


def test_normalised_advantages_have_mean_0_and_deviation_1() -> None:
    result = normalize(array(1, 2, 3, 10))
    assert (result.mean(), result.std()) == pytest.approx((0, 1))


@pytest.mark.parametrize("count", [0, 1, 2, 7])
def test_equal_advantages_normalise_to_0(count: int) -> None:
    # 0.1 has no exact mean in binary: rounding must not become a gradient.
    assert not normalize(np.full(count, 0.1)).any()


@given(st.lists(NUMBER, min_size=2, max_size=20), st.floats(0.01, 100))
def test_normalised_advantages_do_not_depend_on_the_scale(
    values: list[float], scale: float
) -> None:
    before = array(*values)
    if before.std() > 1e-3 * max(1, abs(before).max()):
        assert normalize(before * scale) == pytest.approx(normalize(before), abs=1e-6)


def test_ppo_clips_a_ratio_that_moved_far_in_the_direction_of_its_advantage() -> None:
    ratio = torch.tensor([0.5, 0.5, 1.5, 1.5, 0.9, 1.1], requires_grad=True)
    advantages = torch.tensor([1.0, -1.0, 1.0, -1.0, -1.0, 1.0])
    terms = clipped(ratio, advantages, 0.2)
    assert terms.tolist() == pytest.approx([0.5, -0.8, 1.2, -1.5, -0.9, 1.1])
    terms.sum().backward()  # type: ignore[no-untyped-call]
    assert ratio.grad is not None
    assert ratio.grad.tolist() == [1, 0, 0, -1, -1, 1]
    assert clipped(ratio, advantages, None).tolist() == pytest.approx(
        [0.5, -0.5, 1.5, -1.5, -0.9, 1.1]
    )
