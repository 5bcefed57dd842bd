"""What calls asked and were answered, on record: each text once, by turn, and never a secret."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve, frozen
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrion import (
    Activation,
    Agent,
    Answer,
    CallError,
    Calls,
    Episode,
    Key,
    Output,
    Problem,
    Request,
    Reward,
    RewardFunction,
    Scores,
    StoreError,
    Trajectory,
    Turn,
    Usage,
    View,
    register,
)
from orchestrion._engine.calls import CallPath, RetrySettings
from orchestrion._engine.recording import cut, joined
from orchestrion._session import EngineSession
from orchestrion._store import StoredCall
from orchestrion._store.conversations import turns_with_names
from orchestrion.runs import RunReader, RunStore
from orchestrion.testing import Fixed, ListTask, engine_for
from tests import clock

ONE = Usage(1, 10, 5)
LONG = "You are a patient clerk. " * 40

plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=12,
)
contents = plain | st.dictionaries(
    st.text(), plain | st.lists(st.dictionaries(st.text(), plain, max_size=2)), max_size=4
)


@settings(max_examples=25)
@given(contents)
def test_pieces_give_the_content_again(content: Any) -> None:
    assert joined([piece.decode() for piece in cut(content)]) == content


def answers(text: str) -> Callable[[], Awaitable[Answer]]:
    async def do() -> Answer:
        return Answer({"text": text, "stop": "end"}, ONE)

    return do


def fails() -> Callable[[], Awaitable[Answer]]:
    async def do() -> Answer:
        raise CallError("no such model", "permanent")

    return do


@frozen
class Talker(Agent):
    """Has a conversation of three calls, each with all messages so far; may be refused."""

    refused: bool = False

    async def act(self, view: View, key: Key, calls: Calls) -> Output:
        messages: list[Mapping[str, str]] = [{"role": "system", "content": LONG}]
        for n in range(3):
            messages.append({"role": "user", "content": f"{view.problem.text} {n}, {'x' * 100}"})
            request = Request("m", {"model": "m", "messages": list(messages)}, sample=str(n))
            do = fails() if self.refused else answers(f"answer {n}")
            answer = await calls.run(request, do, ONE)
            messages.append({"role": "assistant", "content": answer.data["text"]})
        return Output(messages[-1]["content"])


@frozen
class Asked(ListTask):
    """A task whose verifier asks a model."""

    async def verify(
        self, problem: Problem, trajectory: Any, state: Any, *, final: bool, calls: Calls
    ) -> Scores:
        await calls.run(Request("judge", {"question": "is it right?"}), answers("yes"), ONE)
        return Scores(1.0, True)


class Praise(RewardFunction):
    """A reward function that asks a model."""

    async def score(self, episode: Episode, calls: Calls) -> Reward:
        await calls.run(Request("judge", {"question": "how good is it?"}), answers("good"), ONE)
        return Reward(1.0)


def recorded(
    directory: Path, agent: Agent, retention: Any = "all", names: Sequence[str] = ("a",)
) -> list[Episode]:
    """Episodes of an agent, committed to a new run."""

    async def main(store: RunStore) -> list[Episode]:
        path = CallPath(journal=store.journal, retry=RetrySettings(base=0.0, cap=0.0))
        engine = engine_for({"talker": agent}, Fixed(["talker"]), Asked(), calls=path)
        engine.team = evolve(engine.team, reward=Praise())
        return [
            await engine.run(name, Problem(name, f"question of {name}"), Key(1).child(name))
            for name in names
        ]

    with RunStore.create(directory, "seed: 1\n", retention=retention) as store:
        episodes = asyncio.run(main(store))
        store.commit_iteration(0, 0, episodes, {})
    return episodes


def calls_of(store: RunReader, name: str) -> list[StoredCall]:
    episode = next(store.episodes(id=name)).episode
    return store.calls(episode.turns[0].output.calls)


def test_a_turn_names_its_calls_and_they_hold_what_was_shown_and_said(tmp_path: Path) -> None:
    [episode] = recorded(tmp_path / "run", Talker())
    with RunReader(tmp_path / "run") as store:
        calls = calls_of(store, "a")
        assert [one.answer["text"] for one in calls] == ["answer 0", "answer 1", "answer 2"]
        assert [len(one.asked["messages"]) for one in calls] == [2, 4, 6]
        assert calls[2].asked["messages"][:4] == calls[1].asked["messages"]
        assert calls[0].asked["messages"][0] == {"role": "system", "content": LONG}
        assert {(one.who, one.service, one.kind) for one in calls} == {("talker", "m", "answer")}
        judged = store.calls(episode.calls)
        assert [(one.who, one.asked["question"], one.answer["text"]) for one in judged] == [
            ("verifier", "is it right?", "yes"),
            ("reward", "how good is it?", "good"),
        ]
        assert [one.who for one in store.all_calls()] == ["talker"] * 3 + ["verifier", "reward"]
        assert [one.name for one in store.all_calls("reward")] == [episode.calls[1]]


def test_a_text_that_many_calls_share_is_stored_once(tmp_path: Path) -> None:
    recorded(tmp_path / "run", Talker(), names=[f"e{n}" for n in range(20)])
    with RunReader(tmp_path / "run") as store:
        texts = [text for (text,) in store._reader.all("SELECT text FROM texts")]
    assert sum(LONG in text for text in texts) == 1
    # Of each episode its three questions, and of all together: three answers less the last, which
    # nobody was shown, the prompt, three lists of settings by length, and two questions of judges.
    assert len(texts) == 20 * 3 + 2 + 1 + 3 + 2


def test_a_call_that_failed_is_kept_with_what_it_asked(tmp_path: Path) -> None:
    recorded(tmp_path / "run", Talker(refused=True))
    with RunReader(tmp_path / "run") as store:
        [call] = calls_of(store, "a")
        assert (call.kind, call.answer) == ("failed", "no such model")
        assert call.asked["messages"][1]["content"].startswith("question of a 0")


@pytest.mark.parametrize(
    ("service", "asked", "tool", "messages"),
    [
        ("tool:add", ["add", {"a": 1}], ("add", {"a": 1}), None),
        ("tool:add", None, ("add", None), None),
        ("mcp:desk", ["call", "find", {"q": "x"}], ("find", {"q": "x"}), None),
        ("mcp:desk", ["list", "find", {}], None, None),
        ("m", {"messages": ["hello"], "model": "m"}, None, (["hello"], {"model": "m"})),
        ("m", {"input": ["hello"]}, None, (["hello"], {})),
        ("m", {"input": "hello"}, None, None),
    ],
)
def test_what_a_call_asked_is_told_apart_by_its_service(
    service: str, asked: Any, tool: Any, messages: Any
) -> None:
    others: Any = dict.fromkeys(("name", "who", "stage", "kind", "answer", "seconds", "at"))
    call = StoredCall(service=service, asked=asked, usage=ONE, attempts=1, **others)
    assert (call.tool, call.messages) == (tool, messages)


def test_turns_are_named_by_place_and_agent_and_those_of_nested_teams_by_their_teams_too() -> None:
    inner = Trajectory([Turn(0, "b"), Turn(1, "c")])
    outer = Trajectory([Turn(0, "team", output=Output("x", inner=inner)), Turn(1, "d")])
    names = [name for name, _ in turns_with_names(outer)]
    assert names == ["1 team", "1 team > 1 b", "1 team > 2 c", "2 d"]


def test_no_secret_is_stored(tmp_path: Path) -> None:
    register("MY_KEY", "canary-0123456789")
    recorded(tmp_path / "run", Talker(), names=["canary-0123456789"])
    with RunReader(tmp_path / "run") as store:
        [name] = [one.episode.id for one in store.episodes()]
        call = calls_of(store, name)[0]
        assert call.asked["messages"][1]["content"].startswith("question of [MY_KEY] 0")
    assert b"canary-0123456789" not in (tmp_path / "run" / "run.db").read_bytes()


@pytest.mark.parametrize("late", [False, True], ids=["from the start", "by runs prune"])
def test_a_lower_retention_keeps_no_texts(tmp_path: Path, late: bool) -> None:
    recorded(tmp_path / "run", Talker(), "all" if late else "turns")
    if late:
        with RunStore.open(tmp_path / "run") as store:
            store.shrink("turns")
            assert not store.journal.keeps_requests
    with RunReader(tmp_path / "run") as reader:
        assert reader._reader.all("SELECT * FROM texts") == []
        assert {one.asked for one in calls_of(reader, "a")} == {None}


@pytest.mark.parametrize(
    "change",
    ["UPDATE texts SET text = 'x'", "DELETE FROM texts", "UPDATE calls SET pieces = x'00'"],
)
def test_what_was_changed_or_lost_is_an_error(tmp_path: Path, change: str) -> None:
    recorded(tmp_path / "run", Talker())
    with sqlite3.connect(tmp_path / "run" / "run.db") as connection:
        connection.execute(change)
    connection.close()
    with RunReader(tmp_path / "run") as store, pytest.raises(StoreError, match="is damaged"):
        calls_of(store, "a")


@frozen
class Stuck(Agent):
    """Asks a model that never answers."""

    async def act(self, view: View, key: Key, calls: Calls) -> Output:
        async def do() -> Answer:
            loop = asyncio.get_running_loop()
            assert isinstance(loop, clock.LeapingLoop)
            loop.leaps = True  # to the time limit of the turn, now that the call is on record
            await asyncio.Event().wait()
            raise AssertionError

        await calls.run(
            Request("m", {"messages": [{"role": "user", "content": "hello?"}]}), do, ONE
        )
        raise AssertionError


def test_a_call_that_was_cut_off_with_its_turn_is_kept_with_what_it_asked(tmp_path: Path) -> None:
    async def main(store: RunStore) -> Episode:
        engine = engine_for(
            {"stuck": Stuck()}, Fixed(["stuck"]), calls=CallPath(journal=store.journal)
        )
        engine.timeout = 600
        return await engine.run("a", Problem("p"), Key(1))

    with RunStore.create(tmp_path / "run", "seed: 1\n") as store:
        store.commit_iteration(0, 0, [clock.run(main(store), leaps=False)], {})
    with RunReader(tmp_path / "run") as reader:
        [call] = calls_of(reader, "a")
        assert (call.kind, call.answer, call.who) == ("cut", None, "stuck")
        assert call.asked == {"messages": [{"role": "user", "content": "hello?"}]}


def test_turns_of_a_branch_name_their_calls_in_every_episode_they_end_up_in(
    tmp_path: Path,
) -> None:
    async def main(store: RunStore) -> list[Episode]:
        path = CallPath(journal=store.journal)
        engine = engine_for({"talker": Talker()}, Fixed(["talker"]), Asked(), calls=path)
        session = EngineSession(engine, "0/0", Key(1), Key(2))
        act = [Activation("talker")]
        root = await session.extend(session.begin(Problem("p", "p"), Key(3)), act, Key(3))
        leaves = [await session.extend(root, act, Key(4).child(n)) for n in range(2)]
        return [await session.finish(leaf) for leaf in leaves]

    with RunStore.create(tmp_path / "run", "seed: 1\n") as store:
        store.commit_iteration(0, 0, asyncio.run(main(store)), {})
    with RunReader(tmp_path / "run") as reader:
        (a, b), (c, d) = (
            [turn.output.calls for turn in one.episode.turns] for one in reader.episodes()
        )
        assert a == c, "the turn that they share"
        assert len({a, b, d}) == 3
        assert [len(reader.calls(names)) for names in (a, b, d)] == [3, 3, 3]
