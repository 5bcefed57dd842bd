"""A team is loaded and asked from Python: answers, streams, many at once, and errors."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from attrs import frozen

import orchestrion as o
from orchestrion import (
    Agent,
    BudgetError,
    Calls,
    Key,
    Output,
    Problem,
    Status,
    Turn,
    Usage,
    UsageError,
    View,
)
from orchestrion.runs import AskedTeam, TeamAnswer
from tests.coroutines import sync

HERE = "tests.core.test_asking"


class Gate:
    """Where agents wait."""

    def reset(self) -> None:
        """Close it; there is a new event loop."""
        self.opened, self.came, self.inside = asyncio.Event(), asyncio.Semaphore(0), 0


GATE = Gate()


@frozen
class Says(Agent):
    """Says what it was asked, and a number that hangs on the key."""

    async def act(self, view: View, key: Key, calls: Calls) -> Output:
        """Return the text, for 3 + 2 tokens."""
        usage = Usage(1, 3, 2, 0.25)
        return Output(view.problem.text, {"drawn": key.integer()}, usage)


@frozen
class Counts(Agent):
    """Waits at the gate."""

    async def act(self, view: View, key: Key, calls: Calls) -> Output:
        """Return nothing."""
        GATE.inside += 1
        GATE.came.release()
        try:
            await GATE.opened.wait()
        finally:
            GATE.inside -= 1
        return Output("counted")


@frozen
class Fails(Agent):
    """Raises an error."""

    async def act(self, view: View, key: Key, calls: Calls) -> Output:
        """Raise."""
        raise ValueError("the agent is broken")


def config(folder: Path, *agents: str, **more: Any) -> Path:
    path = folder / "team.yaml"
    data = {
        "task": {"use": "orchestrion.testing._stage:KitTask"},
        "agents": {name.lower(): {"use": f"{HERE}:{name}"} for name in agents},
        "policy": {"use": "round-robin"},
        "limits": {"turns": len(agents)},
        **more,
    }
    path.write_text(json.dumps(data), encoding="utf-8")
    return path


@asynccontextmanager
async def loaded(folder: Path, *agents: str, **more: Any) -> AsyncIterator[AskedTeam]:
    GATE.reset()
    async with o.load(config(folder, *agents), **more) as team:
        yield team


@sync
async def test_an_answer_has_text_data_usage_turns_and_status(tmp_path: Path) -> None:
    async with loaded(tmp_path, "Says", "Fails") as team:
        answer = await team("What is it?")
        assert (answer.text, answer.status) == ("What is it?", Status.LIMIT)
        assert [turn.status for turn in answer.turns] == ["completed", "failed"]
        assert (answer.usage.tokens, answer.usage.usd) == (5, 0.25)
        same, other = await team("What is it?", Key(3)), await team("What is it?", Key(3))
        assert same.data == other.data != answer.data
        assert (await team(Problem("p", "a problem"))).text == "a problem"
    async with loaded(tmp_path, "Says") as again:
        assert (await again("What is it?")).data == answer.data, "the first of a loaded team"


@sync
async def test_questions_beyond_the_limit_wait_and_none_is_lost(tmp_path: Path) -> None:
    async with loaded(tmp_path, "Counts", concurrency=3) as team:
        answers = [asyncio.create_task(team(f"question {i}")) for i in range(20)]
        for _ in range(3):
            await GATE.came.acquire()
        for _ in range(100):
            await asyncio.sleep(0)
        assert GATE.inside == 3
        GATE.opened.set()
        done = await asyncio.gather(*answers)
    assert [answer.episode.problem.text for answer in done] == [f"question {i}" for i in range(20)]


@sync
async def test_a_stream_has_each_turn_before_the_next_one_ends_and_the_answer_last(
    tmp_path: Path,
) -> None:
    async with loaded(tmp_path, "Says", "Counts") as team:
        steps = []
        async for step in team.stream("now"):
            steps.append(step)
            if isinstance(step, Turn) and step.agent == "says":
                assert not GATE.opened.is_set()
                GATE.opened.set()
        first, second, answer = steps
        assert isinstance(first, Turn)
        assert isinstance(second, Turn)
        assert isinstance(answer, TeamAnswer)
        assert answer.turns == (first, second)


@sync
async def test_who_leaves_a_stream_cancels_the_rest(tmp_path: Path) -> None:
    async with loaded(tmp_path, "Says", "Counts") as team:
        async with aclosing(team.stream("now")) as steps:
            async for _ in steps:
                await GATE.came.acquire()
                break
        assert GATE.inside == 0
        assert team.trained.engine.active == 0


@sync
async def test_errors_say_what_to_do(tmp_path: Path) -> None:
    async with loaded(tmp_path, "Fails") as team:
        answer = await team("now")
        assert (answer.text, answer.data, answer.status) == (None, None, Status.LIMIT)
        assert "the agent is broken" in answer.error
        with pytest.raises(UsageError, match="it must be at least 1"):
            async with loaded(tmp_path, "Says", concurrency=0):
                pass
    with pytest.raises(UsageError, match="the team is closed"):
        await team("now")
    with pytest.raises(UsageError, match="no run '"):
        async with o.load(tmp_path / "missing"):
            pass


@sync
async def test_a_used_up_budget_is_told_before_an_agent_acts(tmp_path: Path) -> None:
    async with o.load(config(tmp_path, "Says"), ["budget.usd=0.5"]) as team:  # says .25 a turn
        answers = [await team("now"), await team("now")]
        assert [answer.text for answer in answers] == ["now", "now"]
        for _ in range(4):  # the first of them passes the cap
            with pytest.raises(BudgetError, match=r"budget\.usd"):
                await team("now")
        assert team.trained.engine.calls.budget.spent.usd == 0.75


@sync
async def test_overrides_are_those_of_the_command_line(tmp_path: Path) -> None:
    async with o.load(config(tmp_path, "Says"), ["limits.turns=3"]) as team:
        assert len((await team("now")).turns) == 3


@sync
async def test_an_engine_keeps_no_more_reports_than_it_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrion._engine.calls.REPORTS", 5)
    async with loaded(tmp_path, "Counts") as team:
        engine = team.trained.engine
        asked = [asyncio.create_task(team(f"question {i}")) for i in range(20)]
        for _ in asked:
            await GATE.came.acquire()
        for task in asked:
            task.cancel()
        await asyncio.wait(asked)
        assert len(engine.cut_off) == 5
        for i in range(20):
            engine.count_failure("who", f"error {max(i, 10)}")
        assert len(engine.failed_turns) == 5
        assert engine.failed_turns["who: error 19"] == 1
        engine.count_failure("who", "error 19")
        assert engine.failed_turns["who: error 19"] == 2
