"""Rewards: the verifier's outcome, and every cost once."""

from __future__ import annotations

import asyncio
from math import log
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from orchestrion_basics.rewards import ExactOutcome, OutcomeMinusCost

from orchestrion import (
    Episode,
    Key,
    Output,
    Problem,
    Reward,
    RewardFunction,
    Scores,
    Status,
    Trajectory,
    Turn,
    Usage,
)
from orchestrion._engine.calls import ActivationCalls
from orchestrion.testing import Fixed, ScriptedAgent, engine_for

COSTS = (1.0, 2.5, 0.5)


@pytest.mark.parametrize("measure", ["usd", "tokens", "calls"])
def test_a_weight_of_what_no_agent_takes_is_doubted(measure: Any) -> None:
    reward, free = OutcomeMinusCost(measure=measure), Usage(cost=1.0)
    assert f"`measure: {measure}` counts no cost" in reward.doubt([free, Usage()])
    assert reward.doubt([Usage(), Usage(1, 1, 1, float("nan"))]) == ""
    assert reward.doubt([Usage(), None]) == ""
    assert OutcomeMinusCost(0.0, measure).doubt([free]) == ""
    assert OutcomeMinusCost().doubt([free]) == ""


def test_costs_that_are_no_us_dollars_and_therefore_do_not_count_are_doubted() -> None:
    dollars, own = Usage(1, 1, 1, 0.1, 0.1), Usage(cost=10.0)
    doubt = OutcomeMinusCost(measure="usd").doubt
    assert "leaves out the `cost` that some agents of the team state" in doubt([dollars, own])
    assert doubt([dollars, None]) == ""
    assert OutcomeMinusCost(measure="tokens").doubt([dollars, own]) == ""


def test_us_dollars_and_costs_of_another_unit_are_doubted() -> None:
    reward, dollars, own = OutcomeMinusCost(), Usage(1, 0, 0, 0.1, 0.1), Usage(cost=10.0)
    assert "adds up different units" in reward.doubt([dollars, None, own])
    assert reward.doubt([dollars, dollars, Usage(), Usage(1, usd=float("nan"))]) == ""
    assert reward.doubt([own, Usage(1, usd=0.1, cost=1.0)]) == ""
    assert OutcomeMinusCost(0.0).doubt([dollars, own]) == ""


def episode(
    costs: tuple[float, ...] = COSTS,
    scores: Scores | None = Scores(0.8, True),  # noqa: B008
    status: Status = Status.COMPLETED,
) -> Episode:
    turns = [
        Turn(i, "a", output=Output(usage=Usage(1, 10, 5, 0.1, c))) for i, c in enumerate(costs)
    ]
    return Episode("e", Problem("p"), Trajectory(turns), status=status, scores=scores)


def reward(function: RewardFunction, of: Episode) -> Reward | None:
    engine = engine_for({"a": ScriptedAgent()}, Fixed())
    return asyncio.run(function.score(of, ActivationCalls(engine, Key(0))))


def test_three_steps_add_up_as_by_hand() -> None:
    result = reward(OutcomeMinusCost(cost_weight=0.1), episode())
    assert result is not None
    assert result.turns == pytest.approx((-0.1, -0.25, -0.05))
    assert result.total == pytest.approx(0.8 - 0.4)
    assert result.parts == pytest.approx({"outcome": 0.8, "cost": -0.4})


def test_later_steps_can_be_dearer() -> None:
    result = reward(OutcomeMinusCost(1.0, step_weight="log", horizon=2.0), episode((1.0, 1.0)))
    assert result is not None
    assert result.turns == pytest.approx((-log(1.5), -log(2.0)))


@pytest.mark.parametrize(
    ("measure", "total"), [("turns", 3.0), ("calls", 3.0), ("tokens", 45.0), ("usd", 0.3)]
)
def test_what_counts_as_cost_is_a_setting(measure: str, total: float) -> None:
    result = reward(OutcomeMinusCost(1.0, measure=measure), episode())  # type: ignore[arg-type]
    assert result is not None
    assert result.parts["cost"] == pytest.approx(-total)


def test_bonus_and_penalty_follow_the_verifier_not_the_end() -> None:
    function = OutcomeMinusCost(0.0, success_bonus=1.0, failure_penalty=2.0)
    solved = reward(function, episode())
    failed = reward(function, episode(scores=Scores(0.5, False)))
    stopped = reward(function, episode(status=Status.LIMIT))
    assert [result and result.total for result in (solved, failed, stopped)] == [1.8, -1.5, -2.0]


def test_an_episode_stopped_by_a_limit_gets_no_outcome() -> None:
    result = reward(OutcomeMinusCost(0.1), episode(status=Status.LIMIT))
    assert result is not None
    assert result.total == pytest.approx(-0.4)
    assert reward(ExactOutcome(), episode(status=Status.LIMIT)) == Reward(0.0)


@pytest.mark.parametrize("function", [OutcomeMinusCost(), ExactOutcome()])
def test_without_scores_the_reward_is_missing_not_zero(function: RewardFunction) -> None:
    assert reward(function, episode(scores=None)) is None


@given(st.lists(st.floats(0, 100), max_size=6), st.floats(0, 10))
def test_the_total_is_outcome_plus_turns_whatever_they_cost(
    costs: list[float], weight: float
) -> None:
    result = reward(OutcomeMinusCost(weight), episode(tuple(costs)))
    assert result is not None
    assert result.turns is not None
    assert result.total == pytest.approx(0.8 + sum(result.turns), abs=1e-9)


def test_a_forked_prefix_costs_each_episode_once() -> None:
    prefix = episode((1.0,)).trajectory
    left = prefix.append(Turn(1, "b", output=Output(usage=Usage(cost=2.0))))
    right = prefix.append(Turn(1, "c", output=Output(usage=Usage(cost=3.0))))
    totals = [
        reward(OutcomeMinusCost(1.0), Episode("e", Problem("p"), fork, scores=Scores(1.0, True)))
        for fork in (left, right)
    ]
    assert [total and total.total for total in totals] == [-2.0, -3.0]
