"""Which decision gets which part of the reward."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from orchestrion import (
    Activation,
    Decision,
    Episode,
    Experience,
    Key,
    Problem,
    Reward,
    RunError,
    Status,
    Trajectory,
    Turn,
    gather,
    laps,
    replace,
)


def episode(
    acted: Sequence[str],
    total: float,
    turns: Sequence[float] | None = None,
    *,
    missing: bool = False,
) -> Episode:
    """A finished episode of one-turn decisions, each with its place as its record; "!a" failed."""
    reward = None if missing else Reward(total, None if turns is None else tuple(turns))
    path = Trajectory(
        [
            Turn(i, name[-1], status="failed" if name[0] == "!" else "completed", decision=i)
            for i, name in enumerate(acted)
        ]
    )
    decisions = tuple(Decision((Activation(name[-1]),), record=i) for i, name in enumerate(acted))
    return Episode("e", Problem("p"), path, decisions, reward=reward)


def only(one: Episode) -> Experience[int]:
    """What is learned from one episode."""
    [found] = gather([one], int)
    return found


def test_turn_rewards_go_to_their_decisions_and_the_rest_to_the_last() -> None:
    steps = only(episode(["a", "b"], 0.7, [-0.1, -0.2]))
    assert steps.rewards == pytest.approx([-0.1, -0.2 + 1.0])
    assert sum(steps.rewards) == pytest.approx(0.7)
    assert steps.outcome == pytest.approx(1.0)
    assert steps.returns == pytest.approx([0.7, 0.8])


def test_failed_turns_limits_and_rewards_without_turns_are_no_exceptions() -> None:
    assert only(episode(["a", "b", "a"], 0.7)).rewards == pytest.approx([0, 0, 0.7])
    assert only(episode(["!a", "b"], 0.5, [-0.4, -0.1])).rewards == pytest.approx([-0.4, 0.9])
    limited = replace(episode(["a"], -0.1, [-0.1]), status=Status.LIMIT)
    assert only(limited).rewards == pytest.approx([-0.1])


def test_a_decision_is_charged_for_all_activations_it_starts() -> None:
    path = Trajectory(
        [Turn(0, "a", decision=0), Turn(1, "b", decision=0), Turn(2, "c", decision=1)]
    )
    decisions = (
        Decision((Activation("a"), Activation("b")), record=0),
        Decision((Activation("c"),), record=1),
    )
    both = replace(
        episode([], 0), trajectory=path, decisions=decisions, reward=Reward(0.4, (-0.1, -0.2, -0.3))
    )
    assert only(both).rewards == pytest.approx([-0.3, -0.3 + 1.0])


def test_a_stop_decision_has_no_turn_and_gets_the_terminal_part() -> None:
    base = episode(["a"], 0.9, [-0.1])
    stopped = replace(base, decisions=(*base.decisions, Decision(stop=True, record=1)))
    assert only(stopped).rewards == pytest.approx([-0.1, 1.0])


def test_episodes_without_a_reward_are_left_out() -> None:
    kept = episode(["a"], 1.0)
    found = gather([kept, episode(["a", "b"], 0.0, missing=True), episode([], 1.0)], int)
    assert [(one.episode, one.taken) for one in found] == [(kept, (0,))]


def test_what_others_decided_belongs_to_the_decision_before() -> None:
    base = episode(["a", "b", "c"], 0.4, [-0.1, -0.2, -0.3])
    other = replace(base.decisions[1], record=None)
    mixed = replace(base, decisions=(base.decisions[0], other, base.decisions[2]))
    assert only(mixed).rewards == pytest.approx([-0.3, -0.3 + 1.0])


def test_a_wrong_number_of_turn_rewards_is_refused() -> None:
    with pytest.raises(RunError, match="2 turn rewards for 1 turns"):
        gather([episode(["a"], 1.0, [-0.1, -0.1])], int)


def test_records_of_another_kind_are_not_learned_from() -> None:
    assert gather([episode(["a"], 1.0)], str) == []


def test_laps_go_through_all_problems_before_any_comes_again_and_can_be_cut_anywhere() -> None:
    whole = laps(5, Key(1), 0, 17)
    assert all(sorted(whole[n : n + 5]) == list(range(5)) for n in (0, 5, 10))
    assert whole[:5] != whole[5:10]
    assert laps(5, Key(1), 3, 9) == whole[3:12]
    assert laps(5, Key(1), 0, 5, "other") != whole[:5]
