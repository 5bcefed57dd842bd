"""Advantage estimators: worked examples, brute force, and what must not change them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from orchestrion_local.interfaces import Generation
from orchestrion_marl import advantages as adv
from orchestrion_marl.calls import Call
from orchestrion_marl.estimating import estimate
from orchestrion_marl.marl import Advantage, Name
from orchestrion_marl.rows import Floats, Rows

V, S = 0, 1


def worked_example() -> Rows:
    """Four episodes with rewards 1, 1, 0, 0; V is called 1, 1, 2, 2 times, S 0, 1, 2, 2 times."""
    calls = [(0, V), (1, V), (1, S), (2, V), (2, V), (2, S), (2, S), (3, V), (3, V), (3, S), (3, S)]
    episode = [one for one, _ in calls]
    return Rows(
        [1.0 if one < 2 else 0.0 for one in episode],
        [0] * len(calls),
        episode,
        [agent for _, agent in calls],
    )


@st.composite
def batches(draw: st.DrawFn, rewards: st.SearchStrategy[float] | None = None) -> Rows:
    """Some groups of episodes, each of some calls by up to three agents."""
    reward = rewards or st.sampled_from([0.0, 0.25, 0.5, 1.0])
    outcome, group, episode, agent, penalty = [], [], [], [], []
    number = 0
    for g in range(draw(st.integers(1, 3))):
        for _ in range(draw(st.integers(2, 5))):
            value = draw(reward)
            for who in draw(st.lists(st.integers(0, 2), min_size=1, max_size=4)):
                outcome.append(value)
                group.append(g)
                episode.append(number)
                agent.append(who)
                penalty.append(draw(st.sampled_from([0.0, 0.0, 0.1])))
            number += 1
    return Rows(outcome, group, episode, agent, penalty)


def bare(rows: Rows) -> Rows:
    return Rows(rows.outcome, rows.group, rows.episode, rows.agent)


def estimates(name: Name, rows: Rows) -> Floats:
    """What an estimator makes of calls of one token, as the trainer calls it."""
    generation = Generation("m", 0, (1,), (2,), (0.0,))
    columns = (rows.agent, rows.episode, rows.group, rows.outcome, rows.penalty)
    calls = [
        Call(str(a), int(e), int(g), turn, float(r), generation, True, False, float(fine))
        for turn, (a, e, g, r, fine) in enumerate(zip(*columns, strict=True))
    ]
    agents = ["0", "1", "2"]
    settings = dict.fromkeys(agents, Advantage(estimator=name))
    return estimate(calls, agents, settings, {}, np.full(len(calls), 0.5))


ALL: dict[str, Callable[[Rows], Floats]] = {
    "drmas": adv.agent_wise,
    "center agent, scale group": lambda r: adv.agent_wise(r, "agent", "group"),
    "center group, scale agent": lambda r: adv.agent_wise(r, "group", "agent"),
    "population": lambda r: adv.agent_wise(r, ddof=0),
    "grpo": adv.grpo,
    "pooled": adv.pooled,
    "rloo": adv.rloo,
    "rloo over the team": lambda r: adv.rloo(r, "group"),
}
SCALED = ("drmas", "center agent, scale group", "center group, scale agent", "grpo", "pooled")
each = pytest.mark.parametrize("name", ALL)


def test_the_worked_example_over_the_team() -> None:
    rows = worked_example()
    found = adv.grpo(rows)
    assert found == pytest.approx(np.where(rows.outcome == 1, 0.8660254, -0.8660254))
    assert found[rows.agent == V].mean() == pytest.approx(-0.2886751)
    assert found[rows.agent == S].mean() == pytest.approx(-0.5196152)


def test_the_worked_example_by_agent() -> None:
    rows = worked_example()
    found = adv.agent_wise(rows)
    won = rows.outcome == 1
    assert found[won & (rows.agent == V)] == pytest.approx(1.2909944)
    assert found[~won & (rows.agent == V)] == pytest.approx(-0.6454972)
    assert found[won & (rows.agent == S)] == pytest.approx(1.7888544)
    assert found[~won & (rows.agent == S)] == pytest.approx(-0.4472136)


@given(batches())
def test_by_agent_every_agent_has_mean_0_and_deviation_1_in_its_groups(rows: Rows) -> None:
    found = adv.agent_wise(bare(rows))
    for g in np.unique(rows.group):
        for k in np.unique(rows.agent):
            mine = found[(rows.group == g) & (rows.agent == k)]
            n = len(mine)
            if n < 2 or not mine.any():
                continue
            assert abs(mine.mean()) < 1e-9
            assert abs(mine.std(ddof=1) - 1) < 1e-9
            assert (abs(mine) <= (n - 1) / np.sqrt(n) + 1e-9).all()


@given(batches())
def test_over_the_team_every_episode_counts_once(rows: Rows) -> None:
    found = adv.grpo(bare(rows))
    for g in np.unique(rows.group):
        episodes = [
            (rows.outcome[rows.episode == e][0], found[rows.episode == e])
            for e in np.unique(rows.episode[rows.group == g])
        ]
        scores = np.array([score for score, _ in episodes])
        deviation = scores.std(ddof=1)
        for score, values in episodes:
            wanted = (score - scores.mean()) / deviation if deviation > 1e-9 else 0.0
            assert values == pytest.approx(wanted)


@given(st.lists(st.sampled_from([0.0, 0.3, 1.0]), min_size=2, max_size=8))
def test_with_one_agent_called_once_all_ways_agree(scores: list[float]) -> None:
    n = len(scores)
    rows = Rows(scores, [0] * n, range(n), [0] * n)
    found = adv.grpo(rows)
    assert adv.agent_wise(rows) == pytest.approx(found)
    assert adv.pooled(rows) == pytest.approx(found)
    assert adv.rloo(rows) == pytest.approx(adv.rloo(rows, "group"))
    centered = np.array(scores) - np.mean(scores)
    assert adv.rloo(rows) == pytest.approx(n / (n - 1) * centered)
    assert adv.rloo(rows).sum() == pytest.approx(0, abs=1e-9)


@each
@given(rows=batches(), key=st.randoms())
def test_neither_the_order_of_rows_nor_names_of_ids_matter(
    name: str, rows: Rows, key: object
) -> None:
    order = list(range(len(rows)))
    key.shuffle(order)  # type: ignore[attr-defined]
    renamed = Rows(
        rows.outcome, 7 - rows.group, 100 + 3 * rows.episode, 5 - 2 * rows.agent, rows.penalty
    )
    found = ALL[name](rows)
    assert ALL[name](rows.take(order)) == pytest.approx(found[order])
    assert ALL[name](renamed) == pytest.approx(found)


@each
@given(rows=batches(), shift=st.sampled_from([-3.0, 0.5]), factor=st.sampled_from([0.1, 4.0]))
def test_shifting_rewards_changes_nothing_and_scaling_them_only_the_scale(
    name: str, rows: Rows, shift: float, factor: float
) -> None:
    plain = bare(rows)
    found = ALL[name](plain)
    moved = Rows(plain.outcome * factor + shift, plain.group, plain.episode, plain.agent)
    scale = 1.0 if name in SCALED or name == "population" else factor
    assert ALL[name](moved) == pytest.approx(found * scale, abs=1e-9)


@each
def test_equal_rewards_give_exact_zeros_also_where_rounding_differs(name: str) -> None:
    rows = Rows([0.1 + 0.2, 0.3, 0.3, 0.1 + 0.2], [0, 0, 0, 0], [0, 1, 2, 3], [0, 0, 1, 1])
    if name.startswith("rloo"):
        assert abs(ALL[name](rows)).max() < 1e-15
    else:
        assert not ALL[name](rows).any()


def test_an_agent_called_once_gets_nothing_unless_told_otherwise() -> None:
    rows = Rows([1, 0, 0, 1], [0, 0, 1, 1], [0, 1, 2, 3], [V, S, S, S])
    assert adv.agent_wise(rows)[0] == 0
    assert adv.agent_wise(rows, single="raw")[0] == 1
    assert adv.agent_wise(rows, single="batch")[1] == pytest.approx(0 - 1 / 3)


def test_where_an_agent_cannot_be_told_apart_the_mixed_cell_does_not_explode() -> None:
    # V was called in winning episodes only: sigma_k is 0 and mu_k is not mu.
    rows = Rows([1, 1, 0, 0], [0] * 4, [0, 1, 2, 3], [V, V, S, S])
    assert not adv.agent_wise(rows, "group", "agent").any()
    assert adv.grpo(rows)[0] > 0


def test_a_penalty_keeps_its_size_in_a_group_that_differs_in_nothing_else() -> None:
    n = 8
    rows = Rows([1.0] * n, [0] * n, range(n), [0] * n, [0.01] + [0.0] * (n - 1))
    assert adv.agent_wise(rows) == pytest.approx([-0.01] + [0.0] * (n - 1))
    blown_up = adv.agent_wise(rows, fined="inside")
    assert blown_up[0] == pytest.approx(-2.4748737)
    assert adv.agent_wise(rows, fined="inside", floor=0.1)[0] == pytest.approx(-0.0875)


@pytest.mark.parametrize(
    "name", ["drmas", "grpo", "global_step", "rloo", "reinforce", "reinforce++", "gigpo", "gae"]
)
@given(rows=batches())
def test_every_estimator_takes_a_penalty_off_once_and_unscaled(name: Name, rows: Rows) -> None:
    fined = estimates(name, rows)
    assert fined == pytest.approx(estimates(name, bare(rows)) - rows.penalty, abs=1e-9)


@given(batches())
def test_leaving_one_episode_out_is_what_brute_force_says(rows: Rows) -> None:
    plain = bare(rows)
    found = adv.rloo(plain)
    for i in range(len(plain)):
        others = plain.outcome[
            (plain.group == plain.group[i])
            & (plain.agent == plain.agent[i])
            & (plain.episode != plain.episode[i])
        ]
        wanted = plain.outcome[i] - others.mean() if len(others) else 0.0
        assert found[i] == pytest.approx(wanted)


def test_reinforce_takes_off_what_it_is_told_to() -> None:
    rows = Rows([1, 0, 1, 1], [0, 0, 1, 1], [0, 1, 2, 3], [V, V, S, S], [0, 0.5, 0, 0])
    assert adv.reinforce(rows, "none") == pytest.approx([1, -0.5, 1, 1])
    assert adv.reinforce(rows, "batch") == pytest.approx([0.25, -1.25, 0.25, 0.25])
    assert adv.reinforce(rows, "agent") == pytest.approx([0.5, -1, 0, 0])
    assert adv.reinforce(rows, moving={V: 0.5}) == pytest.approx([0.5, -1, 1, 1])


def test_whitening_tokens_by_agent_gives_each_mean_0_and_variance_1() -> None:
    rows = Rows([1, 0, 1, 0], [0] * 4, range(4), [V, V, S, S])
    lengths = np.array([2, 3, 1, 2])
    found = adv.reinforce_plus_plus(rows, lengths, gamma=0.9)
    owner = np.repeat(rows.agent, lengths)
    for who in (V, S):
        assert found[owner == who].mean() == pytest.approx(0, abs=1e-12)
        assert found[owner == who].var(ddof=1) == pytest.approx(1)
    returns = np.array([0.9, 1, 0, 0, 0, 1, 0, 0])
    team = adv.reinforce_plus_plus(rows, lengths, gamma=0.9, over="group")
    assert team == pytest.approx((returns - returns.mean()) / returns.std(ddof=1))


def test_steps_that_all_differ_leave_the_advantage_of_the_episode() -> None:
    rows = Rows([1, 1, 0, 0], [0] * 4, [0, 0, 1, 1], [V] * 4)
    step, given_ = np.array([0, 1, 0, 1]), np.array([0.0, 1.0, 0.0, 0.0])
    distinct = adv.gigpo(rows, step, given_, np.arange(4))
    assert distinct == pytest.approx(adv.grpo(rows, scale=False))
    same = adv.gigpo(rows, step, given_, np.zeros(4, int), weight=0.0)
    assert same == pytest.approx(adv.grpo(rows, scale=False))


def test_steps_that_met_the_same_situation_are_compared() -> None:
    rows = Rows([1, 1, 0, 0], [0] * 4, [0, 0, 1, 1], [V] * 4)
    step, given_ = np.array([0, 1, 0, 1]), np.array([0.0, 1.0, 0.0, 0.0])
    found = adv.gigpo(rows, step, given_, np.array([7, 8, 7, 9]), gamma=0.5)
    # The first steps met the same: returns .5 and 0 around their mean .25.
    assert found == pytest.approx([0.5 + 0.25, 0.5, -0.5 - 0.25, -0.5])


@given(st.lists(st.tuples(st.floats(-2, 2), st.floats(-2, 2)), min_size=1, max_size=6))
def test_gae_between_its_two_ends(pairs: list[tuple[float, float]]) -> None:
    rewards, values = (np.array(column) for column in zip(*pairs, strict=True))
    returns = np.cumsum(rewards[::-1])[::-1]
    assert adv.gae(rewards, values, lam=1.0) == pytest.approx(returns - values, abs=1e-9)
    following = np.append(values[1:], 0.0)
    errors = rewards + 0.9 * following - values
    assert adv.gae(rewards, values, gamma=0.9, lam=0.0) == pytest.approx(errors, abs=1e-9)


def test_what_the_policy_did_not_choose_changes_nothing_for_the_rest() -> None:
    rewards, values = np.array([0.0, 0.5, 1.0]), np.array([0.2, 0.4, 0.6])
    without = adv.gae(rewards, values, 0.9, 0.8)
    inserted = adv.gae(
        np.insert(rewards, 1, 9.0), np.insert(values, 1, -7.0), 0.9, 0.8, np.array([1, 0, 1, 1])
    )
    assert np.delete(inserted, 1) == pytest.approx(without)
    assert inserted[1] == 0


def test_long_answers_are_fined_by_a_ramp() -> None:
    found = adv.overlong(np.array([10, 80, 90, 100, 120]), longest=100, buffer=20)
    assert found == pytest.approx([0, 0, -0.5, -1, -1])
    with pytest.raises(ValueError, match="buffer"):
        adv.overlong(np.array([1]), 10, 11)


def test_groups_that_teach_nothing_are_found() -> None:
    rows = Rows([1, 1, 0, 1, 1], [3, 3, 4, 4, 5], [0, 1, 2, 3, 4], [V] * 5)
    assert adv.mixed_groups(rows).tolist() == [4]


def test_rows_of_different_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="group has shape"):
        Rows([1, 0], [0], [0, 1], [0, 0])
