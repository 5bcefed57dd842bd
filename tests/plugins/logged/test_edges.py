"""Decisions of somebody else's loop, logged so that a policy can be learned from them."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np
import pytest
from attrs import frozen
from click.testing import CliRunner
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command
from orchestrion_logged import EdgeLog, Logged, read_log

import orchestrion as o
from orchestrion import Activation, Decision, Key, Policy, Situation, UsageError
from orchestrion.cli import main
from tests.plugins.logged.support import team

QUESTIONS = {"I was charged twice": "billing", "it does not start": "technical"}


@frozen
class Weighs(Policy):
    """Takes "billing" three times as often as "technical"."""

    @property
    def choices(self) -> tuple[Activation | None, ...]:
        """Return what it chooses from."""
        return Activation("billing"), Activation("technical"), None

    def probabilities(self, situations: Sequence[Situation]) -> list[list[float]]:
        """Return the probabilities of its choices in each."""
        return [[0.75, 0.25, 0.0] for _ in situations]

    def decide(self, situations: Sequence[Situation], keys: Sequence[Key]) -> Sequence[Decision]:
        """Draw one for each."""
        names = ["billing" if key.uniform() < 0.75 else "technical" for key in keys]
        return [Decision((Activation(name),)) for name in names]


def decisions(file: Path) -> list[Logged]:
    """The lines of a log whose episodes are one decision each."""
    return [line for [line] in read_log(file)]


def test_an_edge_explores_and_its_log_tells_what_each_choice_is_worth(tmp_path: Path) -> None:
    file = tmp_path / "log.jsonl"
    log = EdgeLog(file, explore=0.4)

    @log.edge(choices=("billing", "technical"))
    def sort(state: Any) -> str:
        """Say who is next."""
        return "billing"

    assert sort.__name__ == "sort"
    for number in range(200):
        text = list(QUESTIONS)[number % 2]
        with log.episode(str(number)) as episode:
            chosen = sort({"messages": [{"role": "user", "content": text}]})
            episode.cost(0.1)
            episode.score = float(chosen == QUESTIONS[text])
    lines = decisions(file)
    times = Counter((line.choice, line.propensity) for line in lines)
    assert set(times) == {("billing", 0.8), ("technical", 0.2)}
    assert 20 < times["technical", 0.2] < 60
    assert {line.context.text for line in lines} == set(QUESTIONS)
    assert {line.cost for line in lines} == {0.1}
    words = ["ope", str(file), "--json"]
    done = CliRunner().invoke(main, words, standalone_mode=False)
    judged = {one["name"]: one for one in json.loads(done.stdout)["policies"]}
    estimate = judged["always technical"]["estimates"]["dr"]
    assert estimate["low"] < 0.5 < estimate["high"]


def test_a_routers_decisions_are_logged_with_the_policys_own_probabilities(tmp_path: Path) -> None:
    sections = {"policy": {"use": f"{__name__}:Weighs"}, "limits": {"turns": 1}}
    route = o.router(team(tmp_path, [*QUESTIONS.items()] * 4, **sections))
    log = EdgeLog(tmp_path / "log.jsonl", explore=0.2)
    edge = log.route(route)
    for _ in range(80):
        with log.episode() as episode:
            chosen = edge("a question")
            said = {"role": "assistant", "name": chosen, "content": "done"}
            asked = {"role": "user", "content": "a question"}
            assert edge([asked, said]) == o.END, "its turns are used up"
            episode.score = 1.0
    lines = decisions(tmp_path / "log.jsonl")
    expected = {"billing": 0.8 * 0.75 + 0.1, "technical": 0.8 * 0.25 + 0.1}
    assert {line.choice: line.propensity for line in lines} == pytest.approx(expected)
    assert {line.allowed for line in lines} == {("billing", "technical")}


def test_several_decisions_make_an_episode_with_what_was_said_between(tmp_path: Path) -> None:
    log = EdgeLog(tmp_path / "log.jsonl")

    @log.edge(choices=("writer", "critic"), end="done")
    async def following(state: Any) -> str:
        """Let both say something."""
        return ["writer", "critic", "done"][len(state) - 1]

    async def talk() -> None:
        messages = [{"role": "user", "content": "a question"}]
        while (name := await following(messages)) != "done":
            messages.append({"role": "assistant", "name": name, "content": f"by {name}"})

    async def several() -> None:
        with log.episode("a") as episode:
            await asyncio.create_task(talk())
            episode.score = 0.5

    asyncio.run(several())
    [lines] = read_log(tmp_path / "log.jsonl")
    assert [line.choice for line in lines] == ["writer", "critic", "stop"]
    assert [line.answer for line in lines] == ["by writer", "by critic", ""]
    assert [line.score for line in lines] == [None, None, 0.5]


def test_an_answer_is_what_the_chosen_agent_said_after_the_choice(tmp_path: Path) -> None:
    log = EdgeLog(tmp_path / "log.jsonl")
    agents = ("planner", "writer", "critic")
    messages = [{"role": "user", "content": "a question"}]

    def say(name: str, content: str) -> None:
        messages.append({"role": "assistant", "name": name, "content": content})

    # Nodes after fixed edges speak before the first choice, and after a chosen one.
    say("planner", "fixed")
    choices = iter(["writer", "writer", "critic", o.END])
    edge = log.edge(choices=agents)(lambda state: next(choices))
    with log.episode():
        edge(messages)
        say("writer", "draft")
        say("critic", "fixed too")
        edge(messages)  # it only calls a tool
        edge(messages)
        say("critic", "good")
        edge(messages)
    [lines] = read_log(tmp_path / "log.jsonl")
    assert [line.answer for line in lines] == ["draft", "", "good", ""]


@pytest.mark.parametrize("threads", [False, True])
def test_a_node_of_langgraph_logs_where_it_goes(tmp_path: Path, threads: bool) -> None:
    log = EdgeLog(tmp_path / "log.jsonl", explore=0.5)

    @log.node
    def triage(state: MessagesState) -> Command[Literal["billing", "technical"]]:
        goto: Any = ["billing"] if threads else "billing"
        return Command(goto=goto, update={"messages": []})

    def says(name: str) -> Any:
        message = {"role": "assistant", "name": name, "content": "done"}
        return lambda state: {"messages": [message]}

    graph = StateGraph(MessagesState)
    graph.add_node("triage", triage)
    for name in ("billing", "technical"):
        graph.add_node(name, says(name))
    graph.add_edge(START, "triage")
    loop, went = graph.compile(), {}

    async def asked(number: int) -> None:
        question: Any = {"messages": [{"role": "user", "content": f"question {number}"}]}
        with log.episode() as episode:
            # Plain nodes run in threads of their own where the graph is asynchronous.
            state = await loop.ainvoke(question) if threads else loop.invoke(question)
        went[f"question {number}"] = state["messages"][-1].name
        log.feedback(episode.name, 0.0)
        log.feedback(episode.name, float(number % 2))

    numbers = range(80)  # a quarter of them explores: that none does has a chance of 1e-10

    async def all_at_once() -> None:
        await asyncio.gather(*map(asked, numbers))

    asyncio.run(all_at_once())
    lines = decisions(tmp_path / "log.jsonl")
    assert {line.context.text: line.choice for line in lines} == went
    assert set(went.values()) == {"billing", "technical"}
    assert {line.propensity for line in lines} == {0.75, 0.25}
    assert {line.context.text: line.score for line in lines} == {
        f"question {number}": float(number % 2) for number in numbers
    }


@pytest.mark.parametrize("update", [None, {"messages": []}])
def test_a_node_that_goes_nowhere_itself_takes_no_choice(tmp_path: Path, update: Any) -> None:
    log = EdgeLog(tmp_path / "log.jsonl")

    def triage(state: Any) -> Command[Literal["billing", "technical"]]:
        answer: Any = update
        return answer

    with log.episode():
        assert log.node(triage)("a question") is update
    assert not (tmp_path / "log.jsonl").exists() or not (tmp_path / "log.jsonl").read_bytes()


def test_branches_in_threads_take_their_choices_one_after_the_other(tmp_path: Path) -> None:
    log = EdgeLog(tmp_path / "log.jsonl", explore=0.5)
    edge = log.edge(choices=("a", "b"))(lambda state: "a")
    with log.episode(), ThreadPoolExecutor(8) as pool:
        contexts = [copy_context() for _ in range(200)]
        list(pool.map(lambda context: context.run(edge, "a question"), contexts))
    [lines] = read_log(tmp_path / "log.jsonl")
    assert [line.step for line in lines] == list(range(200))
    with pytest.raises(UsageError, match="has ended and is logged"):
        contexts[0].run(edge, "a question")


def test_what_cannot_be_logged_is_said(tmp_path: Path) -> None:
    log = EdgeLog(tmp_path / "log.jsonl")
    wrong = log.edge(choices=("a", "b"))(lambda state: "c")
    with pytest.raises(UsageError, match=r"with log.episode"):
        wrong("a question")
    with pytest.raises(UsageError, match="'c', which is not among"), log.episode():
        wrong("a question")
    with pytest.raises(UsageError, match="from 0 to 1"):
        EdgeLog(tmp_path / "log.jsonl", explore=5)
    for end in ("stop", "done"):
        with pytest.raises(UsageError, match=f"the choice '{end}' would be the end"):
            log.edge(choices=("a", end), end="done")
    for unnamed in (lambda state: "a", partial(len)):
        with pytest.raises(UsageError, match="say which nodes it goes to"):
            log.node(unnamed)

    def streams(state: Any) -> Iterator[str]:
        yield "a"

    with pytest.raises(UsageError, match="streams: a generator takes no choice"):
        log.edge(choices=("a", "b"))(streams)
    several = log.edge(choices=("a", "b"))(lambda state: SimpleNamespace(goto=["a", "b"]))
    with pytest.raises(UsageError, match="`goto` is the name of one node"), log.episode():
        several("a question")
    with pytest.raises(UsageError, match="from 0 to 1"):
        log.feedback("any", 2)
    with pytest.raises(UsageError, match="by its name, not None"):
        log.feedback(None, 1)  # type: ignore[arg-type]
    right = log.edge(choices=("a", "b"))(lambda state: "a")
    with pytest.raises(ZeroDivisionError), log.episode():
        len(right("a question")) / 0
    [[line]] = read_log(tmp_path / "log.jsonl")
    assert line.score == 0.0


def test_a_score_or_cost_is_checked_where_it_is_given(tmp_path: Path) -> None:
    log = EdgeLog(tmp_path / "log.jsonl")
    edge = log.edge(choices=("a", "b"))(lambda state: "a")
    for given in (True, np.float32(1), np.bool_(True), np.int64(1)):
        with log.episode() as episode:
            edge("a question")
            episode.cost(given)
            episode.score = given
    wrongs: tuple[Any, ...] = (2.0, -1, float("nan"), "1", np.ones(2), [1])

    def scored(value: Any) -> None:
        with log.episode() as episode:
            edge("a question")
            episode.score = value

    for wrong in wrongs:
        with pytest.raises(UsageError, match="score of an episode is a number from 0 to 1, not"):
            scored(wrong)
    with pytest.raises(UsageError, match="cost of an episode is a number"), log.episode() as one:
        one.cost(-1)
    lines = decisions(tmp_path / "log.jsonl")
    # A mistake in the scoring is no bad result.
    assert [(line.score, line.cost) for line in lines] == [(1.0, 1.0)] * 4 + [(None, 0.0)] * 6


def test_an_episode_that_cannot_be_logged_leaves_no_half_and_hides_no_error(
    tmp_path: Path,
) -> None:
    file = tmp_path / "log.jsonl"
    log = EdgeLog(file)
    right = log.edge(choices=("a", "b"))(lambda state: "a")
    wrong = log.edge(choices=("a", "a"))(lambda state: "a")

    def loop(parts: int) -> None:
        with log.episode():
            right("a question")
            len(wrong("a question")) / parts

    with pytest.raises(UsageError, match="names a choice twice"):
        loop(1)
    with pytest.raises(ZeroDivisionError) as caught:
        loop(0)
    assert "were not logged" in caught.value.__notes__[0]
    assert not file.read_bytes()


def test_a_name_may_be_given_again(tmp_path: Path) -> None:
    for _ in range(2):  # as after a restart
        log = EdgeLog(tmp_path / "log.jsonl", explore=0.5)
        edge = log.edge(choices=("a", "b"))(lambda state: "a")
        for _ in range(20):
            with log.episode("user-7"):
                edge("a question")
    lines = decisions(tmp_path / "log.jsonl")
    assert len({line.episode for line in lines}) == 40
    assert all(line.episode.startswith("user-7-") for line in lines)
    drawn = [line.choice for line in lines]
    assert set(drawn) == {"a", "b"}
    assert drawn[:20] == drawn[20:], "of the same seed"
