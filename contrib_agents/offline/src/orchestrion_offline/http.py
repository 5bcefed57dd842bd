"""Serve HTTP/1.1 on asyncio's protocols, with as little work per request as possible.

The clients are known (the vendors' SDKs, curl, all on this machine): requests in sequence on kept
connections, bodies with a Content-Length. `call_later` delays an answer, so that a waiting request
needs no task.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import cast

from attrs import frozen

LARGEST_HEAD = 64 * 1024
LARGEST_BODY = 64 * 1024 * 1024

_REASONS = {
    200: b"OK",
    400: b"Bad Request",
    401: b"Unauthorized",
    404: b"Not Found",
    405: b"Method Not Allowed",
    411: b"Length Required",
    413: b"Content Too Large",
    429: b"Too Many Requests",
    431: b"Request Header Fields Too Large",
    500: b"Internal Server Error",
    503: b"Service Unavailable",
    529: b"Overloaded",
}


@frozen
class Reply:
    """A reply.

    Args:
        status: of HTTP.
        parts: the body, each part with the seconds before it is due. With `stream` each part is
            sent when it is due; else all are sent together when the last one is.
        kind: content type.
        headers: additional ones.
        stream: whether the body is sent in chunks.
        cut: whether the connection closes before the end: after half of a body that is sent
            together, or after the last part of a stream.
    """

    status: int
    parts: tuple[tuple[float, bytes], ...]
    kind: str = "application/json"
    headers: Mapping[str, str] = {}
    stream: bool = False
    cut: bool = False


Handle = Callable[[str, str, Mapping[str, str], bytes], Reply]
"""Return the reply to a method, path, headers by lower-case name, and body."""


class Exchange(asyncio.Protocol):
    """One connection.

    Args:
        handle: returns the reply to a request.
        connections: the set of open connections, to which this one adds itself.
    """

    def __init__(self, handle: Handle, connections: set[Exchange]) -> None:
        self._handle, self._connections = handle, connections
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._timer: asyncio.TimerHandle | None = None
        self._busy = False
        self._continued = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.discard(self)
        self._transport = None
        if self._timer is not None:
            self._timer.cancel()

    def close(self) -> None:
        """Close at once, even if data is still to be sent."""
        if self._transport is not None:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        self._received += data
        if not self._busy:
            self._next()

    def _next(self) -> None:
        """Answer the next request if it is complete."""
        end = self._received.find(b"\r\n\r\n")
        if end < 0:
            if len(self._received) > LARGEST_HEAD:
                self._refuse(431)
            return
        lines = self._received[:end].decode("latin-1").split("\r\n")
        headers: dict[str, str] = {}
        for line in lines[1:]:
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        method, _, rest = lines[0].partition(" ")
        target = rest.partition(" ")[0]
        if "transfer-encoding" in headers:
            self._refuse(411)
            return
        given = headers.get("content-length", "0")
        if not given.isdigit() or not target:
            self._refuse(400)
            return
        length = int(given)
        if length > LARGEST_BODY:
            self._refuse(413)
            return
        if len(self._received) < end + 4 + length:
            if "expect" in headers and not self._continued and self._transport is not None:
                self._continued = True
                self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            return
        body = bytes(self._received[end + 4 : end + 4 + length])
        del self._received[: end + 4 + length]
        self._busy, self._continued = True, False
        reply = self._handle(method, target.partition("?")[0], headers, body)
        self._send(reply, headers.get("connection", "").lower() == "close")

    def _refuse(self, status: int) -> None:
        self._busy = True
        self._send(Reply(status, ((0.0, b"{}"),)), close=True)

    # ---------------------------------------------------------------- sending

    def _send(self, reply: Reply, close: bool) -> None:
        if reply.stream:
            self._advance(reply, 0, _head(reply, None), close)
            return
        body = b"".join(part for _, part in reply.parts)
        # One write: a second one would wait for the acknowledgement of the first.
        data = _head(reply, len(body)) + (body[: len(body) // 2] if reply.cut else body)
        self._after(sum(delay for delay, _ in reply.parts), self._finish, data, close or reply.cut)

    def _advance(
        self, reply: Reply, place: int, due: bytes, close: bool, waited: bool = False
    ) -> None:
        """Send the parts that are due together, and continue when the next one is due."""
        out = bytearray(due)
        while place < len(reply.parts):
            delay, part = reply.parts[place]
            if delay > 0 and not waited:
                if place and self._transport is not None:  # the head is sent with the first part
                    self._transport.write(bytes(out))
                    out.clear()
                self._after(delay, self._advance, reply, place, bytes(out), close, True)
                return
            waited, place = False, place + 1
            if part:
                out += b"%x\r\n%b\r\n" % (len(part), part)
        end = b"" if reply.cut else b"0\r\n\r\n"
        self._finish(bytes(out) + end, close or reply.cut)

    def _after(self, delay: float, function: Callable[..., None], *args: object) -> None:
        if delay <= 0:
            function(*args)
            return
        self._timer = asyncio.get_running_loop().call_later(delay, function, *args)

    def _finish(self, data: bytes, close: bool) -> None:
        if self._transport is None:
            return
        self._transport.write(data)
        self._busy = False
        if close:
            self._transport.close()
        elif self._received:  # not directly: a thousand requests at a time would exhaust the stack
            asyncio.get_running_loop().call_soon(self._resume)

    def _resume(self) -> None:
        if not self._busy and self._transport is not None:
            self._next()


def _head(reply: Reply, length: int | None) -> bytes:
    size = "transfer-encoding: chunked" if length is None else f"content-length: {length}"
    rows = "".join(f"{name}: {value}\r\n" for name, value in reply.headers.items())
    status = b"HTTP/1.1 %d %b\r\n" % (reply.status, _REASONS.get(reply.status, b"Other"))
    return status + f"content-type: {reply.kind}\r\n{size}\r\n{rows}\r\n".encode("latin-1")
