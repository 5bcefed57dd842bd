"""Serve HTTP/1.1 on asyncio's streams.

The clients are known (the vendors' SDKs, curl, all on this machine): requests in sequence on kept
connections, bodies with a Content-Length.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from http import HTTPStatus

from attrs import frozen

LARGEST_HEAD = 64 * 1024
LARGEST_BODY = 64 * 1024 * 1024

_REASONS = {status.value: status.phrase for status in HTTPStatus} | {529: "Overloaded"}


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


async def serve_connection(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, handle: Handle
) -> None:
    """Answer the requests of a connection, one after the other, until one side closes it."""
    try:
        while await _serve_request(reader, writer, handle):
            pass
    except (asyncio.IncompleteReadError, ConnectionError):
        pass  # the client has closed the connection
    finally:
        writer.close()


async def _serve_request(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, handle: Handle
) -> bool:
    """Answer the next request; return whether the connection stays open."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError:
        return await _refuse(writer, 431)
    lines = head[:-4].decode("latin-1").split("\r\n")
    headers: dict[str, str] = {}
    for line in lines[1:]:
        name, _, value = line.partition(":")
        headers[name.lower()] = value.strip()
    method, _, rest = lines[0].partition(" ")
    target = rest.partition(" ")[0]
    length = headers.get("content-length", "0")
    if "transfer-encoding" in headers:
        return await _refuse(writer, 411)
    if not length.isdigit() or not target:
        return await _refuse(writer, 400)
    if int(length) > LARGEST_BODY:
        return await _refuse(writer, 413)
    if "expect" in headers:
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    body = await reader.readexactly(int(length))
    reply = handle(method, target.partition("?")[0], headers, body)
    await _send(writer, reply)
    return headers.get("connection", "").lower() != "close" and not reply.cut


async def _refuse(writer: asyncio.StreamWriter, status: int) -> bool:
    await _send(writer, Reply(status, ((0.0, b"{}"),)))
    return False


async def _send(writer: asyncio.StreamWriter, reply: Reply) -> None:
    if reply.stream:
        due = _head(reply, "transfer-encoding: chunked")
        for i, (delay, part) in enumerate(reply.parts):
            if delay > 0:
                if i:  # the head is sent with the first part
                    writer.write(due)
                    due = b""
                await asyncio.sleep(delay)
            if part:
                due += b"%x\r\n%b\r\n" % (len(part), part)
        due += b"" if reply.cut else b"0\r\n\r\n"
    else:
        body = b"".join(part for _, part in reply.parts)
        due = _head(reply, f"content-length: {len(body)}")
        due += body[: len(body) // 2] if reply.cut else body
        if delay := sum(delay for delay, _ in reply.parts):
            await asyncio.sleep(delay)
    writer.write(due)
    await writer.drain()


def _head(reply: Reply, size: str) -> bytes:
    lines = [
        f"HTTP/1.1 {reply.status} {_REASONS.get(reply.status, 'Other')}",
        f"content-type: {reply.kind}",
        size,
        *(f"{name}: {value}" for name, value in reply.headers.items()),
    ]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")
