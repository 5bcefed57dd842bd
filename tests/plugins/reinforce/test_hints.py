"""Hints: what a task says of single choices, weighed for all choices alike."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from orchestrion_reinforce.gradient import Batch
from orchestrion_reinforce.network_policy import NetworkPolicy
from orchestrion_reinforce.neural import Neural

from orchestrion import (
    CheckpointError,
    Key,
    Member,
    Observation,
    OpenContext,
    Problem,
    Situation,
    Trajectory,
)

ROSTER = (Member("a"), Member("b", ("x", "y")))


def policy(roster: Sequence[Member] = ROSTER, **settings: object) -> NetworkPolicy:
    context = OpenContext("policy", Key(1), tuple(roster))
    return NetworkPolicy(Neural(hidden=[8], **settings), context)  # type: ignore[arg-type]


def situation(**hints: float) -> Situation:
    told = {name.replace("_", ":"): (value, 1.0) for name, value in hints.items()}
    return Situation(Problem("p"), Trajectory(), Observation(features=(0.5,), hints=told))


def test_one_learned_weight_moves_all_choices_by_their_own_hint() -> None:
    learner = policy(history=False)
    learner.probabilities([situation(a=0.1, b_x=0.9)])
    before = learner.parameters.copy()
    learner.parameters[-2] = 3.0  # the bias of the first hint's weight
    assert (learner.parameters != before).sum() == 1
    first = learner.probabilities([situation(a=1.0, b_x=0.0, b_y=0.0)])[0]
    second = learner.probabilities([situation(a=0.0, b_x=0.0, b_y=1.0)])[0]
    assert first.argmax() == 0
    assert second.argmax() == 2


def test_before_it_learned_it_goes_by_the_first_hint() -> None:
    seen = situation(a=0.1, b_x=0.9, b_y=0.2)
    told = policy(history=False).probabilities([seen])[0]
    alike = policy(history=False, outlook=0.0).probabilities([seen])[0]
    assert told.argmax() == 1
    assert told[1] / told[0] == pytest.approx(np.exp(8.0 * 0.8), rel=0.3)
    assert alike == pytest.approx([1 / 3] * 3, abs=0.05)


def test_a_choice_without_a_hint_is_neutral() -> None:
    """It was e^8 times as unlikely as the best: no training ever tried it."""
    first = policy(history=False).probabilities([situation(b_x=0.9, b_y=0.3)])[0]
    mean = policy(history=False).probabilities([situation(a=0.6, b_x=0.9, b_y=0.3)])[0]
    assert first[0] == pytest.approx(mean[0], rel=0.5)
    assert first[2] < first[0] < first[1]
    assert policy().probabilities([situation()])[0] == pytest.approx([1 / 3] * 3, abs=0.05)


def test_a_policy_of_another_outlook_is_not_taken_over() -> None:
    learner = policy()
    learner.decide([situation(a=1.0)], [Key(1)])
    with pytest.raises(CheckpointError, match="outlook"):
        policy(outlook=0.0).load(learner.save())


@pytest.mark.parametrize("roles", [0, 16])
def test_the_gradient_through_hints_agrees_with_finite_differences(roles: int) -> None:
    learner = policy(roles=roles)
    seen = [situation(a=0.3, b_x=0.8), situation(b_y=0.6)]
    records = [one.record for one in learner.decide(seen, [Key(2), Key(3)])]
    batch: Batch = learner.collect(records)
    rng = np.random.default_rng(0)
    learner.parameters[:] = rng.normal(size=len(learner.parameters)) * 0.3
    by_logp, by_entropy = np.array([1.0, -2.0]), np.array([0.5, 0.25])

    def value() -> float:
        found = learner.evaluate(batch, np.float64)
        return float(found.logp @ by_logp + found.entropy @ by_entropy)

    exact = learner.gradient(learner.evaluate(batch, np.float64), by_logp, by_entropy)
    for i in rng.choice(len(exact), 40, replace=False):
        kept = learner.parameters[i]
        learner.parameters[i] = kept + 1e-6
        up = value()
        learner.parameters[i] = kept - 1e-6
        down = value()
        learner.parameters[i] = kept
        assert exact[i] == pytest.approx((up - down) / 2e-6, abs=1e-6)


def test_hints_can_be_left_out_and_survive_a_checkpoint() -> None:
    blind = policy(hints=False)
    one, other = situation(a=1.0), situation(b_x=1.0)
    assert np.array_equal(blind.probabilities([one]), blind.probabilities([other]))
    learner, loaded = policy(), policy()
    learner.decide([one], [Key(1)])
    learner.parameters[:] = np.linspace(-1, 1, len(learner.parameters))
    loaded.load(learner.save())
    assert np.array_equal(loaded.probabilities([one, other]), learner.probabilities([one, other]))
