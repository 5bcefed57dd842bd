"""Serve speakers over real HTTP in the wire formats of real services.

The answer to a call, its latency and its faults are drawn from its Idempotency-Key header and its
content; without that header, from its content and the number of earlier requests with that content.
Nothing depends on the order or the time of other requests.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from hashlib import blake2b
from typing import Any

import msgspec
from attrs import evolve

from orchestrion import Key, did_you_mean
from orchestrion_offline.anthropic_wire import Messages
from orchestrion_offline.batches import BatchService
from orchestrion_offline.http import LARGEST_HEAD, Reply, serve_connection
from orchestrion_offline.interfaces import Speaker
from orchestrion_offline.openai_wires import Chat, Responses
from orchestrion_offline.settings import FAULTS, Serving
from orchestrion_offline.wire import Wire, WireAnswer, WireRequest, answers

_CHAT, _MESSAGES = Chat(), Messages()
_WIRES: Mapping[str, Wire] = {
    "/v1/chat/completions": _CHAT,
    "/v1/responses": Responses(),
    "/v1/messages": _MESSAGES,
}
_COUNTED_CONTENTS = 100_000
_ERROR_PAGE = b"<html><body><h1>500 Internal Server Error</h1></body></html>"


class StubServer:
    """Serve speakers on a port of this machine.

    Args:
        speakers: by the model name that they answer to.
        behaviour: speed, limits and troubles.
    """

    def __init__(self, speakers: Mapping[str, Speaker], behaviour: Serving | None = None) -> None:
        self.speakers = dict(speakers)
        self.behaviour = behaviour or Serving()
        self.requests = 0
        """Number of requests for an answer, successful or not."""
        troubles = self.behaviour.troubles
        self._seed = str(self.behaviour.seed).encode()[:64]
        self._faulty = any(getattr(troubles, name) for name in FAULTS)
        self._repeats: OrderedDict[bytes, int] = OrderedDict()
        self._allowance = float(self.behaviour.requests_per_minute)
        self._refilled_at = 0.0
        self._connections: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self.batches = BatchService(self.handle)
        """The files and batches that it was sent."""
        self._server: asyncio.Server | None = None
        self._address = ("127.0.0.1", 0)

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> None:
        """Begin to serve in the running loop; port 0 takes a free one."""
        self._server = await asyncio.start_server(
            self._accept, host, port, backlog=1024, limit=LARGEST_HEAD
        )
        self._address = self._server.sockets[0].getsockname()[:2]
        self._refilled_at = time.monotonic()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(serve_connection(reader, writer, self.handle))
        self._connections[task] = writer
        task.add_done_callback(self._connections.pop)

    async def close(self) -> None:
        """Stop, and close every connection."""
        if self._server is None:
            return
        self._server.close()
        for task, writer in self._connections.items():
            task.cancel()
            writer.transport.abort()  # a task that is cancelled before its first step does not
        await asyncio.gather(*self._connections, return_exceptions=True)
        await self._server.wait_closed()
        self._server = None

    @property
    def url(self) -> str:
        """The base address for the Anthropic SDK; the OpenAI SDK needs `/v1` after it."""
        host, port = self._address
        return f"http://{host}:{port}"

    # ---------------------------------------------------------------- requests

    def handle(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> Reply:
        """Return the reply to a request."""
        wire = _WIRES.get(path) or (_MESSAGES if "anthropic-version" in headers else _CHAT)
        if refusal := self._check_key(wire, headers):
            return refusal
        if path == "/v1/models" or path.startswith("/v1/models/"):
            return self._models(wire, path.removeprefix("/v1/models").strip("/"))
        try:
            if (reply := self.batches.handle(method, path, headers, body)) is not None:
                return reply
        except (ValueError, TypeError, KeyError, StopIteration) as error:
            return _error(wire, 400, "invalid_request_error", f"batch: {error!r}")
        if path not in _WIRES:
            return _error(wire, 404, "not_found_error", f"the stub has no {path}")
        if method != "POST":
            return _error(wire, 405, "invalid_request_error", f"{method} is not allowed here")
        self.requests += 1
        if wait := self._wait():
            retry = {"retry-after": f"{wait:.3f}", "retry-after-ms": f"{wait * 1000:.0f}"}
            return _error(wire, 429, "rate_limit_error", "too many requests a minute", retry)
        try:
            data = _decoded(body)
            request = wire.decode(data)
        except (ValueError, TypeError, AttributeError, KeyError) as error:
            return _error(wire, 400, "invalid_request_error", str(error))
        name = str(data.get("model"))
        speaker = self.speakers.get(name)
        if speaker is None:
            return self._no_model(wire, name)
        try:
            # The part before "." names the call. The rest names the body, which vendors write in
            # different ways.
            key = headers.get("idempotency-key", "").partition(".")[0]
            return self._reply(wire, request, name, speaker, key)
        except ValueError as error:
            return _error(wire, 400, "invalid_request_error", f"{name}: {error}")
        except Exception as error:  # a speaker of another author: its caller must see the reason
            message = f"the speaker {name!r} broke: {type(error).__name__}: {error}"
            return _error(wire, 500, "api_error", message)

    def _reply(
        self, wire: Wire, request: WireRequest, name: str, speaker: Speaker, call: str
    ) -> Reply:
        # The name is left out: speakers that differ in one setting are compared on the same draws.
        content = msgspec.json.encode(request.request, order="sorted")
        state = blake2b(content, key=self._seed, person=b"content", digest_size=16)
        state.update(call.encode())
        digest = state.digest()
        draw, attempt = Key(digest), 0
        if not call:
            draw = draw.child("time", self._repeat(digest))
        elif self._faulty:
            attempt = self._repeat(digest)
        troubles = self.behaviour.troubles
        fault = troubles.fault(draw.child("fault", attempt)) if self._faulty else ""
        delay = self.behaviour.delay(draw.child("delay", attempt))
        if failed := self._failed(wire, fault, delay):
            return failed
        made = answers(request, name, speaker, draw, troubles.ending)
        reply = self._timed(wire, request, made, delay)
        if fault == "dropped":
            kept = reply.parts[: max(len(reply.parts) // 2, 1)] if reply.stream else reply.parts
            return evolve(reply, parts=kept, cut=True)
        if fault == "broken_json":
            # The JSON ends early, though HTTP says that it is complete.
            data = b"".join(part for _, part in reply.parts)
            total = sum(seconds for seconds, _ in reply.parts)
            return evolve(reply, parts=((total, data[: len(data) // 2]),))
        return reply

    def _timed(
        self, wire: Wire, request: WireRequest, made: list[WireAnswer], delay: float
    ) -> Reply:
        """Return answers as a reply whose parts have the delays of the set writing speed."""
        speed = self.behaviour.tokens_per_second
        writing = max(answer.output_tokens for answer in made) / speed if speed else 0.0
        if not request.stream:
            return Reply(200, ((delay + writing, wire.encode(made)),))
        begin, middle, end = wire.stream(made[0], request.usage)
        pause = writing / max(len(middle), 1)
        parts = ((delay, begin), *((pause, part) for part in middle), (0.0, end))
        return Reply(200, parts, "text/event-stream; charset=utf-8", stream=True)

    def _failed(self, wire: Wire, fault: str, delay: float) -> Reply | None:
        """Return the reply of a fault that replaces the answer; None for any other."""
        if fault.startswith("rate_limited"):
            wait = self.behaviour.troubles.retry_after
            headers = {} if fault == "rate_limited_bare" else {"retry-after": f"{wait:g}"}
            return _error(wire, 429, "rate_limit_error", "injected: slow down", headers, delay)
        if fault == "server_error":
            return Reply(500, ((delay, _ERROR_PAGE),), "text/html")
        if fault == "overloaded":
            status = wire.overloaded
            return _error(wire, status, "overloaded_error", "injected: busy", {}, delay)
        return None

    def _repeat(self, digest: bytes) -> int:
        """Return the number of earlier requests with this digest."""
        count = self._repeats.pop(digest, -1) + 1
        self._repeats[digest] = count
        if len(self._repeats) > _COUNTED_CONTENTS:
            self._repeats.popitem(last=False)
        return count

    def _wait(self) -> float:
        """Return the seconds until the rate limit permits a request; 0 also counts this one."""
        limit = self.behaviour.requests_per_minute
        if not limit:
            return 0.0
        now = time.monotonic()
        refilled = (now - self._refilled_at) * limit / 60
        self._allowance, self._refilled_at = min(float(limit), self._allowance + refilled), now
        if self._allowance >= 1:
            self._allowance -= 1
            return 0.0
        return max((1 - self._allowance) * 60 / limit, 0.001)

    def _check_key(self, wire: Wire, headers: Mapping[str, str]) -> Reply | None:
        """Return the reply to a request whose key is missing or wrong; None if it is accepted."""
        key = headers.get("authorization", "").removeprefix("Bearer").strip()
        key = key or headers.get("x-api-key", "")
        if key and self.behaviour.api_key in ("", key):
            return None
        message = "the API key is not valid" if key else "no API key was sent"
        return _error(wire, 401, "authentication_error", message)

    def _models(self, wire: Wire, name: str) -> Reply:
        if name and name not in self.speakers:
            return self._no_model(wire, name)
        describe = _anthropic_model if wire is _MESSAGES else _openai_model
        names = list(self.speakers)
        described = [describe(model) for model in names]
        data: dict[str, Any] = {"object": "list", "data": described}
        if name:
            data = describe(name)
        elif wire is _MESSAGES:
            ends = {"first_id": names[0], "last_id": names[-1]}
            data = {"data": described, "has_more": False, **ends}
        return Reply(200, ((0.0, msgspec.json.encode(data)),))

    def _no_model(self, wire: Wire, name: str) -> Reply:
        message = f"The model {name!r} does not exist here{did_you_mean(name, self.speakers)}"
        return _error(wire, 404, "not_found_error", message)


def _decoded(body: bytes) -> dict[str, Any]:
    try:
        data = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"the body is no JSON: {error}") from None
    if not isinstance(data, dict):
        raise ValueError("the body is no JSON object")
    return data


def _openai_model(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "orchestrion"}


def _anthropic_model(name: str) -> dict[str, Any]:
    created = "1970-01-01T00:00:00Z"
    about = {"display_name": name, "created_at": created, "lifecycle": "active"}
    return {"type": "model", "id": name, **about}


def _error(
    wire: Wire,
    status: int,
    kind: str,
    message: str,
    headers: Mapping[str, str] = {},
    delay: float = 0.0,
) -> Reply:
    return Reply(status, ((delay, wire.error(status, kind, message)),), headers=headers)


@asynccontextmanager
async def serving(
    speakers: Mapping[str, Speaker], behaviour: Serving | None = None
) -> AsyncIterator[StubServer]:
    """Serve in the running loop until the context ends."""
    server = StubServer(speakers, behaviour)
    await server.start()
    try:
        yield server
    finally:
        await server.close()
