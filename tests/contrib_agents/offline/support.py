"""What the tests share: configs, episodes of them, requests to a speaker."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Any

from orchestrion_offline.interfaces import Answer, Speaker

from orchestrion import Episode, Key
from orchestrion._engine.calls import CallPath, RetrySettings
from orchestrion._engine.opening import open_components
from orchestrion._session import EngineSession
from orchestrion.config import from_data

__all__ = ["asked", "config_data", "episodes", "say"]


def config_data(speaker: Mapping[str, Any] | str, **model: Any) -> dict[str, Any]:
    """A team of one solver on worksheets of six lines; `model` are settings of its model."""
    solver = {"use": "chat", "model": "m", "instructions": "You are the solver of a team."}
    return {
        "seed": 3,
        "task": {"use": "steps", "train": 24, "validation": 24, "test": 100},
        "models": {"m": {"use": "offline", "speaker": speaker, **model}},
        "agents": {"solver": solver},
        "policy": {"use": "sequence", "steps": ["solver"] * 6},
        "limits": {"turns": 12},
    }


def episodes(data: Mapping[str, Any], limit: int = 100, live: bool = True) -> list[Episode]:
    """One episode on each of the first test problems."""

    async def go() -> list[Episode]:
        config = from_data(data)
        async with AsyncExitStack() as stack:
            team = await open_components(config, stack, Key(config.seed), live=live)
            engine = team.engine(CallPath(retry=RetrySettings(base=0.01, overload_base=0.01)))
            session = EngineSession(engine, "t", Key(1), Key(2), test=True)
            return list(await session.evaluate("test", limit=limit))

    return asyncio.run(go())


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
