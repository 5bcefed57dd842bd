"""What a served request costs beside a bare Starlette echo in the same process.

    python dev.py python -m tests.benchmarks.serve             # 1, 32 and 256 requests at once

Prints CPU of a request and latency of three no-op agents run by the engine alone, of an echo (a
JSON body read and written), and of the same team served; best of three. Then what up to 1,000
requests in flight take. Each server runs in a process of its own, since client and server in one
would measure both.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import resource
import sys
import tempfile
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path

from attrs import frozen
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from orchestrion import Agent, Calls, Key, Output, View
from orchestrion.runs import open_run

COUNT = 1024
REPEATS = 3
BODY = json.dumps({"model": "team", "messages": [{"role": "user", "content": "a question"}]})
CONFIG = """
task: {use: tests.plugins.serve.support:Anything}
agents:
  a: {use: tests.benchmarks.serve:Quick}
  b: {use: tests.benchmarks.serve:Quick}
  c: {use: tests.benchmarks.serve:Quick}
policy: {use: dag:dag, chain: a -> b -> c}
"""


@frozen
class Quick(Agent):
    """Answers at once."""

    async def act(self, view: View, key: Key, calls: Calls) -> Output:
        return Output("said")


@frozen
class Slow(Agent):
    """Answers after 50 ms."""

    async def act(self, view: View, key: Key, calls: Calls) -> Output:
        await asyncio.sleep(0.05)
        return Output("said")


async def echo(request: Request) -> Response:
    return JSONResponse(await request.json())


def server(kind: str, config: str, pipe: Connection) -> None:
    """Serve until told to stop; answer each message with the CPU seconds so far."""
    asyncio.run(_server(kind, config, pipe))


async def _server(kind: str, config: str, pipe: Connection) -> None:
    from orchestrion_serve import Settings, gateway, serving

    async with open_run(config) as team:
        settings = Settings(concurrency=10_000)
        if kind == "echo":
            app = Starlette(routes=[Route("/v1/chat/completions", echo, methods=["POST"])])
            gateway.Gateway.app = lambda self: app  # type: ignore[method-assign]
        async with serving({"team": team}, settings=settings) as running:
            pipe.send(int(running.address.rpartition(":")[2]))
            while await asyncio.to_thread(pipe.recv):
                peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
                pipe.send((time.process_time(), peak))


async def ask(port: int, count: int) -> list[float]:
    """Send requests over one connection, one after the other; return their seconds."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = (
        "POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\n"
        f"content-type: application/json\r\ncontent-length: {len(BODY)}\r\n\r\n"
    )
    seconds = []
    for _ in range(count):
        start = time.perf_counter()
        writer.write((head + BODY).encode())
        received = await reader.readuntil(b"\r\n\r\n")
        assert received.startswith(b"HTTP/1.1 200"), received
        length = int(received.lower().partition(b"content-length: ")[2].partition(b"\r")[0])
        await reader.readexactly(length)
        seconds.append(time.perf_counter() - start)
    writer.close()
    return seconds


async def burst(port: int, at_once: int, count: int = COUNT) -> list[float]:
    share = max(1, count // at_once)
    lists = await asyncio.gather(*(ask(port, share) for _ in range(at_once)))
    return sorted(second for seconds in lists for second in seconds)


class Process:
    """A server of one kind in a process of its own."""

    def __init__(self, kind: str, config: str) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=server, args=(kind, config, theirs))
        self._process.start()
        self.port = self._pipe.recv()
        self.best: dict[int, tuple[float, float, float]] = {}
        """CPU of a request, p50 and p99 in microseconds, by requests at once."""

    def used(self) -> tuple[float, float]:
        """Return CPU seconds, and MB in memory."""
        self._pipe.send(True)
        seconds, memory = self._pipe.recv()
        return float(seconds), float(memory)

    def measure(self, level: int) -> None:
        before = self.used()[0]
        seconds = asyncio.run(burst(self.port, level))
        cpu = (self.used()[0] - before) / len(seconds)
        p50, p99 = quantiles(seconds)
        new = (cpu * 1e6, p50 * 1e6, p99 * 1e6)
        self.best[level] = min(new, self.best.get(level, new))

    def stop(self) -> None:
        self._pipe.send(False)
        self._process.join()


def quantiles(seconds: Sequence[float]) -> tuple[float, float]:
    """Return p50 and p99 of sorted numbers."""
    return seconds[len(seconds) // 2], seconds[len(seconds) * 99 // 100]


async def engine(config: str, levels: Sequence[int]) -> dict[int, tuple[float, float, float]]:
    """Return the CPU of an episode without a server, p50 and p99, in microseconds, by level."""
    best: dict[int, tuple[float, float, float]] = {}
    async with open_run(config) as team:
        problem = team.engine.team.task.problem_from("a question")

        async def episodes(first: int, count: int) -> list[float]:
            seconds = []
            for i in range(first, first + count):
                began = time.perf_counter()
                await team.engine.run(f"e{i}", problem, Key(i))
                seconds.append(time.perf_counter() - began)
            return seconds

        for level in levels:
            share = COUNT // level
            for _ in range(REPEATS):
                start = time.process_time()
                work = (episodes(i * share, share) for i in range(level))
                seconds = sorted(s for part in await asyncio.gather(*work) for s in part)
                cpu = (time.process_time() - start) / len(seconds)
                p50, p99 = quantiles(seconds)
                new = (cpu * 1e6, p50 * 1e6, p99 * 1e6)
                best[level] = min(new, best.get(level, new))
    return best


def overhead(config: str, levels: Sequence[int]) -> None:
    direct = asyncio.run(engine(config, levels))
    bare, ours = Process("echo", config), Process("serve", config)
    for level in levels:
        for _ in range(REPEATS):  # in turns, so that other load hits both
            bare.measure(level)
            ours.measure(level)
        rows = (("engine", direct), ("echo", bare.best), ("serve", ours.best))
        for name, best in rows:
            cpu, p50, p99 = best[level]
            print(
                f"{level:4} at once, {name:6}: {cpu:6.0f} us CPU a request, "
                f"p50 {p50 / 1e3:7.2f} ms, p99 {p99 / 1e3:7.2f} ms"
            )
        added = [(ours.best[level][i] - direct[level][i]) / 1e3 for i in (1, 2)]
        print(f"     added to the engine: p50 {added[0]:.2f} ms, p99 {added[1]:.2f} ms")
        print(f"     CPU, serve / echo: {ours.best[level][0] / bare.best[level][0]:.2f}")
    bare.stop()
    ours.stop()


def in_flight(config: str) -> None:
    """Print what many requests at once take, whose three agents need 50 ms each."""
    ours = Process("serve", config)
    asyncio.run(burst(ours.port, 1, 1))
    for level in (1, 250, 500, 1000):
        before, start = ours.used()[1], time.perf_counter()
        seconds = asyncio.run(burst(ours.port, level, level))
        print(
            f"{level:4} in flight, 3 agents of 50 ms: {len(seconds)} answered in "
            f"{time.perf_counter() - start:.2f} s, +{ours.used()[1] - before:.1f} MB at most"
        )
    ours.stop()


def main(arguments: Sequence[str]) -> None:
    levels = [int(text) for text in arguments] or [1, 32, 256]
    with tempfile.TemporaryDirectory() as folder:
        config = str(Path(folder) / "team.yaml")
        Path(config).write_text(CONFIG, encoding="utf-8")
        overhead(config, levels)
        Path(config).write_text(CONFIG.replace("Quick", "Slow"), encoding="utf-8")
        in_flight(config)


if __name__ == "__main__":
    main(sys.argv[1:])
