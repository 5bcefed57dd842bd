"""A model that says who is next, with the policy that follows it."""

from __future__ import annotations

import asyncio
import json

import pytest
from attrs import evolve
from orchestrion_basics.follow import Follow
from orchestrion_chat.calculator import Calculator
from orchestrion_chat.chat import Chat, Variant
from orchestrion_chat.router import Router

from orchestrion import (
    Agent,
    CallError,
    Episode,
    Key,
    Observation,
    OpenContext,
    Output,
    Problem,
    Step,
    Turn,
)
from orchestrion._config.sections import Limits
from orchestrion._engine.team import member_of
from orchestrion.testing import ListTask, ScriptedAgent, engine_for
from tests.contrib_agents.chat.support import PROBLEM, Lines


def go(name: str, reason: str = "so") -> str:
    return json.dumps({"reason": reason, "next": name})


class Blocking(ListTask):
    """Blocks "critic" until something was said, and "writer:bold" always."""

    def start(self, problem: Problem, key: Key) -> Step:
        return Step(0, Observation("begun", blocked=frozenset({"critic", "writer:bold"})))

    def step(self, state: int, turn: Turn, key: Key) -> Step:
        blocked = frozenset({"writer:bold"})
        return Step(state + 1, Observation("going on", blocked=blocked))


def directed(model: Lines, **settings: object) -> Episode:
    """An episode of a team that follows a router."""
    agents: dict[str, Agent] = {
        "router": Router(model=model, **settings).ready(),  # type: ignore[arg-type]
        "writer": Chat(
            model=Lines(["a draft"]),
            preset="writer",
            variants={"bold": Variant(), "plain": Variant()},
        ).ready(),
        "critic": ScriptedAgent([Output("weak")]),
    }

    async def main() -> Episode:
        context = OpenContext("policy", Key(1), tuple(map(member_of, agents, agents.values())))
        async with Follow("router").open(context) as policy:
            engine = engine_for(agents, policy, Blocking(), limits=Limits(8))
            return await engine.run("e", PROBLEM, Key(1))

    return asyncio.run(main())


def who(episode: Episode) -> list[str]:
    return [
        turn.agent if not turn.option else f"{turn.agent}:{turn.option}" for turn in episode.turns
    ]


def test_the_team_goes_where_the_model_says_until_it_says_stop() -> None:
    model = Lines([go("writer:plain", "nothing is written"), go("critic"), go("stop")])
    episode = directed(model)
    assert who(episode) == ["router", "writer:plain", "router", "critic", "router"]
    first = episode.turns[0].output
    assert first.data == {"next": "writer", "option": "plain", "reason": "nothing is written"}
    assert first.content == "next: writer:plain (nothing is written)"
    assert episode.turns[-1].output.data == {"next": "stop", "reason": "so"}


def test_it_chooses_among_the_team_without_itself_and_what_is_blocked() -> None:
    model = Lines([go("writer:plain"), go("stop")])
    directed(model)
    first, second = (request["schema"]["properties"]["next"]["enum"] for request in model.requests)
    assert first == ["writer:plain", "stop"]
    assert second == ["writer:plain", "critic", "stop"]
    told, asked = (message["content"] for message in model.requests[1]["messages"])
    assert "- writer:plain: writes the work that was asked for\n- critic\n- stop: " in told
    assert "a draft" in asked
    assert asked.endswith("You are router. Who is next?")


def test_an_answer_that_names_nobody_is_mended_once() -> None:
    model = Lines([go("critic"), go("writer:plain"), go("stop")])
    episode = directed(model)
    assert who(episode) == ["router", "writer:plain", "router"]
    assert "'critic' is not one of" in model.requests[1]["messages"][-1]["content"]


@pytest.mark.parametrize(
    "answer",
    [go("nobody"), "writer", {"text": "no", "stop": "refused"}, {"text": "", "stop": "length"}],
)
def test_then_the_fallback_is_taken_and_says_why(answer) -> None:  # type: ignore[no-untyped-def]
    model = Lines([answer, answer, go("stop")])
    episode = directed(model, fallback="writer:plain")
    assert who(episode)[:2] == ["router", "writer:plain"]
    output = episode.turns[0].output
    assert output.data == {"next": "writer", "option": "plain", "reason": "by the fallback"}
    assert output.metadata["fallback"]


def test_without_a_fallback_the_turn_fails() -> None:
    episode = directed(Lines(["nobody"]))
    assert who(episode) == ["router"]
    assert episode.turns[0].status == "failed"


def test_a_fallback_that_is_blocked_is_not_taken() -> None:
    episode = directed(Lines(["nobody"]), fallback="critic")
    assert episode.turns[0].status == "failed"
    assert "the fallback 'critic' may not act now" in episode.turns[0].error


def test_a_call_that_fails_takes_no_fallback() -> None:
    class Down(Lines):
        async def complete(self, request, key, calls):  # type: ignore[no-untyped-def]
            raise CallError("down", "permanent")

    episode = directed(Down(), fallback="writer:plain")
    assert who(episode) == ["router"]
    assert "down" in episode.turns[0].error


def test_who_may_be_chosen_can_be_restricted() -> None:
    model = Lines([go("writer:plain")])
    episode = directed(model, agents=["writer"], may_stop=False, temperature=0.0)
    assert episode.turns[1].agent == "writer"
    assert model.requests[0]["schema"]["properties"]["next"]["enum"] == ["writer:plain"]
    assert model.requests[0]["temperature"] == 0.0
    episode = directed(Lines([go("stop")]), agents=["writr"])
    assert "the router's agents name 'writr', who is not in the team" in episode.turns[0].error
    episode = directed(Lines([go("stop")]), agents=["critic"], may_stop=False)
    assert "no agent may act now" in episode.turns[0].error


def test_a_ceiling_covers_an_answer_and_its_repair() -> None:
    from orchestrion import Usage

    model = Lines(["nobody"], most=Usage(1, 0, 100, 0.01))
    most = Router(model=model).ready().ceiling(1000)
    assert most is not None
    assert (most.calls, most.output_tokens, most.usd) == (2, 200, 0.02)
    directed(evolve(model), fallback="stop")
    assert Router(model=Lines()).ready().ceiling(1000) is None


class Plain(Lines):
    """Cannot be held to a schema and calls no tools, as weights on this machine cannot."""

    unsupported = frozenset({"schema", "tools"})


@pytest.mark.parametrize(
    ("model", "structured"), [(Lines([go("stop")]), "prompt"), (Plain([go("stop")]), "auto")]
)
def test_told_in_words_the_form_is_in_the_instructions(model: Lines, structured: str) -> None:
    directed(model, structured=structured)
    assert "schema" not in model.requests[0]
    assert '"enum":["writer:plain","stop"]' in model.requests[0]["messages"][0]["content"]


def test_what_a_model_never_can_is_refused_before_a_run() -> None:
    form = {"type": "object", "properties": {"answer": {"type": "string"}}, "required": ["answer"]}
    with pytest.raises(ValueError, match="structured: this model cannot be held to a schema"):
        Router(model=Plain(), structured="model")
    with pytest.raises(ValueError, match="structured: this model cannot be held to a schema"):
        Chat(model=Plain(), output=form, structured="model")
    with pytest.raises(ValueError, match="tools: this model cannot call tools"):
        Chat(model=Plain(), tools=[Calculator()])
