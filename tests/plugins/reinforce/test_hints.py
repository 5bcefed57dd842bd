"""Hints: what a task says of single choices, weighed for all choices alike."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from orchestrion_reinforce.neural import Neural
from orchestrion_reinforce.neural_policy import NeuralPolicy

from orchestrion import Key, Member, Situation
from tests.plugins.reinforce.support import policy as policy_of
from tests.plugins.reinforce.support import shake
from tests.plugins.values.support import situation as shown

ROSTER = (Member("a"), Member("b", ("x", "y")))


def policy(**settings: Any) -> NeuralPolicy:
    return policy_of(Neural(hidden=[8], **settings), ROSTER)


def situation(**hints: float) -> Situation:
    told = {name.replace("_", ":"): (value, 1.0) for name, value in hints.items()}
    return shown(features=[0.5], hints=told)


def test_one_learned_weight_moves_all_choices_by_their_own_hint() -> None:
    learner = policy(history=False)
    learner.probabilities([situation(a=0.1, b_x=0.9)])
    assert learner.network is not None
    learner.network.weights["bias1"].data[3] = 3.0  # of the first hint's weight
    learner.changed()
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


def test_hints_can_be_left_out_and_survive_a_checkpoint() -> None:
    blind = policy(hints=False)
    seen = [situation(a=1.0), situation(b_x=1.0)]
    first, second = blind.probabilities(seen)
    assert np.array_equal(first, second)
    learner, loaded = policy(), policy()
    learner.decide(seen[:1], [Key(1)])
    shake(learner)
    loaded.load(learner.save())
    assert np.array_equal(loaded.probabilities(seen), learner.probabilities(seen))
