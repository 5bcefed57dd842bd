"""The policy `cascade` does in the engine what its matrix says; `best-cascade` finds the best."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from attrs import frozen
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
    Episode,
    Key,
    Member,
    OpenContext,
    Output,
    Reward,
    RewardFunction,
    Saved,
    UsageError,
)
from orchestrion.config import Config, from_data
from orchestrion.testing import ScriptedAgent, engine_for
from tests.contrib_tasks.recorded.support import GENERATED as MODELS
from tests.contrib_tasks.recorded.support import config, trained, with_run

ROSTER = (Member("ask", MODELS), Member("alone"))


def of(policy: dict[str, Any] | None = None, vote: str = "weighted", **trainer: Any) -> Config:
    made = {"questions": 120, "models": 4, "groups": 2, "none": 0.2, "missing": 0.2}
    return config(
        {"use": "cascade", **(policy or {})},
        "best-cascade",
        0.3,
        task={"use": "recorded", "generated": made, "vote": vote},
        trainer={"use": "best-cascade", "task": "task", "reward": "reward", **trainer},
    )


@pytest.mark.parametrize("vote", ["weighted", "plurality"])
@pytest.mark.parametrize("search", ["cascade", "set", "category"])
def test_the_trainer_finds_the_best_one_and_the_engine_confirms_it(search: str, vote: str) -> None:
    runtimes, metrics, episodes = trained(of(None, vote, search=search))
    task, runner = runtimes["task"], runtimes["policy"]
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

    async def play(runtimes: dict[str, Any], session: Any) -> tuple[Recording, Any]:
        return runtimes["task"], await session().evaluate("test")

    task, episodes = with_run(of(policy), play)
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
        agents,
        CascadeRunner([Member(n) for n in agents], Steps(tuple(first), agree, Activation("last"))),
    )
    episode = asyncio.run(engine.run("e", engine.team.task.problems("train")[0], Key(1)))
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


@frozen
class Odd(RewardFunction):
    """Makes calls, or gives no reward."""

    asks: bool

    async def score(self, episode: Episode, calls: Any) -> Reward | None:
        """Ask about the episode."""
        return await calls.run(episode) if self.asks else None


def test_the_trainer_says_what_it_cannot_do() -> None:
    data = of().resolved()
    odd = {"use": f"{__name__}:Odd"}
    for sections, message in (
        ({"reward": {**odd, "asks": True}}, "a reward that makes no calls"),
        ({"reward": {**odd, "asks": False}}, "a reward for every episode"),
        ({"policy": {"use": "sequence"}}, "trains the policy cascade"),
        ({"reward": {"use": "outcome-minus-cost", "step_weight": "log"}}, "proportion to the cost"),
        ({"agents": {"ask": {"use": "recorded", "models": ["x"]}}}, "no agent of the team asks"),
    ):
        with pytest.raises(UsageError, match=message):
            trained(from_data({**data, **sections}))
