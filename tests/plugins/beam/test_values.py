"""Estimators that come with the plugin."""

from __future__ import annotations

import asyncio

import pytest
from attrs import frozen
from orchestrion_beam.interfaces import Valued, ValueEstimator
from orchestrion_beam.values import Combined, Noise, TaskValue

from orchestrion import Branch, Key, Session, Usage, no_calls
from tests.plugins.beam.support import Climber, Ladder, session_for


@frozen
class Says(ValueEstimator):
    """Always the same."""

    valued: Valued

    ceiling = no_calls

    async def estimate(self, branch: Branch, session: Session, key: Key) -> Valued:
        return self.valued


def estimated(estimator: ValueEstimator, bounds: bool = False) -> Valued:
    session = session_for({"a": Climber()}, Ladder(4, bounds=bounds))
    branch = session.begin(session.problems("train")[0], Key(1))
    return asyncio.run(estimator.estimate(branch, session, Key(2)))


def test_the_tasks_value_is_its_partial_score_with_what_it_says_can_be_reached() -> None:
    assert estimated(TaskValue()) == Valued(0.0, bound=1.0)
    assert estimated(TaskValue(), bounds=True).bound == 1.0
    assert TaskValue().scores == 1
    assert Noise().scores == 0


def test_several_values_are_weighed_and_their_usage_is_summed_up() -> None:
    parts = (
        Says(Valued(1.0, Usage(calls=2), bound=0.9)),
        Says(Valued(0.0, Usage(calls=1), bound=0.7)),
    )
    assert estimated(Combined(parts)) == Valued(0.5, Usage(calls=3), 0.7)
    assert estimated(Combined(parts, weights=(3, 1))).value == 0.75
    assert Combined((TaskValue(), Noise())).label == "task and noise"
    assert Combined((TaskValue(), Noise(), TaskValue())).scores == 2
    assert Combined(parts).ceiling(10) == Usage()


def test_what_can_say_nothing_is_left_out_of_the_mean() -> None:
    silent = Says(Valued(None, Usage(calls=1)))
    assert estimated(Combined((silent, Says(Valued(0.4))))).value == pytest.approx(0.4)
    assert estimated(Combined((silent, silent))) == Valued(None, Usage(calls=2))


def test_as_many_weights_as_parts_are_needed() -> None:
    with pytest.raises(ValueError, match="got 1 for 2 parts"):
        Combined((Noise(), Noise()), weights=(1.0,))
