"""The policy `cascade` does in the engine what its matrix says; `best-cascade` finds the best."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Any

import pytest
from orchestrion_recorded.baselines import (
    Strategy,
    best_by_category,
    best_cascade,
    best_set,
    cross_fitted,
    evaluate,
    evaluate_by_category,
    matrix,
)
from orchestrion_recorded.cascade import Cascade, CascadeRunner, Steps, choice_of
from orchestrion_recorded.recording import Recording

from orchestrion import (
    Activation,
    Agent,
    CheckpointError,
    Key,
    Member,
    OpenContext,
    Output,
    Saved,
    UsageError,
)
from orchestrion._engine.calls import CallPath
from orchestrion._engine.opening import open_components
from orchestrion._session import EngineSession
from orchestrion.config import Config, from_data
from orchestrion.testing import ScriptedAgent, engine_for

MODELS = ["m1", "m2", "m3", "m4"]
ROSTER = (Member("ask", tuple(MODELS)), Member("alone"))


def config(policy: dict[str, Any], trainer: dict[str, Any], vote: str = "weighted") -> Config:
    generated = {"questions": 120, "models": 4, "groups": 2, "none": 0.2, "missing": 0.2}
    return from_data(
        {
            "seed": 1,
            "task": {"use": "recorded", "generated": generated, "vote": vote},
            "agents": {"ask": {"use": "recorded", "models": MODELS}},
            "policy": {"use": "cascade", **policy},
            "reward": {"use": "outcome-minus-cost", "cost_weight": 0.3},
            "trainer": {"use": "best-cascade", "task": "task", "reward": "reward", **trainer},
        }
    )


async def trained(of: Config) -> tuple[Recording, CascadeRunner, Any, Any]:
    """One iteration of the trainer, then the test split with the policy."""
    async with AsyncExitStack() as stack:
        one = await open_components(of, stack, Key(1))
        engine = one.engine(CallPath())
        session = EngineSession(engine, "0/0", Key(1), Key(2))
        metrics = await one.runtimes["trainer"].iterate(0, session)
        judge = EngineSession(engine, "e", Key(1), Key(2), test=True)
        episodes = await judge.evaluate("test")
        engine.close()
        return one.runtimes["task"], one.runtimes["policy"], metrics, episodes


@pytest.mark.parametrize("vote", ["weighted", "plurality"])
@pytest.mark.parametrize("search", ["cascade", "set", "category"])
def test_the_trainer_finds_the_best_one_and_the_engine_confirms_it(search: str, vote: str) -> None:
    task, runner, metrics, episodes = asyncio.run(trained(config({}, {"search": search}, vote)))
    train, test = cross_fitted(task, matrix(task, "train")), matrix(task, "test")
    if search == "category":
        want = best_by_category(train, 0.3)
        assert {*want} == {"", *runner.categories} == {"", *train.groups}
    else:
        want = {"": best_cascade(train, 0.3) if search == "cascade" else best_set(train, 0.3)}
    first = tuple(Activation("ask", MODELS[m]) for m in want[""].first)
    assert runner.steps.first == first
    in_training = evaluate_by_category(train, want).reward(0.3).mean()
    assert metrics["reward"] == pytest.approx(in_training)
    result = evaluate_by_category(test, want)
    assert [float(one.success) for one in episodes] == list(result.correct)
    assert [one.usage.cost for one in episodes] == pytest.approx(list(result.cost))


@pytest.mark.parametrize(
    "strategy",
    [Strategy((0, 1, 2), 2, 3), Strategy((1,), 1, 0), Strategy((0, 3), 3, 2), Strategy((0, 2))],
)
def test_any_cascade_does_what_its_matrix_says(strategy: Strategy) -> None:
    policy = {
        "first": [MODELS[m] for m in strategy.first],
        "agree": strategy.agree,
        "then": MODELS[strategy.then] if strategy.then is not None else "",
    }

    async def play() -> tuple[Recording, Any]:
        async with AsyncExitStack() as stack:
            one = await open_components(config(policy, {}), stack, Key(1))
            engine = one.engine(CallPath())
            session = EngineSession(engine, "e", Key(1), Key(2), test=True)
            episodes = await session.evaluate("test")
            engine.close()
            return one.runtimes["task"], episodes

    task, episodes = asyncio.run(play())
    result = evaluate(matrix(task, "test"), strategy)
    assert [float(one.success) for one in episodes] == list(result.correct)
    assert [one.usage.cost for one in episodes] == pytest.approx(list(result.cost))


def said(agree: int, *answers: str) -> list[str]:
    """Whom a cascade over three agents asks, one of whom says what is given, elsewhere."""
    agents: dict[str, Agent] = {
        name: ScriptedAgent((Output(answer),)) for name, answer in zip("abc", answers, strict=True)
    }
    agents["last"] = ScriptedAgent((Output("the last word"),))
    first = [Activation(name) for name in "abc"]
    engine = engine_for(
        agents, CascadeRunner([Member(n) for n in agents], first, agree, Activation("last"))
    )
    episode = asyncio.run(engine.run("e", engine.team.task.problems("train")[0], Key(1)))
    engine.close()
    return [turn.agent for turn in episode.turns]


def test_it_works_over_any_agents_by_what_they_say() -> None:
    assert said(2, "Paris", " paris", "Rome") == ["a", "b", "c"]
    assert said(3, "Paris", " paris", "Rome") == ["a", "b", "c", "last"]
    assert said(1, "", "", "") == ["a", "b", "c", "last"], "no answer agrees with none"
    assert said(0, "", "", "") == ["a", "b", "c"]


def test_names_may_be_choices_or_options_that_one_agent_has() -> None:
    assert choice_of("ask:m1", ROSTER) == choice_of("m1", ROSTER) == Activation("ask", "m1")
    assert choice_of("alone", ROSTER) == Activation("alone")
    for name in ("m9", "ask", ""):
        with pytest.raises(UsageError, match="is not a choice"):
            choice_of(name, ROSTER)
    twice = (*ROSTER, Member("other", ("m1",)))
    with pytest.raises(UsageError, match="is not a choice"):
        choice_of("m1", twice)


def _open(policy: Cascade, roster: Sequence[Member]) -> Any:
    async def enter() -> Any:
        async with policy.open(OpenContext("policy", Key(1), tuple(roster))) as runner:
            return runner

    return asyncio.run(enter())


def test_what_it_saves_it_loads_and_refuses_for_another_team() -> None:
    runner = _open(Cascade(["m1", "alone"], 2, "m3"), ROSTER)
    runner.set(runner.steps, {"law": Steps((Activation("ask", "m2"),), 1)})
    other = _open(Cascade(), ROSTER)
    other.load(runner.save())
    assert (other.steps, other.categories) == (runner.steps, runner.categories)
    assert (other.steps.agree, other.steps.then) == (2, Activation("ask", "m3"))
    with pytest.raises(CheckpointError, match="another team"):
        _open(Cascade(), [Member("x")]).load(runner.save())
    with pytest.raises(CheckpointError, match="not the state"):
        other.load(Saved(data={"first": []}))


def test_the_trainer_says_what_it_cannot_do() -> None:
    sequence = {"use": "sequence"}
    with pytest.raises(UsageError, match="trains the policy cascade"):
        asyncio.run(trained(_with(policy=sequence)))
    with pytest.raises(UsageError, match="proportion to the cost"):
        asyncio.run(trained(_with(reward={"use": "outcome-minus-cost", "step_weight": "log"})))
    with pytest.raises(UsageError, match="no agent of the team asks"):
        asyncio.run(trained(_with(agents={"ask": {"use": "recorded", "models": ["other"]}})))


def _with(**sections: Any) -> Config:
    data = config({}, {}).resolved()
    return from_data({**data, **sections})
