"""Advantage estimators: worked examples, brute force, and invariances."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from orchestrion_marl import advantages as adv
from orchestrion_marl.critic import Critic
from orchestrion_marl.rows import Floats, Rows
from orchestrion_marl.settings import Advantage, Estimator, Overlong

V, S = 0, 1


def worked_example() -> Rows:
    """Four episodes with rewards 1, 1, 0, 0; V is called 1, 1, 2, 2 times, S 0, 1, 2, 2 times."""
    calls = [(0, V), (1, V), (1, S), (2, V), (2, V), (2, S), (2, S), (3, V), (3, V), (3, S), (3, S)]
    episodes = [episode for episode, _ in calls]
    return Rows(
        [1.0 if episode < 2 else 0.0 for episode in episodes],
        [0] * len(calls),
        episodes,
        [agent for _, agent in calls],
    )


@st.composite
def batches(draw: st.DrawFn) -> Rows:
    """Some groups of episodes, each with calls of up to three agents."""
    outcome, group, episode, agent, penalty = [], [], [], [], []
    number = 0
    for g in range(draw(st.integers(1, 3))):
        for _ in range(draw(st.integers(2, 5))):
            reward = draw(st.sampled_from([0.0, 0.25, 0.5, 1.0]))
            for called in draw(st.lists(st.integers(0, 2), min_size=1, max_size=4)):
                outcome.append(reward)
                group.append(g)
                episode.append(number)
                agent.append(called)
                penalty.append(draw(st.sampled_from([0.0, 0.0, 0.1])))
            number += 1
    return Rows(outcome, group, episode, agent, penalty, range(len(outcome)))


def without_penalties(rows: Rows) -> Rows:
    return Rows(rows.outcome, rows.group, rows.episode, rows.agent, turn=rows.turn)


def taken(rows: Rows, places: list[int]) -> Rows:
    columns = (rows.outcome, rows.group, rows.episode, rows.agent, rows.penalty)
    return Rows(*(column[places] for column in columns))


def estimates(name: Estimator, rows: Rows) -> Floats:
    """The advantages of calls of one token, computed as the trainer does."""
    settings = [Advantage(estimator=name)] * 3
    lengths = np.ones(len(rows), np.int64)
    return adv.estimate(rows, lengths, settings, {}, np.full(len(rows), 0.5))


ALL: dict[str, Callable[[Rows], Floats]] = {
    "drmas": adv.drmas,
    "center agent, scale group": lambda r: adv.drmas(r, Advantage(scale="group")),
    "center group, scale agent": lambda r: adv.drmas(r, Advantage(center="group")),
    "population": lambda r: adv.drmas(r, Advantage(std="population")),
    "grpo": adv.grpo,
    "pooled": adv.global_step,
    "rloo": adv.rloo,
    "rloo over the team": lambda r: adv.rloo(r, Advantage("rloo", over="group")),
}
SCALED = ("drmas", "center agent, scale group", "center group, scale agent", "grpo", "pooled")
each = pytest.mark.parametrize("name", ALL)


@pytest.mark.parametrize(
    ("settings", "won_v", "lost_v", "won_s", "lost_s"),
    [
        ({}, 1.2909944, -0.6454972, 1.7888544, -0.4472136),
        ({"center": "group"}, 0.9682458, -0.9682458, 1.1180340, -1.1180340),
        ({"scale": "group"}, 1.1547005, -0.5773503, 1.3856406, -0.3464102),
        ({"center": "group", "scale": "group"}, 0.8660254, -0.8660254, 0.8660254, -0.8660254),
        ({"scale": "none"}, 2 / 3, -1 / 3, 0.8, -0.2),
        ({"center": "group", "scale": "none"}, 0.5, -0.5, 0.5, -0.5),
        ({"std": "population"}, 2**0.5, -(0.5**0.5), 2, -0.5),
    ],
    ids=str,
)
def test_the_worked_example_of_drmas(
    settings: dict[str, Any], won_v: float, lost_v: float, won_s: float, lost_s: float
) -> None:
    rows = worked_example()
    advantages = adv.drmas(rows, Advantage(**settings))
    won, by_v = rows.outcome == 1, rows.agent == V
    assert advantages[won & by_v] == pytest.approx(won_v)
    assert advantages[~won & by_v] == pytest.approx(lost_v)
    assert advantages[won & ~by_v] == pytest.approx(won_s)
    assert advantages[~won & ~by_v] == pytest.approx(lost_s)


@given(batches())
def test_drmas_gives_each_agent_mean_0_and_deviation_1_in_each_group(rows: Rows) -> None:
    advantages = adv.drmas(without_penalties(rows))
    for g in np.unique(rows.group):
        for k in np.unique(rows.agent):
            mine = advantages[(rows.group == g) & (rows.agent == k)]
            n = len(mine)
            if n < 2 or not mine.any():
                continue
            assert abs(mine.mean()) < 1e-9
            assert abs(mine.std(ddof=1) - 1) < 1e-9
            assert (abs(mine) <= (n - 1) / np.sqrt(n) + 1e-9).all()


@given(batches())
def test_grpo_counts_every_episode_once(rows: Rows) -> None:
    advantages = adv.grpo(without_penalties(rows))
    for g in np.unique(rows.group):
        episodes = [
            (rows.outcome[rows.episode == e][0], advantages[rows.episode == e])
            for e in np.unique(rows.episode[rows.group == g])
        ]
        scores = np.array([score for score, _ in episodes])
        deviation = scores.std(ddof=1)
        for score, values in episodes:
            expected = (score - scores.mean()) / deviation if deviation > 1e-9 else 0.0
            assert values == pytest.approx(expected)


@given(st.lists(st.sampled_from([0.0, 0.3, 1.0]), min_size=2, max_size=8))
def test_all_estimators_agree_with_one_agent_and_one_call_an_episode(scores: list[float]) -> None:
    n = len(scores)
    rows = Rows(scores, [0] * n, range(n), [0] * n)
    advantages = adv.grpo(rows)
    assert adv.drmas(rows) == pytest.approx(advantages)
    assert adv.global_step(rows) == pytest.approx(advantages)
    assert adv.rloo(rows) == pytest.approx(adv.rloo(rows, Advantage("rloo", over="group")))
    centered = np.array(scores) - np.mean(scores)
    assert adv.rloo(rows) == pytest.approx(n / (n - 1) * centered)
    assert adv.rloo(rows).sum() == pytest.approx(0, abs=1e-9)


@each
@settings(max_examples=15)  # of each estimator
@given(rows=batches(), key=st.randoms())
def test_order_of_rows_and_values_of_ids_have_no_effect(name: str, rows: Rows, key: object) -> None:
    order = list(range(len(rows)))
    key.shuffle(order)  # type: ignore[attr-defined]
    renamed = Rows(
        rows.outcome, 7 - rows.group, 100 + 3 * rows.episode, 5 - 2 * rows.agent, rows.penalty
    )
    advantages = ALL[name](rows)
    assert ALL[name](taken(rows, order)) == pytest.approx(advantages[order])
    assert ALL[name](renamed) == pytest.approx(advantages)


@each
@settings(max_examples=15)  # of each estimator
@given(rows=batches(), shift=st.sampled_from([-3.0, 0.5]), factor=st.sampled_from([0.1, 4.0]))
def test_shifted_rewards_have_no_effect_and_scaled_rewards_scale_only(
    name: str, rows: Rows, shift: float, factor: float
) -> None:
    plain = without_penalties(rows)
    advantages = ALL[name](plain)
    moved = Rows(plain.outcome * factor + shift, plain.group, plain.episode, plain.agent)
    scale = 1.0 if name in SCALED or name == "population" else factor
    assert ALL[name](moved) == pytest.approx(advantages * scale, abs=1e-9)


@each
def test_rewards_equal_up_to_rounding_give_exactly_0(name: str) -> None:
    rows = Rows([0.1 + 0.2, 0.3, 0.3, 0.1 + 0.2], [0, 0, 0, 0], [0, 1, 2, 3], [0, 0, 1, 1])
    if name.startswith("rloo"):
        assert abs(ALL[name](rows)).max() < 1e-15
    else:
        assert not ALL[name](rows).any()


def test_an_agent_called_once_in_a_group_has_advantage_0_by_default() -> None:
    rows = Rows([1, 0, 0, 1], [0, 0, 1, 1], [0, 1, 2, 3], [V, S, S, S])
    assert adv.drmas(rows)[0] == 0
    assert adv.drmas(rows, Advantage(single="raw"))[0] == 1
    assert adv.drmas(rows, Advantage(single="batch"))[1] == pytest.approx(0 - 1 / 3)


def test_group_mean_with_agent_deviation_gives_0_where_the_deviation_is_0() -> None:
    # V was called in winning episodes only: sigma_k is 0 and mu_k is not mu.
    rows = Rows([1, 1, 0, 0], [0] * 4, [0, 1, 2, 3], [V, V, S, S])
    assert not adv.drmas(rows, Advantage(center="group")).any()
    assert adv.grpo(rows)[0] > 0


def test_a_penalty_keeps_its_size_in_a_group_with_equal_rewards() -> None:
    n = 8
    rows = Rows([1.0] * n, [0] * n, range(n), [0] * n, [0.01] + [0.0] * (n - 1))
    assert adv.drmas(rows) == pytest.approx([-0.01] + [0.0] * (n - 1))
    inside = adv.drmas(rows, Advantage(fined="inside"))
    assert inside[0] == pytest.approx(-2.4748737)
    assert adv.drmas(rows, Advantage(fined="inside", floor=0.1))[0] == pytest.approx(-0.0875)


@pytest.mark.parametrize(
    "name", ["drmas", "grpo", "global_step", "rloo", "reinforce", "reinforce++", "gigpo", "gae"]
)
@settings(max_examples=15)  # of each estimator
@given(rows=batches())
def test_every_estimator_subtracts_a_penalty_once_and_unscaled(name: Estimator, rows: Rows) -> None:
    fined = estimates(name, rows)
    assert fined == pytest.approx(estimates(name, without_penalties(rows)) - rows.penalty, abs=1e-9)


@given(batches())
def test_rloo_agrees_with_brute_force(rows: Rows) -> None:
    plain = without_penalties(rows)
    advantages = adv.rloo(plain)
    for i in range(len(plain)):
        others = plain.outcome[
            (plain.group == plain.group[i])
            & (plain.agent == plain.agent[i])
            & (plain.episode != plain.episode[i])
        ]
        expected = plain.outcome[i] - others.mean() if len(others) else 0.0
        assert advantages[i] == pytest.approx(expected)


def test_rloo_subtracts_penalties_inside_or_outside_the_baseline() -> None:
    # One group of three episodes; the second has two calls, the third call is fined.
    rows = Rows([1, 0, 0, 1], [0] * 4, [0, 1, 1, 2], [V] * 4, [0, 0, 0.3, 0])
    assert adv.rloo(rows) == pytest.approx([1 - 1 / 3, -1, -1 - 0.3, 1 - 1 / 3])
    inside = adv.rloo(rows, Advantage("rloo", fined="inside"))
    assert inside == pytest.approx([1 - 0.7 / 3, -1, -0.3 - 1, 1 - 0.7 / 3])
    # Over the team an episode counts once, with the mean of its calls' scores.
    outside = adv.rloo(rows, Advantage("rloo", over="group"))
    assert outside == pytest.approx([0.5, -1, -1 - 0.3, 0.5])
    inside = adv.rloo(rows, Advantage("rloo", over="group", fined="inside"))
    assert inside == pytest.approx([1 - 0.85 / 2, -0.15 - 1, -0.15 - 1, 1 - 0.85 / 2])


def test_reinforce_subtracts_its_baseline_and_the_penalty() -> None:
    rows = Rows([1, 0, 1, 1], [0, 0, 1, 1], [0, 1, 2, 3], [V, V, S, S], [0, 0.5, 0, 0])
    expected = {
        "none": [1, -0.5, 1, 1],
        "batch": [0.25, -1.25, 0.25, 0.25],
        "agent": [0.5, -1, 0, 0],
        "moving": [0.5, -1, 1, 1],
    }
    for baseline, advantages in expected.items():
        settings = Advantage("reinforce", baseline=baseline)  # type: ignore[arg-type]
        assert adv.reinforce(rows, settings, {V: 0.5}) == pytest.approx(advantages)


def test_reinforce_plus_plus_whitens_the_tokens_of_each_agent() -> None:
    rows = Rows([1, 0, 1, 0], [0] * 4, range(4), [V, V, S, S])
    lengths = np.array([2, 3, 1, 2])
    advantages = adv.reinforce_plus_plus(rows, lengths, Advantage("reinforce++", gamma=0.9))
    owner = np.repeat(rows.agent, lengths)
    for who in (V, S):
        assert advantages[owner == who].mean() == pytest.approx(0, abs=1e-12)
        assert advantages[owner == who].var(ddof=1) == pytest.approx(1)
    returns = np.array([0.9, 1, 0, 0, 0, 1, 0, 0])
    of_team = Advantage("reinforce++", gamma=0.9, over="group")
    team = adv.reinforce_plus_plus(rows, lengths, of_team)
    assert team == pytest.approx((returns - returns.mean()) / returns.std(ddof=1))


def test_centered_reinforce_plus_plus_subtracts_the_mean_of_the_group() -> None:
    rows = Rows([3, 1, 5, 5], [0, 0, 1, 1], range(4), [V] * 4, [0, 0, 0, 0.5])
    lengths = np.array([2, 1, 1, 1])
    # Less the means 2 and 5 of the groups, the rewards are 1, -1, 0 and 0.
    returns = np.array([0.9, 1, -1, 0, 0])
    expected = (returns - returns.mean()) / returns.std(ddof=1)
    expected[4] -= 0.5
    centered = Advantage("reinforce++", gamma=0.9, centered=True)
    advantages = adv.reinforce_plus_plus(rows, lengths, centered)
    assert advantages == pytest.approx(expected)


def two_steps(situations: list[int]) -> Rows:
    """A won and a lost episode of two steps each."""
    outcome, group, episode, agent, penalty = [1, 1, 0, 0], [0] * 4, [0, 0, 1, 1], [V] * 4, [0] * 4
    return Rows(outcome, group, episode, agent, penalty, [0, 1, 0, 1], situations)


def test_gigpo_without_equal_situations_is_grpo() -> None:
    rows = two_steps([0, 1, 2, 3])
    expected = adv.grpo(rows, Advantage("grpo", scale="none"))
    assert adv.gigpo(rows, Advantage("gigpo", scale="none")) == pytest.approx(expected)
    without_steps = Advantage("gigpo", scale="none", weight=0.0)
    assert adv.gigpo(two_steps([0] * 4), without_steps) == pytest.approx(expected)


def test_gigpo_compares_steps_in_equal_situations() -> None:
    settings = Advantage("gigpo", scale="none", gamma=0.5)
    advantages = adv.gigpo(two_steps([7, 8, 7, 9]), settings)
    # The first steps met the same: returns .5 and 0 around their mean .25.
    assert advantages == pytest.approx([0.5 + 0.25, 0.5, -0.5 - 0.25, -0.5])


@given(st.lists(st.tuples(st.floats(-2, 2), st.floats(-2, 2)), min_size=1, max_size=6))
def test_gae_with_lambda_1_and_0(pairs: list[tuple[float, float]]) -> None:
    rewards, values = (np.array(column) for column in zip(*pairs, strict=True))
    returns = np.cumsum(rewards[::-1])[::-1]
    assert adv.gae(rewards, values, lam=1.0) == pytest.approx(returns - values, abs=1e-9)
    following = np.append(values[1:], 0.0)
    errors = rewards + 0.9 * following - values
    assert adv.gae(rewards, values, gamma=0.9, lam=0.0) == pytest.approx(errors, abs=1e-9)


def test_actions_of_gae_are_calls_or_tokens_of_all_agents_in_the_order_of_turns() -> None:
    # Two episodes: V says two tokens, then S says one.
    rows = Rows([1, 1, 0, 0], [0] * 4, [0, 0, 1, 1], [V, S, V, S], turn=[0, 1, 0, 1])
    lengths = np.array([2, 1, 2, 1])
    values = np.array([0.5, 0.6, 0.9, 0.5, 0.4, 0.2])  # before each token
    token = Advantage("gae", lam=0.5, actions="tokens")
    first = adv.gae(np.array([0.0, 0.0, 1.0]), values[:3], 1.0, 0.5)
    second = adv.gae(np.array([0.0, 0.0, 0.0]), values[3:], 1.0, 0.5)
    both = np.concatenate((first, second))
    expected = adv.whiten(both, np.array([V, V, S, V, V, S]))
    assert adv.estimate(rows, lengths, [token, token], {}, values) == pytest.approx(expected)
    # The first token is credited with what it changed: it raised the value from .5 to .6.
    assert first[0] == pytest.approx(0.1 + 0.5 * 0.3 + 0.25 * 0.1)
    call = Advantage("gae", lam=0.5)
    of_calls = adv.estimate(rows, lengths, [call, call], {}, values)
    assert of_calls[0] == of_calls[1], "both tokens of a call have its advantage"


def test_a_critic_knows_nothing_at_first_then_fits_rewards_by_states() -> None:
    draw = np.random.default_rng(1)
    critic, slope = Critic(), np.array([1.0, -2.0, 0.5])
    for iteration in range(3):
        for _ in range(40):
            states = draw.normal(size=(5, 3))
            reward = float(states.mean(axis=0) @ slope)
            values = critic.values("a", np.tile(states.mean(axis=0), (5, 1)), reward)
            assert (values is None) == (iteration == 0)
        critic.learn()
    values = critic.values("a", np.eye(3), 0.0)
    assert values is not None
    assert values == pytest.approx(slope, abs=0.05)
    again = Critic()
    again.load(critic.save())
    critic.learn()  # what was noted and not learned is not saved
    assert critic.values("b", np.eye(3), 0.0) is None
    restored = again.values("a", np.eye(3), 0.0)
    assert restored is not None
    assert restored.tolist() == values.tolist()


def test_the_overlong_penalty_is_linear_over_its_buffer() -> None:
    advantages = adv.overlong(np.array([10, 80, 90, 100, 120]), Overlong(longest=100, buffer=20))
    assert advantages == pytest.approx([0, 0, -0.5, -1, -1])
    with pytest.raises(ValueError, match="buffer"):
        Overlong(longest=10, buffer=11)
