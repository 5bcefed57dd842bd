"""What a config can do with ensembles: other people's aggregators, several at once, examples."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from attrs import frozen
from orchestrion_ensemble.ensemble import Ensemble, FanOut
from orchestrion_ensemble.interfaces import Aggregator, Ballot, Result
from orchestrion_ensemble.votes import Plurality

from orchestrion import (
    Activation,
    Component,
    ConfigError,
    Episode,
    Key,
    Problem,
    Situation,
    Trajectory,
    UsageError,
    hookimpl,
)
from orchestrion._engine.calls import CallPath
from orchestrion._plugins import Plugins
from orchestrion._session import EngineSession
from orchestrion.config import Config, from_data, load
from orchestrion.testing._stage import opened
from tests.plugins.ensemble.support import PROBLEM

EXAMPLES = Path(__file__).parents[3] / "docs" / "examples"


@frozen
class Longest(Aggregator):
    """The longest answer.

    Args:
        least: shorter ones do not count.
    """

    least: int = 0

    def combine(self, ballots: Sequence[Ballot], problem: Problem, key: Key) -> Result:
        """The first of the longest."""
        said = [one.answer for one in ballots if one.answer and len(one.answer) >= self.least]
        if not said:
            return Result("no_consensus")
        best = max(said, key=len)
        return Result("winner", best, (best,), used=len(said))


class ThirdParty:
    """A plugin with an aggregator."""

    @hookimpl
    def orchestrion_components(self) -> Iterator[tuple[str, Component]]:
        """One of them."""
        yield "aggregator", Component("longest", f"{__name__}:Longest", "the longest answer")


def run(config: Config, policy: str = "policy", limit: int = 1) -> list[Episode]:
    """Episodes on the first test problems."""

    async def work() -> list[Episode]:
        async with opened(config) as team:
            engine = team.engine(CallPath(), policy)
            session = EngineSession(engine, "t", Key(1), Key(2), test=True)
            return await session.evaluate("test", limit=limit)

    return asyncio.run(work())


def data(**agents: Any) -> dict[str, Any]:
    """A config whose members say what they are told to."""
    lines = {
        name: {"use": "scripted", "lines": [{"content": text}]}
        for name, text in {"a": "x", "b": "long", "c": "x"}.items()
    }
    return {
        "task": {"use": "jury", "train": 1, "test": 1},
        "agents": {**agents, **lines},
        "policy": {"use": "round-robin"},
        "limits": {"turns": len(agents)},
    }


def test_an_aggregator_of_another_distribution_is_named_like_ours() -> None:
    plugins = Plugins()
    plugins.register(ThirdParty(), "third-party")
    vote = {"use": "ensemble", "members": ["a", "b", "c"]}
    given = data(
        named={**vote, "aggregator": "mine"},
        inline={**vote, "aggregator": {"use": "longest", "least": 9}},
        plain=vote,
    )
    given["aggregators"] = {"mine": {"use": "longest"}}
    config = from_data(json.loads(json.dumps(given)), plugins=plugins)
    turns = run(config)[0].turns
    results = [(t.output.data["status"], t.output.data["answer"]) for t in turns]
    assert results == [("winner", "long"), ("no_consensus", None), ("winner", "x")]
    assert config.resolved()["aggregators"] == {"mine": {"use": "longest", "least": 0}}


@pytest.mark.parametrize(
    ("aggregator", "message"),
    [
        ({"use": "pluralty"}, "pluralty.*did you mean 'plurality'"),
        ({"use": "plurality", "tie": "first"}, "aggregator.tie"),
        ({"use": "weighted", "weights": {"a": 0, "b": 0.0}}, "all weights are zero"),
        ({"use": "weighted", "accuracies": {"a": 1.5}}, "accuracies"),
        ({"use": "average", "weights": {"a": -1}}, "must not be negative"),
        ("nobody", "no aggregator is called 'nobody'"),
    ],
)
def test_a_bad_aggregator_is_refused_when_the_config_is_read(aggregator: Any, message: str) -> None:
    vote = {"use": "ensemble", "members": ["a", "b", "c"], "aggregator": aggregator}
    with pytest.raises(ConfigError, match=message):
        from_data(json.loads(json.dumps(data(vote=vote))))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"aggregator": {"use": "quorum", "veto": ["aa"]}}, "veto: 'aa' has no vote; did you mean"),
        ({"aggregator": {"use": "quorum", "votes": 4}}, "votes: is 4, but there are 3 ballots"),
        ({"aggregator": {"use": "weighted", "accuracies": {"z": 0.9}}}, "accuracies: 'z' has no"),
        ({"aggregator": {"use": "weighted", "weights": {"z": 1}}}, "weights: 'z' has no vote"),
        ({"aggregator": {"use": "average", "weights": {"z": 1}}}, "weights: 'z' has no vote"),
        ({"aggregator": {"use": "plurality", "weights": {"z": 1}}}, "weights: 'z' has no vote"),
        ({"min_votes": 4}, r"agents\.vote\.min_votes: is 4, but there are 3 ballots"),
    ],
)
def test_settings_that_do_not_fit_the_voters_are_refused(settings: Any, message: str) -> None:
    vote = {"use": "ensemble", "members": ["a", "b", "c"], **settings}
    with pytest.raises(UsageError, match=message):
        run(from_data(data(vote=vote)))


def test_specialists_with_an_integrator_beat_their_vote() -> None:
    config = load(EXAMPLES / "specialists.yaml")
    team = run(config, limit=200)
    vote = run(config, "evaluation.baselines.vote.policy", limit=200)
    inner = team[0].turns[0].output.inner
    assert inner is not None
    assert [turn.agent for turn in inner] == ["adder", "subtracter", "generalist", "core"]
    assert sum(one.success for one in team) > sum(one.success for one in vote) + 10
    assert {one.usage.cost for one in team} == {4.0}


@pytest.mark.parametrize(
    ("early_stop", "at_once", "recorded"), [(True, None, True), (True, 1, False), (False, 2, False)]
)
def test_the_order_of_arrival_is_recorded_only_if_it_matters(
    early_stop: bool, at_once: int | None, recorded: bool
) -> None:
    plan = tuple(Activation(name, reads=(), index=i) for i, name in enumerate("abc"))
    settings = Ensemble(members=[], early_stop=early_stop, at_once=at_once)
    policy = FanOut(plan, None, Plurality(), settings)
    [decision] = policy.decide([Situation(PROBLEM, Trajectory())], [Key(1)])
    assert decision.arrival is recorded
