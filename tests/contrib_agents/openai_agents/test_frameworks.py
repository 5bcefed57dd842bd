"""Agents of real frameworks in a team: shown, booked, recorded, failed and cancelled like ours."""

from __future__ import annotations

import asyncio
import inspect
import math
import os
import re
import shlex
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import agents as openai_sdk
import langgraph.graph
import langgraph.types
import pydantic_ai
import pydantic_ai.models.fallback
import pydantic_ai.usage
import pytest
from agents.tracing import set_trace_processors
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.store.base import BaseStore
from orchestrion_foreign import Reserve
from orchestrion_langgraph.agent import LangGraph
from orchestrion_llm import Price
from orchestrion_offline.server import serving
from orchestrion_offline.speakers.plain import Echo
from orchestrion_openai_agents.agent import OpenAIAgents
from orchestrion_pydantic_ai.agent import PydanticAI
from pydantic_ai.messages import ModelResponse, SystemPromptPart, TextPart, UserPromptPart

from orchestrion import (
    BudgetError,
    Episode,
    Key,
    Observation,
    OpenContext,
    Output,
    Problem,
    Trajectory,
    Turn,
    Usage,
    UsageError,
    View,
)
from orchestrion._engine.budget import Budget
from orchestrion._engine.calls import ActivationCalls, CallPath, RetrySettings
from orchestrion._store import faults
from orchestrion.config import Budget as Caps
from orchestrion.runs import RunReader
from orchestrion.testing import Fixed, opened_engine
from orchestrion.testing._kit import Check, checks
from tests.contrib_agents.openai_agents import theirs
from tests.docs.pages import ROOT, blocks, commands, matches
from tests.end_to_end.support import called, here, result

HERE = "tests.contrib_agents.openai_agents.theirs"
FRAMEWORKS = ("langgraph", "pydantic_ai", "openai_agents")
every_framework = pytest.mark.parametrize("framework", FRAMEWORKS)
PROBLEM = Problem("p", "Where is 2 + 2?")


def agent(framework: str, what: str, **settings: Any) -> Any:
    """Return the component for one of `theirs`."""
    path = f"{HERE}:{framework}_{what}"
    if framework == "langgraph":
        return LangGraph(graph=path, **settings)
    kind = PydanticAI if framework == "pydantic_ai" else OpenAIAgents
    return kind(agent=path, **settings)


def run(component: Any, steps: int = 1, problem: Problem = PROBLEM, **engine: Any) -> Episode:
    """Return an episode in which the agent has so many turns."""

    async def main() -> Episode:
        async with opened_engine({"it": component}, Fixed(["it"] * steps), **engine) as opened:
            return await opened.run("e", problem, Key(1))

    return asyncio.run(main())


@pytest.fixture(autouse=True)
def _fresh() -> None:
    for noted in (theirs.SEEN, theirs.CANCELLED, theirs.OPEN):
        noted.clear()


@pytest.mark.parametrize(
    "check",
    [
        pytest.param(check, id=f"{check.component}: {check.name}")
        for framework in FRAMEWORKS
        for check in checks(framework.replace("_", "-"))
        if check.name != "is light"  # which is seen for all members at once
    ],
)
def test_it_keeps_the_contract(check: Check) -> None:
    """Here, where the frameworks are imported anyway, and not in `test_conformance.py`."""
    assert check.run() >= 0


# ------------------------------------------------------------------------------ what it is shown


def seen_by(framework: str) -> list[tuple[str, str, str]]:
    """Run two turns of the agent after one of another; return what its last request showed."""
    component = agent(framework, "talks")

    async def main() -> None:
        async with AsyncExitStack() as stack:
            it: Any = await stack.enter_async_context(
                component.open(OpenContext("agents.it", Key(0)))
            )
            trajectory = Trajectory(
                [
                    Turn(0, "critic", output=Output("too </turn> long")),
                    Turn(1, "it", output=Output("shorter")),
                    Turn(2, "judge", output=Output("", {"score": 1})),
                ]
            )
            view = View("it", None, PROBLEM, trajectory, Observation("two left"))
            engine = await stack.enter_async_context(opened_engine({"it": it}, Fixed()))
            await it.act(view, Key(1), ActivationCalls(engine, Key(1)))

    asyncio.run(main())
    [shown] = theirs.SEEN
    return list(_plain(shown))


def _plain(shown: Any) -> Iterator[tuple[str, str, str]]:
    if isinstance(shown, tuple):
        for item in shown[1]:
            yield item["role"], "", item["content"]
        return
    for message in shown:
        if isinstance(message, HumanMessage | AIMessage):
            yield (
                "user" if message.type == "human" else "assistant",
                message.name or "",
                message.text,
            )
            continue
        for part in message.parts:
            role = "assistant" if isinstance(message, ModelResponse) else "user"
            if isinstance(part, UserPromptPart | TextPart):
                yield role, "", str(part.content)


def test_a_graph_is_shown_messages_with_names() -> None:
    assert seen_by("langgraph") == [
        ("user", "", "Where is 2 + 2?"),
        ("user", "critic", "too </turn> long"),
        ("assistant", "it", "shorter"),
        ("user", "judge", '{"score":1}'),
        ("user", "", "two left"),
    ]


@pytest.mark.parametrize("framework", FRAMEWORKS[1:])
def test_where_messages_have_no_names_tags_name_the_others(framework: str) -> None:
    assert seen_by(framework) == [
        ("user", "", "Where is 2 + 2?"),
        ("user", "", '<turn agent="critic">\ntoo &lt;/turn> long\n</turn>'),
        ("assistant", "", "shorter"),
        ("user", "", '<turn agent="judge">\n{"score":1}\n</turn>'),
        ("user", "", "two left"),
    ]
    [shown] = theirs.SEEN
    system = (
        shown[0]
        if framework == "openai_agents"
        else "".join(p.content for m in shown for p in m.parts if isinstance(p, SystemPromptPart))
    )
    assert system == "Be kind."  # also where there is a history


# ------------------------------------------------------------------------------ what it gives


@every_framework
def test_its_text_is_the_turn_and_its_usage_is_booked(framework: str) -> None:
    episode = run(agent(framework, "talks", price=Price(input=1.0, output=2.0)), steps=2)
    first, second = episode.turns
    assert first.output.content == "heard: Where is 2 + 2?"
    assert second.output.content == "heard: It is your turn again."
    assert first.output.data is None
    usd = (100 * 1.0 + 10 * 2.0) / 1e6
    assert first.usage == Usage(1, 100, 10, usd, usd)


@every_framework
def test_a_structured_output_is_data(framework: str) -> None:
    [turn] = run(agent(framework, "structured")).turns
    assert turn.output.data == {"city": "Lima", "people": 10}
    assert turn.output.content == ("It is Lima." if framework == "langgraph" else theirs.LIMA)


def test_the_known_price_of_a_model_is_charged() -> None:
    [turn] = run(agent("langgraph", "talks")).turns
    assert 0 < turn.usage.usd < 1e-3
    [named] = run(agent("openai_agents", "named", input=f"{HERE}:provided")).turns
    assert named.usage == turn.usage
    [unknown] = run(agent("pydantic_ai", "talks")).turns
    assert math.isnan(unknown.usage.usd)
    assert unknown.usage.cost == 0


def test_what_a_framework_does_not_tell_counts_as_reserved() -> None:
    [turn] = run(agent("langgraph", "untold", reserve=Reserve(2, 50, 5, usd=0.25))).turns
    assert turn.usage == Usage(2, 50, 5, 0.25, 0.25)


def test_functions_by_path_build_the_input_and_read_the_result() -> None:
    component = agent("langgraph", "ticket", input=f"{HERE}:ticket_of", output=f"{HERE}:label_of")
    [turn] = run(component, steps=2).turns  # the first one is final
    assert turn.output.content == "Where"
    assert turn.output.data == {"label": "Where"}
    assert turn.usage == Usage(cost=0.5)


def test_an_input_may_give_dependencies() -> None:
    [turn] = run(agent("pydantic_ai", "deps", input=f"{HERE}:deps_of")).turns
    assert turn.output.content == '{"_who":"it"}'


def test_tools_and_agents_that_are_tools_are_booked_with_the_run() -> None:
    [turn] = run(agent("openai_agents", "tool", input=f"{HERE}:context_of")).turns
    assert turn.output.content == "it and x"
    assert (turn.usage.calls, turn.usage.input_tokens, turn.usage.output_tokens) == (3, 37, 3)


@every_framework
def test_it_asks_by_the_frameworks_own_client(
    framework: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> Episode:
        async with serving({"parrot": Echo("polly: ")}) as server:
            monkeypatch.setenv("THEIR_URL", f"{server.url}/v1")
            component = agent(framework, "asks")
            async with opened_engine({"it": component}, Fixed(["it"])) as engine:
                return await engine.run("e", PROBLEM, Key(1))

    [turn] = asyncio.run(main()).turns
    assert turn.output.content == "polly: Where is 2 + 2?"
    assert turn.usage.calls == 1
    assert turn.usage.input_tokens > 0 < turn.usage.output_tokens


# ------------------------------------------------------------------------------ what goes wrong


@every_framework
def test_its_exception_fails_the_turn_with_the_reason(framework: str) -> None:
    [turn] = run(agent(framework, "breaks")).turns
    assert turn.status == "failed"
    assert "LookupError: there is no such city" in turn.error
    assert turn.output.content == ""


@every_framework
def test_what_a_run_spent_before_it_failed_is_booked(framework: str) -> None:
    path = CallPath()
    [turn] = run(agent(framework, "breaks_later"), calls=path).turns
    assert "LookupError: there is no such city" in turn.error
    assert path.budget.spent.tokens > 0
    assert path.budget.spent.calls == 1


@pytest.mark.parametrize(
    ("framework", "what"),
    [*zip(FRAMEWORKS, ("May I?", "_delete", "_delete_it"), strict=True)],
)
def test_a_run_that_waits_for_a_person_fails_the_turn(framework: str, what: str) -> None:
    [turn] = run(agent(framework, "pauses")).turns
    assert turn.status == "failed"
    assert "waits for a person" in turn.error
    assert what in turn.error


@every_framework
def test_a_cancellation_reaches_it(framework: str) -> None:
    async def main() -> None:
        theirs.STARTED = asyncio.Event()
        async with opened_engine({"it": agent(framework, "waits")}, Fixed(["it"])) as engine:
            task = asyncio.create_task(engine.run("e", PROBLEM, Key(1)))
            await theirs.STARTED.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(main())
    assert theirs.CANCELLED == ["yes"]


@every_framework
def test_a_reservation_that_does_not_fit_starts_nothing(framework: str) -> None:
    path = CallPath(Budget(Caps(calls=5)))
    with pytest.raises(BudgetError, match="1 of 5 spent; the next call could take 5"):
        run(agent(framework, "talks", reserve=Reserve(5)), steps=2, calls=path)
    assert len(theirs.SEEN) == 1
    assert path.budget.spent.tokens == 110
    with pytest.raises(BudgetError, match="price of"):
        run(agent(framework, "talks"), calls=CallPath(Budget(Caps(usd=1.0))))


class Busy(Exception):
    """An error as the vendors' SDKs raise it."""

    status_code = 503


def test_a_run_whose_service_is_busy_is_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([Busy(), None])

    def sometimes(text: str) -> str:
        error = next(answers)
        if error is not None:
            raise error
        return "there"

    monkeypatch.setattr(theirs, "pydantic_ai_moody", theirs.pydantic_ai(sometimes), raising=False)
    path = CallPath(retry=RetrySettings(base=0, overload_base=0))
    [turn] = run(agent("pydantic_ai", "moody"), calls=path).turns
    assert turn.output.content == "there"
    assert path.retried == 1


@pytest.mark.parametrize(
    ("component", "message"),
    [
        (LangGraph(graph="no_such_module:graph"), "agents.it.graph: cannot load 'no_such_module"),
        (LangGraph(graph=f"{HERE}:no_graph"), "has no attribute 'no_graph'"),
        (LangGraph(graph=f"{HERE}:uncompiled"), "is a StateGraph, not a compiled graph (call"),
        (
            LangGraph(graph=f"{HERE}:langgraph_ticket"),
            "has no `messages` in its state",
        ),
        (PydanticAI(agent=f"{HERE}:langgraph_talks"), "not an Agent of pydantic_ai"),
        (OpenAIAgents(agent=f"{HERE}:Answer"), "is the class Answer, not an Agent of the OpenAI"),
        (OpenAIAgents(agent=f"{HERE}:broken"), "raised OSError: no such key"),
        (PydanticAI(agent=f"{HERE}:nothing"), "returned None, not an Agent of pydantic_ai"),
        (PydanticAI(agent=f"{HERE}:pydantic_ai_talks", input=f"{HERE}:LIMA"), "agents.it.input:"),
    ],
    ids=repr,
)
def test_a_path_that_names_no_agent_is_refused(component: Any, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        run(component)
    assert message in str(caught.value)
    assert str(caught.value).startswith("agents.it.")


@pytest.mark.parametrize(
    ("component", "message"),
    [
        (agent("pydantic_ai", "talks", input=f"{HERE}:a_list"), "`input` returned a list"),
        (agent("langgraph", "ticket", input=f"{HERE}:ticket_of"), "set `output`"),
    ],
    ids=["input", "output"],
)
def test_what_cannot_be_given_or_read_fails_the_turn(component: Any, message: str) -> None:
    [turn] = run(component).turns
    assert turn.status == "failed"
    assert message in turn.error


class Traces(openai_sdk.TracingProcessor):  # type: ignore[misc]  # its types are not read
    """Counts traces."""

    def __init__(self) -> None:
        self.count = 0

    def on_trace_start(self, trace: Any) -> None:
        self.count += 1

    def on_trace_end(self, trace: Any) -> None: ...
    def on_span_start(self, span: Any) -> None: ...
    def on_span_end(self, span: Any) -> None: ...
    def shutdown(self) -> None: ...
    def force_flush(self) -> None: ...


def test_nothing_is_traced_unless_it_is_asked_for() -> None:
    traces = Traces()
    set_trace_processors([traces])
    try:
        run(agent("openai_agents", "talks"))
        assert traces.count == 0
        run(agent("openai_agents", "talks", tracing=True))
        assert traces.count == 1
    finally:
        set_trace_processors([])


# ------------------------------------------------------------------------------ in a team

TEAM = f"""
seed: 3
task:
  use: jsonl
  split: {{train: 1.0, validation: 0.0, test: 0.0}}
  category: kind
  rows:
    - {{kind: sum, question: "2 3", answer: "5"}}
    - {{kind: sum, question: "4 4", answer: "8"}}
    - {{kind: shout, question: "hey", answer: "HEY"}}
    - {{kind: shout, question: "you", answer: "YOU"}}
    - {{kind: reverse, question: "abc", answer: "cba"}}
    - {{kind: reverse, question: "pots", answer: "stop"}}
agents:
  adds: {{use: langgraph, graph: "{HERE}:langgraph_adds", output: "{HERE}:ends"}}
  shouts: {{use: pydantic-ai, agent: "{HERE}:pydantic_ai_shouts", output: "{HERE}:ends"}}
  reverses: {{use: openai-agents, agent: "{HERE}:openai_agents_reverses", output: "{HERE}:ends"}}
policy: {{use: neural, hidden: [8]}}
reward: {{use: outcome-minus-cost}}
trainer: {{use: reinforce, iterations: 3, episodes: 6}}
limits: {{turns: 2}}
evaluation: {{split: train, baselines: {{}}}}
"""


def killed(folder: Path, fault: str, *words: str) -> int:
    """Run a command in a fork of this process, which has imported the frameworks; its end."""
    pid = os.fork()
    if not pid:
        faults._active = faults._Injector(fault)
        os._exit(called(words, folder, {}).returncode)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_a_team_of_all_three_is_trained_killed_resumed_and_replayed(tmp_path: Path) -> None:
    for name in ("whole", "cut"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "team.yaml").write_text(TEAM)
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    here("train", "team.yaml", cwd=whole)
    assert theirs.OPEN == ["open", "closed"] * 2  # to train, and to evaluate
    with RunReader(whole / "runs" / "team-1") as reader:
        episodes = [stored for stored in reader.episodes() if stored.source == "train"]
        turns = [turn for stored in episodes for turn in stored.episode.turns]
    assert any(stored.episode.success for stored in episodes)
    assert {turn.agent for turn in turns} == {"adds", "shouts", "reverses"}
    assert [turn.error for turn in turns if turn.error] == []
    assert {(turn.usage.calls, turn.usage.input_tokens) for turn in turns} == {(1, 100)}
    assert any(turn.output.content in ("5", "HEY", "cba") for turn in turns)
    # Killed after its second iteration.
    assert killed(cut, "commit.written:kill@2", "train", "team.yaml") == -9
    here("resume", "team-1", cwd=cut)
    assert result(cut / "runs" / "team-1") == result(whole / "runs" / "team-1")
    # A replay makes no run of theirs, and opens nothing.
    theirs.SEEN.clear()
    theirs.OPEN.clear()
    assert "identical" in here("replay", "team-1", cwd=cut).stdout
    assert theirs.SEEN == [] == theirs.OPEN


def test_validate_names_what_is_wrong_and_calls_no_factory(tmp_path: Path) -> None:
    (tmp_path / "team.yaml").write_text(TEAM)
    here("validate", "team.yaml", cwd=tmp_path)
    assert theirs.OPEN == []
    wrong = TEAM.replace("langgraph_adds", "uncompiled")
    (tmp_path / "team.yaml").write_text(wrong)
    done = here("validate", "team.yaml", cwd=tmp_path, code=2)
    assert "agents.adds.graph" in done.stdout + done.stderr


# ------------------------------------------------------------------------------ the manual


def test_the_page_does_what_it_says(tmp_path: Path) -> None:
    page = ROOT / "docs" / "foreign-agents.md"
    for block in blocks(page):
        if block.file:
            (tmp_path / block.file).write_text(block.text, encoding="utf-8")
    done = 0
    for block in blocks(page):
        for command in commands(block) if block.language == "console" else ():
            if not command.line.startswith("orchestrion "):
                continue
            done += 1
            # Its modules are forgotten after each command.
            words = shlex.split(command.line)[1:]
            printed = here(*words, cwd=tmp_path, PYTHONPATH=str(tmp_path)).stdout
            assert matches(command.shown, printed), printed
    assert done == 4


WORDS: dict[str, list[Any]] = {
    "LangGraph": [langgraph.graph, langgraph.types, BaseStore, RunnableConfig],
    "Pydantic AI": [pydantic_ai, pydantic_ai.usage, pydantic_ai.models.fallback, theirs],
    "OpenAI Agents SDK": [openai_sdk],
}
MEMBERS: list[Any] = [
    langgraph.graph.StateGraph,
    langgraph.types.Command,
    pydantic_ai.Agent,
    pydantic_ai.Agent.run,
    pydantic_ai.RunContext,
    pydantic_ai.Tool,
    pydantic_ai.usage.RunUsage,
    openai_sdk.Agent,
    openai_sdk.Runner,
    openai_sdk.Runner.run,
    openai_sdk.RunContextWrapper,
    openai_sdk.RunResult,
    openai_sdk.FunctionTool,
    openai_sdk.Usage,
]
"""Whose attributes and parameters the page names."""


def fields(thing: Any) -> Sequence[str]:
    """Return the names of annotated fields."""
    return tuple(getattr(thing, "__annotations__", {}))


def test_the_words_of_the_frameworks_are_theirs() -> None:
    text = (ROOT / "docs" / "coming-from.md").read_text(encoding="utf-8")
    known = {"pydantic_graph", "BaseStore"}
    for thing in MEMBERS:
        known |= {*dir(thing), *fields(thing)}
        known |= {*inspect.signature(thing).parameters}
    for framework, modules in WORDS.items():
        names = {name for module in modules for name in (*dir(module), *fields(module))}
        [section] = re.findall(rf"^## {framework}\n(.*?)^## ", text, re.M | re.S)
        cells = " ".join(re.findall(r"^\| (.*?) \|", section, re.M))
        words = re.findall(r"[A-Za-z_]+", " ".join(re.findall("`(.*?)`", cells)))
        assert len(words) > 10
        assert [word for word in words if word not in names | known] == []
