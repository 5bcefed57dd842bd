"""What a served request costs beside a bare Starlette echo in the same process.

    python dev.py python -m tests.benchmarks.serve             # 1, 32 and 256 requests at once

Prints the server's CPU of a request, and latency: of an echo (a JSON body read and written), of
three no-op agents run by the engine alone, and of the same team served. The server runs in a
process of its own, since client and server in one would measure both.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
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
REPEATS = 2
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
                pipe.send(time.process_time())


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


async def burst(port: int, at_once: int) -> list[float]:
    share = max(1, COUNT // at_once)
    lists = await asyncio.gather(*(ask(port, share) for _ in range(at_once)))
    return sorted(second for seconds in lists for second in seconds)


def measure(kind: str, config: str, levels: Sequence[int]) -> dict[int, tuple[float, float, float]]:
    """Return CPU of a request (best of the repeats), p50 and p99, in microseconds, by level."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=server, args=(kind, config, theirs))
    process.start()
    port = ours.recv()

    def cpu() -> float:
        ours.send(True)
        return float(ours.recv())

    results = {}
    for level in levels:
        best = None
        for _ in range(REPEATS):
            before = cpu()
            seconds = asyncio.run(burst(port, level))
            used = (cpu() - before) / len(seconds)
            p50, p99 = seconds[len(seconds) // 2], seconds[len(seconds) * 99 // 100]
            if best is None or used < best[0] / 1e6:
                best = (used * 1e6, p50 * 1e6, p99 * 1e6)
        assert best is not None
        results[level] = best
    ours.send(False)
    process.join()
    return results


async def engine(config: str) -> float:
    """Return the CPU microseconds of an episode without a server."""
    async with open_run(config) as team:
        problem = team.engine.team.task.problem_from("a question")
        best = float("inf")
        for _ in range(REPEATS):
            start = time.process_time()
            for i in range(COUNT):
                await team.engine.run(f"e{i}", problem, Key(i))
            best = min(best, time.process_time() - start)
    return best / COUNT * 1e6


def main(arguments: Sequence[str]) -> None:
    levels = [int(text) for text in arguments] or [1, 32, 256]
    with tempfile.TemporaryDirectory() as folder:
        config = str(Path(folder) / "team.yaml")
        Path(config).write_text(CONFIG, encoding="utf-8")
        print(f"engine alone: {asyncio.run(engine(config)):7.0f} us CPU an episode of three turns")
        bare, ours = measure("echo", config, levels), measure("serve", config, levels)
    for level in levels:
        for name, (cpu, p50, p99) in (("echo", bare[level]), ("serve", ours[level])):
            print(
                f"{level:4} at once, {name:5}: {cpu:6.0f} us CPU a request, "
                f"p50 {p50 / 1e3:7.2f} ms, p99 {p99 / 1e3:7.2f} ms"
            )
        print(f"     ratio of CPU: {ours[level][0] / bare[level][0]:.2f}")


if __name__ == "__main__":
    main(sys.argv[1:])
