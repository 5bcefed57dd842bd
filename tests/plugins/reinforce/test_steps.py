"""Which decision gets which part of the reward."""

from __future__ import annotations

import pytest
from attrs import evolve
from orchestrion_reinforce.ppo import gather

from orchestrion import Activation, Decision, Reward, RunError, Status, Trajectory, Turn
from tests.plugins.reinforce.support import episode


def test_turn_rewards_go_to_their_decisions_and_the_rest_to_the_last() -> None:
    steps = gather([episode(["a", "b"], 0.7, [-0.1, -0.2])])
    assert steps.rewards == pytest.approx([-0.1, -0.2 + 1.0])
    assert steps.rewards.sum() == pytest.approx(0.7)


def test_a_reward_without_turns_is_all_terminal() -> None:
    assert gather([episode(["a", "b", "a"], 0.7)]).rewards == pytest.approx([0, 0, 0.7])


def test_a_decision_is_charged_for_all_activations_it_starts() -> None:
    path = Trajectory(
        [Turn(0, "a", decision=0), Turn(1, "b", decision=0), Turn(2, "c", decision=1)]
    )
    decisions = (
        Decision((Activation("a"), Activation("b")), record=0),
        Decision((Activation("c"),), record=1),
    )
    both = evolve(
        episode([], 0), trajectory=path, decisions=decisions, reward=Reward(0.4, (-0.1, -0.2, -0.3))
    )
    assert gather([both]).rewards == pytest.approx([-0.3, -0.3 + 1.0])


def test_a_stop_decision_has_no_turn_and_gets_the_terminal_part() -> None:
    base = episode(["a"], 0.9, [-0.1])
    stopped = evolve(base, decisions=(*base.decisions, Decision(stop=True, record=1)))
    assert gather([stopped]).rewards == pytest.approx([-0.1, 1.0])


def test_a_failed_turn_is_charged_like_any_other() -> None:
    assert gather([episode(["!a", "b"], 0.5, [-0.4, -0.1])]).rewards == pytest.approx([-0.4, 0.9])


def test_episodes_without_a_reward_are_excluded_and_counted() -> None:
    steps = gather([episode(["a"], 1.0), episode(["a", "b"], 0.0, missing=True), episode([], 1.0)])
    assert (steps.lengths.tolist(), steps.totals.tolist(), steps.excluded) == ([1], [1.0], 2)


def test_an_episode_that_met_a_limit_counts_as_ended() -> None:
    steps = gather([evolve(episode(["a"], -0.1, [-0.1]), status=Status.LIMIT)])
    assert steps.rewards == pytest.approx([-0.1])


def test_what_others_decided_belongs_to_the_decision_before() -> None:
    base = episode(["a", "b", "c"], 0.4, [-0.1, -0.2, -0.3])
    other = evolve(base.decisions[1], record=None)
    mixed = evolve(base, decisions=(base.decisions[0], other, base.decisions[2]))
    assert gather([mixed]).rewards == pytest.approx([-0.3, -0.3 + 1.0])


def test_groups_are_problems_and_not_places() -> None:
    steps = gather([episode(["a"], 1, problem=name) for name in ("p", "q", "p")])
    assert steps.groups.tolist() == [0, 1, 0]


def test_a_wrong_number_of_turn_rewards_is_refused() -> None:
    with pytest.raises(RunError, match="2 turn rewards for 1 turns"):
        gather([episode(["a"], 1.0, [-0.1, -0.1])])


def test_nothing_at_all_is_no_step() -> None:
    assert len(gather([]).records) == 0
