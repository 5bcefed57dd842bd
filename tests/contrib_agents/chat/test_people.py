"""Tool calls that need approval, and turns that a person writes."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import sys
from pathlib import Path
from typing import Any

import pytest
from orchestrion_chat.chat import Chat
from orchestrion_chat.functions import Functions, writes
from orchestrion_chat.people import Person, Question, answered_by
from orchestrion_chat.person import PersonAgent
from orchestrion_chat.sees import Sees

from orchestrion import JSON, Key, OpenContext, OrchestrionError, Problem
from orchestrion._engine.calls import CallPath
from orchestrion._engine.replaying import ReplayPath
from orchestrion.config import load
from orchestrion.runs import train
from tests.contrib_agents.chat.support import Lines, Notebook, played, turn_of, use

LOG: list[str] = []
RULED: list[tuple[str, str, JSON]] = []


@writes
def send(text: str) -> str:
    """Send a message."""
    LOG.append(text)
    return "sent"


def look(what: str) -> str:
    """Look at something."""
    return f"{what} is fine"


def only_short(agent: str, tool: str, arguments: Any) -> str:
    """A rule of a user."""
    RULED.append((agent, tool, arguments))
    return "allow" if len(arguments["text"]) < 5 else "deny"


class Clerk(Person):
    """A front end that gives answers in order."""

    def __init__(self, *answers: str | None) -> None:
        self.answers = list(answers)
        self.questions: list[Question] = []

    async def answer(self, question: Question) -> str | None:
        await asyncio.sleep(0)
        self.questions.append(question)
        return self.answers.pop(0)


def sender(approve: dict[str, str], text: str = "hello") -> tuple[Lines, Any]:
    model = Lines([use("send", json.dumps({"text": text})), "done"])
    tools = [Functions(given=[send, look], allow_writes=["send"])]
    return model, Chat(model=model, tools=tools, approve=approve).ready()


def result(model: Lines) -> str:
    return str(model.requests[1]["messages"][-1]["content"])


@pytest.fixture(autouse=True)
def empty() -> None:
    LOG.clear()
    RULED.clear()


@pytest.mark.parametrize(
    ("rules", "made"),
    [
        ({}, True),
        ({"look": "deny"}, True),
        ({"*": "deny"}, False),
        ({"send": "allow", "*": "deny"}, True),
        ({"se*": "deny", "send": "allow"}, False),
        ({"send": f"{__name__}:only_short"}, False),
    ],
)
def test_the_first_rule_that_fits_decides(rules: dict[str, str], made: bool) -> None:
    model, agent = sender(rules)
    turn = turn_of(agent)
    assert (turn.output.content, LOG) == ("done", ["hello"] if made else [])
    assert ("not allowed" in result(model)) is not made
    assert turn.output.metadata.get("not_approved", []) == ([] if made else ["send"])


def test_a_function_is_told_who_calls_what() -> None:
    _, agent = sender({"send": f"{__name__}:only_short"}, "hey")
    turn_of(agent)
    assert RULED == [("solver", "send", {"text": "hey"})]
    assert LOG == ["hey"]


@pytest.mark.parametrize(
    ("answer", "told"),
    [("yes", ""), ("no", "did not approve"), ("too loud", "too loud"), (None, "nobody answered")],
)
def test_a_person_decides_through_a_front_end(answer: str | None, told: str) -> None:
    model, agent = sender({"send": "ask"})
    clerk = Clerk(answer)
    with answered_by(clerk):
        turn_of(agent)
    [question] = clerk.questions
    assert (question.kind, question.agent, question.tool) == ("approval", "solver", "send")
    assert question.arguments == {"text": "hello"}
    assert ([] if told else ["hello"]) == LOG
    assert told in result(model)


def test_where_nobody_is_ask_refuses() -> None:
    model, agent = sender({"send": "ask"})
    turn_of(agent)
    assert LOG == []
    assert "nobody answered" in result(model)


def test_a_decision_is_on_record_and_nobody_is_asked_again() -> None:
    book = Notebook()
    model, agent = sender({"send": "ask", "look": f"{__name__}:only_short"})
    clerk = Clerk("yes")
    with answered_by(clerk):
        first = turn_of(agent, calls=CallPath(journal=book))
    model.requests.clear()
    again = turn_of(agent, calls=ReplayPath(book))
    assert again.output == first.output
    assert (len(clerk.questions), LOG) == (1, ["hello"])


def test_questions_come_before_all_calls_of_an_answer_and_in_order() -> None:
    calls = [
        {"id": str(n), "name": "send", "arguments": json.dumps({"text": f"t{n}"})} for n in range(3)
    ]
    model = Lines([{"text": "", "stop": "tools", "tool_calls": calls}, "done"])
    tools = [Functions(given=[send], allow_writes=["send"])]
    clerk = Clerk("yes", "no", "yes")
    with answered_by(clerk):
        turn_of(Chat(model=model, tools=tools, approve={"*": "ask"}).ready())
    assert [question.arguments for question in clerk.questions] == [
        {"text": f"t{n}"} for n in range(3)
    ]
    assert LOG == ["t0", "t2"]


def test_rules_that_cannot_act_are_refused() -> None:
    with pytest.raises(ValueError, match="must be allow, deny, ask"):
        sender({"send": "perhaps"})
    with pytest.raises(ValueError, match="approve has no effect without tools"):
        Chat(model=Lines(), approve={"send": "ask"})


def test_a_function_that_cannot_be_loaded_is_an_error_before_the_first_turn() -> None:
    chat = Chat(
        model=Lines(), tools=[Functions(given=[send])], approve={"send": "no_such_module:rule"}
    )
    with pytest.raises(OrchestrionError, match=r"approve\.send: .*no_such_module"):
        opened(chat)


# ---------------------------------------------------------------- a person's turns

CONFIG = """
seed: 7
task: {use: steps, train: 2, validation: 2, test: 2}
speakers:
  script:
    use: scripted
    lines:
      - {tool: calculate, arguments: {expression: 20 + 22}}
      - {text: It was not allowed.}
models:
  main: {use: offline, speaker: script}
tools:
  sums: {use: calculator}
agents:
  boss: {use: person}
  solver: {use: chat, model: main, tools: [sums], approve: {calculate: ask}}
policy: {use: sequence, steps: [boss, solver]}
"""


def test_the_person_at_the_terminal_writes_and_approves_only_what_was_shown(tmp_path: Path) -> None:
    (tmp_path / "team.yaml").write_text(CONFIG)
    leader, follower = pty.openpty()

    async def main() -> str:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "orchestrion", "run", "team.yaml", "--no-stream"),
            *("--input", "Worksheet (sums): start with 20. 1. add 22"),
            cwd=tmp_path,
            stdin=follower,
            stderr=asyncio.subprocess.STDOUT,
            stdout=asyncio.subprocess.PIPE,
        )
        assert process.stdout is not None
        out = (await process.stdout.readuntil(b"it is your turn:")).decode()
        # A line too many: it answers no question that comes later.
        os.write(leader, b"Take your time.\nyes\n")
        out += (await process.stdout.readuntil(b"Allow it?")).decode()
        os.write(leader, b"no\n")
        out += (await process.stdout.read()).decode()
        assert await process.wait() == 0, out
        return out

    try:
        out = asyncio.run(main())
    finally:
        os.close(leader)
        os.close(follower)
    assert "boss, it is your turn:" in out
    assert "Take your time." in out
    assert 'solver wants to call calculate with {"expression":"20 + 22"}' in out
    assert "It was not allowed." in out


def test_training_with_a_person_is_refused_before_anything_is_asked(tmp_path: Path) -> None:
    (tmp_path / "team.yaml").write_text(CONFIG)
    with pytest.raises(OrchestrionError, match=r"agents\.boss: a person cannot be asked in trai"):
        train(load(tmp_path / "team.yaml"), tmp_path / "run")


def opened(agent: Any, **context: Any) -> Any:
    """Return the agent, open."""

    async def main() -> Any:
        async with agent.open(OpenContext("agents.boss", Key(1), **context)) as runtime:
            return runtime

    return asyncio.run(main())


def test_recorded_answers_are_taken_in_order_and_one_too_few_fails_the_turn() -> None:
    agent = opened(PersonAgent(answers={"p": ["first", "second"], "*": ["any"]}), trains=True)
    turns = played({"boss": agent}, ["boss"] * 3, problem=Problem("p")).turns
    assert [turn.output.content for turn in turns[:2]] == ["first", "second"]
    assert "no recorded answer 3" in turns[2].error
    [other] = played({"boss": agent}, ["boss"], problem=Problem("q")).turns
    assert other.output.content == "any"


def test_a_front_end_sees_the_turns_of_others_and_a_turn_nobody_writes_fails() -> None:
    clerk = Clerk("my turn", None)
    team = {"solver": Chat(model=Lines(["I think 4."])).ready(), "boss": opened(PersonAgent())}
    with answered_by(clerk):
        turns = played(team, ["solver", "boss", "boss"]).turns
    assert "I think 4." in clerk.questions[0].text
    assert turns[1].output.content == "my turn"
    assert "nobody" in turns[2].error


def test_a_person_is_shown_no_images() -> None:
    with pytest.raises(ValueError, match="no images"):
        PersonAgent(sees=Sees(attach=["x"]))
