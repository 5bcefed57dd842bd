"""What the stub server takes of the processor: 200 connections at once, 50 ms latency.

    python dev.py python tests/benchmarks/offline.py

The server runs in a process of its own (`orchestrion llm-stub serve`); it is asked over plain
sockets, so that no client's work is counted. Bar: 0.3 ms of processor time a request, with `solver`
answering on a worksheet of six lines.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time

from orchestrion_offline.steps import draw_sheet

from orchestrion import Key

CONNECTIONS, REQUESTS, LATENCY = 200, 20, 0.05
PATHS = ("/v1/chat/completions", "/v1/responses", "/v1/messages")


def main() -> None:
    """Start the server, measure, and end it."""
    command = [sys.executable, "-m", "orchestrion", "llm-stub", "serve", "--latency", str(LATENCY)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    port = 0
    for line in process.stdout:
        if found := re.match(r"ANTHROPIC_BASE_URL=http://127.0.0.1:(\d+)", line):
            port = int(found[1])
            break
    try:
        asyncio.run(measure(process.pid, port))
    finally:
        process.send_signal(signal.SIGINT)
        process.wait()


async def measure(pid: int, port: int) -> None:
    """One line for each wire."""
    for path in PATHS:
        await everybody(port, path, 5)  # warm
        before, began = processor_seconds(pid), time.perf_counter()
        await everybody(port, path, CONNECTIONS)
        wall = time.perf_counter() - began
        each = (processor_seconds(pid) - before) / (CONNECTIONS * REQUESTS)
        print(
            f"{path}: {each * 1000:.2f} ms of processor a request, "
            f"{wall:.2f} s for {REQUESTS} x {LATENCY:g} s"
        )


async def everybody(port: int, path: str, connections: int) -> None:
    """All connections at once, each with one request after the other."""
    text = draw_sheet("mixed", 6, 418, Key(1)).text
    message = [{"role": "user", "content": text}]
    given = {"input": text} if path.endswith("responses") else {"messages": message}
    body = json.dumps({"model": "solver", "max_tokens": 100, **given}).encode()
    await asyncio.gather(*(one(port, path, body, n) for n in range(connections)))


async def one(port: int, path: str, body: bytes, number: int) -> None:
    """One connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for n in range(REQUESTS):
        head = (
            f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer k\r\n"
            f"Idempotency-Key: {number}-{n}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        writer.write(head.encode() + body)
        answer = await reader.readuntil(b"\r\n\r\n")
        if not answer.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(answer.decode())
        length = re.search(rb"content-length: (\d+)", answer)
        assert length is not None
        await reader.readexactly(int(length[1]))
    writer.close()
    await writer.wait_closed()


def processor_seconds(pid: int) -> float:
    """What a process has taken so far, by Linux's books."""
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
