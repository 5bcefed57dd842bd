"""The simulated model service of all tests: real HTTP on loopback, scripted answer by answer.

It runs in a thread with an event loop of its own. `ModelService(reply(200, {...}), hang())` gives
its answers in order and repeats the last one; a script may also compute answers from requests.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple, Self

__all__ = [
    "ModelService",
    "Reply",
    "Seen",
    "cut",
    "drip",
    "endless",
    "hang",
    "raw",
    "reply",
    "stream",
]


class Seen(NamedTuple):
    """A request as the service received it."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def data(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)


Reply = Callable[[Seen, asyncio.StreamWriter], Awaitable[None]]


def _head(status: int, headers: Mapping[str, str]) -> bytes:
    lines = [f"HTTP/1.1 {status} Reason", *(f"{k}: {v}" for k, v in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode()


def _bytes(body: Any) -> bytes:
    if isinstance(body, bytes):
        return body
    return body.encode() if isinstance(body, str) else json.dumps(body).encode()


def reply(status: int = 200, body: Any = b"", **headers: str) -> Reply:
    """Send a whole answer; `retry_after="1"` is the header retry-after."""
    data = _bytes(body)
    named = {name.replace("_", "-"): value for name, value in headers.items()}

    async def send(seen: Seen, writer: asyncio.StreamWriter) -> None:
        writer.write(_head(status, {"content-length": str(len(data)), **named}) + data)
        await writer.drain()

    return send


def raw(data: bytes) -> Reply:
    """These bytes as they are, and the end of the connection."""

    async def send(seen: Seen, writer: asyncio.StreamWriter) -> None:
        writer.write(data)
        await writer.drain()
        writer.close()

    return send


def cut(body: Any, keep: int) -> Reply:
    """Promise a body, send `keep` bytes of it and abort the connection; with 0, abort at once."""
    data = _bytes(body)

    async def send(seen: Seen, writer: asyncio.StreamWriter) -> None:
        if keep:
            writer.write(_head(200, {"content-length": str(len(data))}) + data[:keep])
            await writer.drain()
        writer.transport.abort()

    return send


def hang() -> Reply:
    """Never answer."""

    async def send(seen: Seen, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(3600)  # a timer that the loop holds on to

    return send


def drip(every: float) -> Reply:
    """Send one byte at a time, for ever."""

    async def send(seen: Seen, writer: asyncio.StreamWriter) -> None:
        writer.write(_head(200, {"content-length": "1000000"}))
        while True:
            writer.write(b" ")
            await writer.drain()
            await asyncio.sleep(every)

    return send


def endless(size: int) -> Reply:
    """Send a body of `size` bytes that states no length."""

    async def send(seen: Seen, writer: asyncio.StreamWriter) -> None:
        writer.write(_head(200, {"connection": "close"}))
        for _ in range(size // 65536 + 1):
            writer.write(b" " * 65536)
            await writer.drain()
        writer.close()

    return send


def stream(events: Sequence[bytes], end: str = "close", every: float = 0.0) -> Reply:
    """Send events; at the end close the body ("close"), abort ("drop") or send no more ("hang")."""

    async def send(seen: Seen, writer: asyncio.StreamWriter) -> None:
        head = {"content-type": "text/event-stream", "transfer-encoding": "chunked"}
        writer.write(_head(200, head))
        for event in events:
            writer.write(b"%x\r\n%s\r\n" % (len(event), event))
            await writer.drain()
            await asyncio.sleep(every)
        if end == "drop":
            writer.transport.abort()
        elif end == "hang":
            await asyncio.sleep(3600)  # a timer that the loop holds on to
        else:
            writer.write(b"0\r\n\r\n")
            await writer.drain()

    return send


class ModelService:
    """Answers requests by a script: its replies in order, the last one again and again.

    Use it as a context manager; `url` is its address inside the block.

    Args:
        script: the replies.
        tls: serve HTTPS with this context.
    """

    def __init__(self, *script: Reply, tls: ssl.SSLContext | None = None) -> None:
        self.script = list(script)
        self.seen: list[Seen] = []
        self.asked = threading.Event()
        """Set by the first request."""
        self.most = 0
        """The largest number of requests in the service at the same time."""
        self._inside = 0
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._tls = tls
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        start = asyncio.run_coroutine_threadsafe(self._start(), self._loop)
        self.url = start.result(10)
        return self

    def __exit__(self, *args: object) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _start(self) -> str:
        self._server = await asyncio.start_server(
            self._accept, "127.0.0.1", 0, backlog=512, ssl=self._tls
        )
        port = self._server.sockets[0].getsockname()[1]
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{port}"

    async def _stop(self) -> None:
        # A closed server takes no connection that was accepted before and is not served yet: its
        # socket would stay open. So those are begun first.
        for listening in self._server.sockets:
            self._loop.remove_reader(listening.fileno())
        for _ in range(2):
            await asyncio.sleep(0)
        self._server.close()
        while tasks := asyncio.all_tasks() - {asyncio.current_task()}:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        for writer in self._writers:  # of requests that were cancelled before their first step
            writer.close()
        await asyncio.sleep(0)  # the loop closes the sockets

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        self._tasks.add(task := self._loop.create_task(self._serve(reader, writer)))
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                seen = await _request(reader)
                if seen.method == "HEAD":  # from who only looks whether somebody listens
                    writer.write(_head(405, {"content-length": "0"}))
                    continue
                self.seen.append(seen)
                self.asked.set()
                answer = self.script.pop(0) if len(self.script) > 1 else self.script[0]
                self._inside += 1
                self.most = max(self.most, self._inside)
                try:
                    await answer(seen, writer)
                finally:
                    self._inside -= 1
                if writer.is_closing() or seen.headers.get("connection") == "close":
                    break
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()
            self._writers.discard(writer)


async def _request(reader: asyncio.StreamReader) -> Seen:
    head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    method, path, _ = head[0].split(" ")
    headers = {
        name.lower(): value
        for name, _, value in (line.partition(": ") for line in head[1:] if line)
    }
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Seen(method, path, headers, body)
