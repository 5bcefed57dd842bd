"""A cheap score and a judgement, together."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from attrs import define
from hypothesis import given
from hypothesis import strategies as st
from orchestrion_judge.hybrid import Hybrid

from orchestrion import (
    Calls,
    Episode,
    Reward,
    RewardFunction,
    Scores,
    Status,
    Usage,
    no_calls,
)
from tests.plugins.judge.support import calls, episode


@define
class Giving(RewardFunction):
    """Gives one reward, and counts."""

    reward: Reward | None
    asked: int = 0

    async def score(self, episode: Episode, calls: Calls) -> Reward | None:
        self.asked += 1
        return self.reward


def score(one: Episode | None = None, **settings: Any) -> Any:
    """The reward; None if it is missing."""
    return asyncio.run(Hybrid(**settings).score(one or episode("42"), calls()))


numbers = st.floats(0, 1)


@given(numbers, numbers, st.floats(0.01, 1), st.none() | numbers)
def test_the_judge_is_asked_from_the_bar_on_and_weighs_what_is_said(
    cheap: float, judged: float, weight: float, bar: float | None
) -> None:
    judge = Giving(Reward(judged))
    found = score(cheap=Giving(Reward(cheap)), judge=judge, weight=weight, judge_from=bar)
    asked = bar is None or cheap >= bar
    assert judge.asked == asked
    assert found.total == pytest.approx((1 - weight) * cheap + weight * judged * asked)
    assert found.parts == {"hybrid.cheap": cheap, "hybrid.judged": asked}


def test_without_a_cheap_reward_it_is_what_the_verifier_says() -> None:
    judge = Giving(Reward(1.0))
    found = score(episode("42", scores=Scores(0.8)), judge=judge)
    assert found.total == pytest.approx(0.9)
    stopped = score(episode("42", scores=Scores(0.8), status=Status.LIMIT), judge=judge)
    assert stopped.total == 0.5
    assert score(episode("42", scores=None), judge=judge) is None


def test_a_missing_score_of_either_makes_the_reward_missing() -> None:
    good = Reward(1.0)
    assert score(cheap=Giving(None), judge=Giving(good)) is None
    assert score(cheap=Giving(good), judge=Giving(None)) is None
    assert score(cheap=Giving(Reward(0.1)), judge=Giving(None), judge_from=0.5) is not None


def test_credit_of_turns_and_agents_is_weighed_like_the_total() -> None:
    cheap = Reward(1.0, (0.5, 0.5), {"a": 1.0}, {"outcome": 1.0})
    judged = Reward(0.5, (0.5, 0.0), {"b": 0.5}, {"judge": 0.5})
    found = score(episode("a", "b"), cheap=Giving(cheap), judge=Giving(judged), weight=0.25)
    assert found.turns == (0.5, 0.375)
    assert found.agents == {"a": 0.75, "b": 0.125}
    assert found.parts["outcome"] == 1
    assert found.parts["judge"] == 0.5


def test_its_ceiling_is_that_of_both() -> None:
    @define
    class Costly(Giving):
        def ceiling(self, tokens: int) -> Usage:
            return Usage(2, tokens, 7)

    class Free(Giving):
        ceiling = no_calls

    costly, free = Costly(Reward(1.0)), Free(Reward(1.0))
    assert Hybrid(judge=costly).ceiling(5) == Usage(2, 5, 7)
    assert Hybrid(judge=costly, cheap=free).ceiling(5) == Usage(2, 5, 7)
    assert Hybrid(judge=costly, cheap=costly).ceiling(5) == Usage(4, 10, 14)
    assert Hybrid(judge=costly, cheap=Giving(None)).ceiling(5) is None
