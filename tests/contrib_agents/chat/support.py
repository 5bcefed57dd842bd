"""A model double that calls tools, and what the tests say often."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from attrs import define, field

from orchestrion import (
    JSON,
    Agent,
    Answer,
    Calls,
    Episode,
    Key,
    Model,
    Problem,
    Request,
    Task,
    Turn,
    Usage,
    replace,
)
from orchestrion._engine.calls import CallPath, Recorded
from orchestrion.testing import Fixed, ListTask, engine_for

PROBLEM = Problem("p", "What is 2 + 2?")


@define
class Lines(Model):
    """Answers in order, through `calls` as models do; the last again when they are used up.

    A text is one; so is a mapping with parts of one. `requests` keeps what was asked.
    """

    answers: Sequence[Any] = ("ok",)
    usage: Usage = Usage(calls=1, input_tokens=10, output_tokens=5)
    most: Usage | None = None
    requests: list[Mapping[str, Any]] = field(factory=list)

    async def complete(self, request: Mapping[str, JSON], key: Key, calls: Calls) -> Answer:
        self.requests.append(request)
        answer = self.answers[min(len(self.requests), len(self.answers)) - 1]
        parts: Mapping[str, JSON] = {"text": answer} if isinstance(answer, str) else answer

        async def do() -> Answer:
            return Answer({"text": "", "stop": "end", "model": "lines-1", **parts}, self.usage)

        name = Request("lines", {**request}, sample=key.hex())
        return await calls.run(name, do, self.usage)

    def ceiling(self, tokens: int) -> Usage | None:
        return self.most and replace(self.most, input_tokens=tokens)


def use(name: str, arguments: str = "{}", id: str = "c1", **more: JSON) -> dict[str, JSON]:
    """An answer that calls one tool."""
    call = {"id": id, "name": name, "arguments": arguments}
    return {"text": "", "stop": "tools", "tool_calls": [call], **more}


def played(
    agents: Mapping[str, Agent],
    steps: Sequence[str],
    task: Task | None = None,
    calls: CallPath | None = None,
    problem: Problem = PROBLEM,
) -> Episode:
    """One episode of a fixed sequence."""

    async def main() -> Episode:
        engine = engine_for(agents, Fixed(steps), task or ListTask(), calls=calls)
        return await engine.run("e", problem, Key(1))

    return asyncio.run(main())


def turn_of(agent: Agent, **more: Any) -> Turn:
    """The turn of an agent that acts alone."""
    [turn] = played({"solver": agent}, ["solver"], **more).turns
    return turn


class Notebook:
    """A journal in memory."""

    def __init__(self) -> None:
        self.rows: dict[str, Recorded] = {}

    def get(self, key: str) -> Recorded | None:
        return self.rows.get(key)

    def put_many(self, rows: list[Recorded]) -> None:
        self.rows |= {row.key: row for row in rows if row.answer is not None}
