"""Agents with known behaviour, and servers of them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from attrs import frozen
from orchestrion_remote import Serving, Settings, serving

from orchestrion import (
    Agent,
    Answer,
    Calls,
    Component,
    Key,
    Output,
    Request,
    Usage,
    View,
    hookimpl,
)
from orchestrion._engine.attempts import RetrySettings
from orchestrion._engine.callpath import CallPath
from orchestrion._engine.opening import open_components
from orchestrion._plugins import Plugins
from orchestrion.runs import as_data, open_run
from orchestrion.testing import Fixed, _kit, _stage, opened_engine

HERE = "tests.contrib_agents.remote.support"
WAIT = 60.0
"""Seconds after which a test gives up."""
NOWHERE = "127.0.0.1:9"
"""Nobody listens there."""


class Gate:
    """Where agents wait; notes that one came, and that one was cancelled."""

    def __init__(self) -> None:
        self.came, self.cancelled, self.open = asyncio.Event(), asyncio.Event(), asyncio.Event()


GATES: list[Gate] = []


@frozen
class Draws(Agent):
    """Says what it was shown, and a number that depends on the key alone."""

    choose: tuple[str, ...] = ()

    @property
    def options(self) -> Sequence[str]:
        return self.choose

    async def act(self, view: View, key: Key, calls: Calls) -> Output:
        async def do() -> Answer:
            return Answer("ok", Usage(1, 30, 7, 0.25))

        calls.show("drawing ")
        await calls.run(Request("inner", view.problem.id), do)
        calls.show("done")
        shown = {
            "agent": view.agent,
            "option": view.option,
            "problem": as_data(view.problem),
            "turns": [[t.index, t.agent, t.option, t.output.content] for t in view.turns],
            "data": [as_data(t.output.data) for t in view.turns],
            "given": len(view.given),
            "team": [[m.name, list(m.options), m.role, m.ends] for m in view.team],
            "observation": None if view.observation is None else as_data(view.observation),
        }
        text = f"{key.child('number').integer()}"
        return Output(text, data=shown, usage=Usage(cost=2.0), metadata={"note": [1]})


@frozen
class Adds(Agent):
    """Answers "What is N plus N?"."""

    async def act(self, view: View, key: Key, calls: Calls) -> Output:
        words = view.problem.text.rstrip("?").split()
        return Output(str(int(words[2]) + int(words[4])))


@frozen
class Odd(Agent):
    """Says what is no text."""

    async def act(self, view: View, key: Key, calls: Calls) -> Output:
        return Output("\ud800")


@frozen
class Fails(Agent):
    """Raises an error, after a call that costs."""

    async def act(self, view: View, key: Key, calls: Calls) -> Output:
        async def do() -> Answer:
            return Answer("ok", Usage(1, 3, 4, 0.5))

        await calls.run(Request("inner", "x"), do)
        raise ValueError("there is no draft yet")


@frozen
class Waits(Agent):
    """Answers when the gate of this process is open."""

    async def act(self, view: View, key: Key, calls: Calls) -> Output:
        gate = GATES[-1]
        gate.came.set()
        try:
            await gate.open.wait()
        except asyncio.CancelledError:
            gate.cancelled.set()
            raise
        return Output(view.problem.text)


@frozen
class Piped(Agent):
    """Says its name in the pipe `came`, waits for the pipe `go` and answers with what is in it."""

    folder: Path

    def act(self, view: View, key: Key, calls: Calls) -> Output:
        with open(self.folder / "came", "w") as came:
            came.write(self.folder.name)
        with open(self.folder / "go") as go:
            return Output(go.read())


def config(agents: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """Return a config that serves these agents, by the names of their classes."""
    named = {
        name: {"use": f"{HERE}:{agent}"} if isinstance(agent, str) else agent
        for name, agent in agents.items()
    }
    rows = [{"question": f"What is {i} plus {i}?", "answer": f"{2 * i}"} for i in range(24)]
    return {
        "seed": 3,
        "task": {"use": "jsonl", "rows": rows, "check": "number"},
        "agents": named,
        "policy": {"use": "sequence", "steps": [next(iter(named))]},
        **more,
    }


def written(folder: Path, agents: Mapping[str, Any], **more: Any) -> str:
    """Write such a config; return its path."""
    path = folder / "served.yaml"
    path.write_text(json.dumps(config(agents, **more)), encoding="utf-8")
    return str(path)


@asynccontextmanager
async def served(
    folder: Path,
    agents: Mapping[str, Any],
    settings: Settings | None = None,
    http: bool = True,
    **more: Any,
) -> AsyncIterator[Serving]:
    """Serve agents on free ports until the block ends."""
    GATES.append(Gate())
    path = written(folder, agents, **more)
    async with (
        open_run(path) as trained,
        serving(trained, http_port=0 if http else None, settings=settings) as server,
    ):
        try:
            yield server
        finally:
            GATES[-1].open.set()


def quick() -> CallPath:
    """Return a call path that hardly pauses between attempts."""
    return CallPath(retry=RetrySettings(base=0.001, overload_base=0.001))


@asynccontextmanager
async def team(agents: Mapping[str, Any], **settings: Any) -> AsyncIterator[Any]:
    """Yield an engine whose agents act once each, in order."""
    calls = settings.pop("calls", None) or quick()
    async with opened_engine(agents, Fixed(list(agents)), calls=calls, **settings) as engine:
        yield engine


def checked(
    path: str, example: Mapping[str, Any], patch: pytest.MonkeyPatch, only: Sequence[str] = ()
) -> dict[str, int]:
    """Run the checks of agents on a component that may ask its service; return their examples.

    Args:
        path: of the component.
        example: settings with the address of a server that runs.
        patch: opens components live, which the kit does not.
        only: the names of the checks; by default all.
    """

    class Served:
        @hookimpl
        def orchestrion_agents(self) -> Iterator[Component]:
            yield Component("there", path, "an agent there", example=example)

    @asynccontextmanager
    async def live(given: Any, seed: int | None = None) -> AsyncIterator[Any]:
        async with AsyncExitStack() as stack:
            yield await open_components(given, stack, Key(given.seed), live=True)

    patch.setattr(_stage, "opened", live)
    plugins = Plugins()
    plugins.register(Served(), "served")
    checks = [
        one
        for one in _kit.checks("served", plugins)
        if one.name != "is light" and (not only or one.name in only)
    ]
    return {check.name: check.run() for check in checks}
