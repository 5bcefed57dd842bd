"""What the tests share: an agent that asks a model, configs, and episodes of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any

from attrs import frozen
from orchestrion_offline.interfaces import Answer, Speaker

from orchestrion import (
    Agent,
    Calls,
    Component,
    Episode,
    Key,
    Model,
    Output,
    View,
    hookimpl,
    learnable,
)
from orchestrion._engine.calls import CallPath, RetrySettings
from orchestrion._engine.opening import open_components
from orchestrion._plugins import Plugins
from orchestrion._session import EngineSession
from orchestrion.config import from_data

__all__ = ["Ask", "asked", "config_data", "episodes", "plugins", "say", "with_session"]


@frozen
class Ask(Agent):
    """Shows a model the problem and what was said, and says what it answers.

    Args:
        model: who is asked.
        instructions: what it is told.
        habits: further sentences.
    """

    model: Model
    instructions: str = learnable("You are the solver of a team.")
    habits: Sequence[str] = learnable(())

    async def act(self, view: View, key: Key, calls: Calls) -> Output:
        """One call."""
        system_text = "\n".join([self.instructions, *(f"- {habit}" for habit in self.habits)])
        turns = [f"<turn agent={t.agent!r}>\n{t.output.content}\n</turn>" for t in view.turns]
        shown = "\n\n".join([f"<problem>\n{view.problem.text}\n</problem>", *turns])
        messages = [{"role": "system", "content": system_text}, {"role": "user", "content": shown}]
        answer = await self.model.complete({"messages": messages}, key.child("call", 0), calls)
        if answer.data["stop"] != "end":
            raise RuntimeError(f"the answer is {answer.data['stop']}")
        return Output(str(answer.data["text"]))


class _Asking:
    @hookimpl
    def orchestrion_agents(self) -> Iterator[Component]:
        """`ask`."""
        yield Component("ask", f"{__name__}:Ask", "asks a model")


def plugins() -> Plugins:
    """What is installed, and `ask`."""
    results = Plugins()
    results.register(_Asking(), "asking")
    return results


def config_data(
    speaker: Mapping[str, Any] | str, agents: Mapping[str, Any] | None = None, **model: Any
) -> dict[str, Any]:
    """A team of one solver on worksheets of six lines; `model` are settings of its model."""
    return {
        "seed": 3,
        "task": {"use": "steps", "train": 24, "validation": 24, "test": 100},
        "models": {"m": {"use": "offline", "speaker": speaker, **model}},
        "agents": agents or {"solver": {"use": "ask", "model": "m"}},
        "policy": {"use": "sequence", "steps": ["solver"] * 6},
        "limits": {"turns": 12},
    }


def with_session(data: Mapping[str, Any], work: Callable[[EngineSession], Any]) -> Any:
    """What comes of some work with a session of a config."""

    async def go() -> Any:
        config = from_data(data, plugins=plugins())
        async with AsyncExitStack() as stack:
            team = await open_components(config, stack, Key(config.seed))
            engine = team.engine(CallPath(retry=RetrySettings(base=0.01, overload_base=0.01)))
            session = EngineSession(engine, "t", Key(1), Key(2), test=True)
            return await work(session)

    return asyncio.run(go())


def episodes(data: Mapping[str, Any], limit: int = 100) -> list[Episode]:
    """One episode on each of the first test problems."""
    results: list[Episode] = with_session(
        data, lambda session: session.evaluate("test", limit=limit)
    )
    return results


def asked(text: str, system: str = "", **settings: Any) -> dict[str, Any]:
    """A request."""
    messages = [{"role": "user", "content": text}]
    if system:
        messages.insert(0, {"role": "system", "content": system})
    return {"model": "m", "messages": messages, **settings}


def say(
    speaker: Speaker, request: Mapping[str, Any], draws: int = 1, seed: int = 0
) -> list[Answer]:
    """Return the answers of a speaker to one request, with several draws."""
    return [speaker.say(request, Key(seed).child("draw", n)) for n in range(draws)]
