"""The policy `values`: what it takes, what it may not take, what trainers learn from."""

from __future__ import annotations

import numpy as np
import pytest
from orchestrion_values.policy import Exploring, RecordedChoice

from orchestrion import CheckpointError, Key, Member, Saved, UsageError
from tests.plugins.values.support import Fixed, names, policy, situation

ALL = ["a", "b:x", "b:y", "c", "stop"]


def keys(count: int) -> list[Key]:
    return [Key(3).child(i) for i in range(count)]


def test_choices_are_agents_with_their_options_and_stopping() -> None:
    assert policy().names == ALL
    assert policy(stop=False).names == ALL[:-1]


def test_a_team_with_nothing_to_choose_is_refused() -> None:
    with pytest.raises(UsageError, match="no agent to choose"):
        policy(stop=False, roster=())


def test_untrained_it_takes_any_allowed_choice() -> None:
    shown = [situation(blocked=["b"])] * 200
    assert set(names(policy().decide(shown, keys(200)))) == {"a", "c", "stop"}
    assert policy().probabilities(shown[:1]).tolist() == [
        pytest.approx([1 / 3, 0, 0, 1 / 3, 1 / 3])
    ]


def test_it_takes_the_highest_score_that_is_allowed_and_the_first_of_equals() -> None:
    runtime = policy()
    runtime.model = Fixed((1, 5, 5, 2, 0))
    free, blocked = situation(), situation(blocked=["b:x", "b:y"])
    assert names(runtime.decide([free, blocked], keys(2))) == ["b:x", "c"]
    assert runtime.probabilities([free, blocked]).argmax(axis=1).tolist() == [1, 3]


def test_where_everything_is_blocked_and_stopping_is_no_choice_it_stops() -> None:
    runtime = policy(stop=False, roster=(Member("a"),))
    stuck = situation(blocked=["a"])
    for model in (None, Fixed((1.0,))):
        runtime.model = model
        assert names(runtime.decide([stuck], keys(1))) == ["stop"]
        assert runtime.probabilities([stuck]).tolist() == [[0.0]]


def test_exploring_records_what_was_taken_and_skips_where_nothing_is_allowed() -> None:
    runtime = policy(stop=False, roster=(Member("a"), Member("b")))
    explorer = Exploring(runtime, lambda situations, allowed, keys: [(1, 0.25)] * len(situations))
    first, stuck = explorer.decide([situation(), situation(blocked=["a", "b"])], keys(2))
    assert isinstance(first.record, RecordedChoice)
    assert first.record.choice == 1
    assert first.logp == pytest.approx(np.log(0.25))
    assert stuck.stop
    assert stuck.record is None


def test_a_model_of_another_team_or_an_unknown_one_is_refused() -> None:
    saved = policy().save()
    policy().load(saved)
    with pytest.raises(CheckpointError, match="another team"):
        policy(roster=(Member("z"),)).load(saved)
    with pytest.raises(CheckpointError, match="'oracle'"):
        policy().load(Saved(data={"choices": ALL, "model": "oracle", "data": None}))
