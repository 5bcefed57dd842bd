"""What a model call costs beside the bare SDK, over loopback HTTP, with the run's journal on disk.

    python dev.py python -m tests.benchmarks.llm                     # 200 episodes of 10 calls
    python dev.py python -m tests.benchmarks.llm 50 10 0.05 openai   # smaller; one vendor

Arguments: concurrent episodes, calls in each, seconds that the server takes to answer, vendor. The
server runs in a process of its own. Every figure is of this process: `bare` makes the same calls,
as many at a time, with the vendor's SDK as its manual says; `model` makes them through the plugin's
model and core's calls, with limiter, budget, journal (each answer is durable before it is used)
and prices; `path` likewise, but where the SDK would send a request it only waits as long, and
`wait` does nothing else. The floor is the larger of the latency path and the bare SDK's CPU time.
Our own CPU time a call is that of `path` without that of `wait`: all we do beside SDK and sockets.
`raw` is the SDK on our transport, sending the same bytes: the model without it is the same figure
once more, as a small difference of large numbers.

Wall time says nothing where others keep the machine busy: read the CPU time then.
"""

from __future__ import annotations

import asyncio
import gc
import json
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from attrs import frozen
from orchestrion_llm.models import AnthropicModel, OpenAIModel
from orchestrion_llm.prices import Price
from orchestrion_offline.server import StubServer, serving
from orchestrion_offline.settings import Serving
from orchestrion_offline.speakers.plain import Line, Scripted

from orchestrion import Key, OpenContext
from orchestrion._engine.budget import Budget
from orchestrion._engine.calls import ActivationCalls, CallPath
from orchestrion.runs import RunStore
from orchestrion.testing import Fixed, ScriptedAgent, engine_for

MESSAGES = [{"role": "user", "content": "Review this function, please. " * 20}]
WAIT = 0.05
SPEAKERS = {"m": Scripted((Line("It is fine, but the second branch is never reached. " * 4),))}


def serve(seconds: float, pipe: Connection) -> None:
    """Serve answers that take so many seconds, in a process of its own."""

    async def run() -> None:
        async with serving(SPEAKERS, Serving(latency=seconds)) as server:
            pipe.send(server.url)
            await asyncio.Event().wait()

    asyncio.run(run())


def answered(vendor: str) -> bytes:
    """Return the body of the server's answer."""
    path = "/v1/messages" if vendor == "anthropic" else "/v1/chat/completions"
    body = json.dumps({"model": "m", "max_tokens": 100, "messages": MESSAGES}).encode()
    return StubServer(SPEAKERS).handle("POST", path, {"x-api-key": "k"}, body).parts[0][1]


@frozen
class Took:
    """Seconds of wall clock and of this process's CPU, for so many calls."""

    wall: float
    cpu: float
    calls: int

    def __str__(self) -> str:
        each = 1000 * self.cpu / self.calls
        return f"{self.wall:6.2f} s wall  {self.cpu:6.2f} s CPU  {each:6.3f} ms CPU a call"


async def measured(
    episodes: int, calls: int, call: Callable[[int, int], Awaitable[object]]
) -> Took:
    """Episodes at once, the calls of each one after the other; a first round is not counted."""

    async def episode(i: int, begin: int, end: int) -> None:
        for j in range(begin, end):
            await call(i, j)

    async def all_(begin: int, end: int) -> None:
        await asyncio.gather(*(episode(i, begin, end) for i in range(episodes)))

    await all_(0, 1)  # connections are made, modules imported
    gc.collect()
    wall, cpu = time.perf_counter(), time.process_time()
    await all_(1, calls + 1)
    return Took(time.perf_counter() - wall, time.process_time() - cpu, episodes * calls)


async def bare(vendor: str, url: str, episodes: int, calls: int) -> Took:
    """Return the vendor's SDK as its manual says, without retries."""
    client: Any
    if vendor == "openai":
        import openai

        client = openai.AsyncOpenAI(api_key="k", base_url=f"{url}/v1", max_retries=0, timeout=600)

        async def call(i: int, j: int) -> object:
            return await client.chat.completions.create(
                model="m", messages=MESSAGES, max_completion_tokens=100
            )
    else:
        import anthropic

        client = anthropic.AsyncAnthropic(api_key="k", base_url=url, max_retries=0, timeout=600)

        async def call(i: int, j: int) -> object:
            return await client.messages.create(model="m", messages=MESSAGES, max_tokens=100)

    async with client:
        return await measured(episodes, calls, call)


async def raw(vendor: str, url: str, episodes: int, calls: int) -> Took:
    """Measure the SDK and its transport alone: the same bytes, nothing read."""
    import httpx2
    import msgspec
    from orchestrion_llm import client as at

    base = f"{url}/v1" if vendor == "openai" else url
    sdk = at.open_sdk(vendor, "k", base, {}, 600.0)
    path = "/chat/completions" if vendor == "openai" else "/v1/messages"
    content = msgspec.json.encode({"model": "m", "messages": MESSAGES, "max_tokens": 100})
    headers = {"Content-Type": "application/json", "Idempotency-Key": "k"}

    async def call(i: int, j: int) -> object:
        return await sdk.client.post(
            path,
            cast_to=httpx2.Response,
            content=content,
            options={"headers": headers, "timeout": 600.0},
        )

    async with sdk.client:
        return await measured(episodes, calls, call)


async def wait(vendor: str, url: str, episodes: int, calls: int) -> Took:
    """Only the wait."""

    async def call(i: int, j: int) -> None:
        await asyncio.sleep(WAIT)

    return await measured(episodes, calls, call)


async def path(vendor: str, url: str, episodes: int, calls: int) -> Took:
    """Measure the plugin's model with a journal on disk, and a wait instead of the SDK."""
    import httpx2

    async def post(*_: Any, **__: Any) -> httpx2.Response:
        await asyncio.sleep(WAIT)
        return response

    response = httpx2.Response(200, content=answered(vendor))
    return await model(vendor, url, episodes, calls, post)


async def model(vendor: str, url: str, episodes: int, calls: int, post: Any = None) -> Took:
    """Return the plugin's model on core's path, with a journal on disk."""
    more: Any = {"model": "m", "preflight": False, "max_tokens": 100, "price": Price(1, 2)}
    settings = (
        OpenAIModel(base_url=f"{url}/v1", **more)
        if vendor == "openai"
        else AnthropicModel(base_url=url, **more)
    )
    with tempfile.TemporaryDirectory() as folder:
        store = RunStore.create(Path(folder) / "run", "seed: 1\n", {})
        with store:
            core = CallPath(Budget(), journal=store.journal)
            engine = engine_for({"a": ScriptedAgent()}, Fixed(), calls=core)
            async with settings.open(OpenContext("models.m", Key(1))) as opened:
                if post is not None:
                    opened._client._sdk.client.post = post  # type: ignore[attr-defined]
                handles = [ActivationCalls(engine, Key(2).child(i)) for i in range(episodes)]

                async def call(i: int, j: int) -> object:
                    key = Key(3).child(i, j)
                    return await opened.complete({"messages": MESSAGES}, key, handles[i])

                took = await measured(episodes, calls, call)
        return took


KINDS = {"bare": bare, "raw": raw, "model": model, "path": path, "wait": wait}


def main(arguments: list[str]) -> None:
    """Print the figures of each vendor."""
    episodes = int(arguments[0]) if arguments else 200
    calls = int(arguments[1]) if len(arguments) > 1 else 10
    seconds = float(arguments[2]) if len(arguments) > 2 else WAIT
    vendors = arguments[3:] or ["openai", "anthropic"]
    ours, theirs = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(
        target=serve, args=(seconds, theirs), daemon=True
    )
    server.start()
    url = ours.recv()
    print(f"{episodes} episodes of {calls} calls at {1000 * seconds:g} ms; {os.cpu_count()} CPUs")
    for vendor in vendors:
        # The better of two: what others do on the machine only adds.
        took = {
            name: min(
                (asyncio.run(kind(vendor, url, episodes, calls)) for _ in range(2)),
                key=lambda one: one.cpu,
            )
            for name, kind in KINDS.items()
        }
        for name, one in took.items():
            print(f"{vendor:9} {name:6} {one}")
        floor = max(calls * seconds, took["bare"].cpu)
        own, again = (
            1000 * (took[one].cpu - took[without].cpu) / (episodes * calls)
            for one, without in (("path", "wait"), ("model", "raw"))
        )
        print(
            f"{vendor:9} model / floor {took['model'].cpu / floor:.2f} in CPU time, "
            f"{took['model'].wall / floor:.2f} in wall time; own CPU a call {own:.3f} ms "
            f"(over HTTP {again:.3f}); load {os.getloadavg()[0]:.1f}"
        )
    server.terminate()
    server.join()


if __name__ == "__main__":
    main(sys.argv[1:])
