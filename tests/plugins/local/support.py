"""Tiny models, opened without a config."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from orchestrion_local.hf import HF
from orchestrion_local.interfaces import Generation
from orchestrion_local.runtime import LocalModel
from orchestrion_local.settings import Architecture

from orchestrion import Answer, Calls, Key, OpenContext, Request, Trajectory, Usage
from tests.coroutines import sync as sync

ALPHABET = "0123456789abcdefghMVSA=+-*?yn"
TINY = Architecture(layers=1, width=16, heads=2, context=32)


class NoJournal(Calls):
    """Calls that are simply made."""

    def __init__(self) -> None:
        self.requests: list[Request] = []

    async def run(self, request: Request, do: Any, reserve: Usage = Usage()) -> Answer:  # noqa: B008
        self.requests.append(request)
        answer: Answer = await do()
        return answer

    async def reuse(self, content: Any, do: Any) -> Any:
        return await do()

    async def team(self, *args: Any, **kwargs: Any) -> Trajectory:
        raise NotImplementedError


def tiny(**settings: Any) -> HF:
    """The settings of a tiny model, by default a new one."""
    if not {"path", "architecture", "base"} & settings.keys():
        settings |= {"architecture": TINY, "alphabet": ALPHABET}
    return HF(**{"max_tokens": 4, **settings})


@asynccontextmanager
async def opened(
    at: str = "models.tiny", seed: int = 0, **settings: Any
) -> AsyncIterator[LocalModel]:
    async with tiny(**settings).open(OpenContext(at, Key(seed))) as model:
        assert isinstance(model, LocalModel)
        yield model


def asked(text: str, **settings: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}], **settings}


def seven(model: LocalModel) -> Generation:
    """The answer "7" to "S2="."""
    return model.as_generation(asked("S2=")["messages"], "7")
