"""The stub server: speakers behind the wire formats of real services, over real HTTP.

What a call is answered, how long that takes and what goes wrong is drawn from its Idempotency-Key
header and its content; without that header, from its content and how often that was asked before.
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
from orchestrion_offline.answering import answers
from orchestrion_offline.http import Exchange, Reply
from orchestrion_offline.interfaces import Speaker
from orchestrion_offline.settings import Serving
from orchestrion_offline.wires import WIRES
from orchestrion_offline.wires.form import Asked, BadRequestError, Made, Wire

__all__ = ["StubServer", "serving"]

_REMEMBERED = 100_000
_CLOSING = 10  # rounds of the loop until aborted connections are gone
_CHAT, _MESSAGES = WIRES["/v1/chat/completions"], WIRES["/v1/messages"]
_PAGE = b"<html><body><h1>500 Internal Server Error</h1></body></html>"


class StubServer:
    """Speakers by the model name they answer to, on a port of this machine.

    Args:
        speakers: by model name.
        behaviour: speed, limits and troubles.
    """

    def __init__(self, speakers: Mapping[str, Speaker], behaviour: Serving | None = None) -> None:
        self.speakers = dict(speakers)
        self.behaviour = behaviour or Serving()
        self.requests = 0
        """How many requests for an answer came, whatever became of them."""
        self._seed = str(self.behaviour.seed).encode()[:64]
        self._faulty = self.behaviour.troubles.any
        self._times: OrderedDict[bytes, int] = OrderedDict()
        self._allowance = float(self.behaviour.requests_per_minute)
        self._filled = 0.0
        self._connections: set[Exchange] = set()
        self._server: asyncio.Server | None = None
        self._address = ("127.0.0.1", 0)

    # ---------------------------------------------------------------- life

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> None:
        """Begin to serve in the running loop; port 0 takes a free one."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: Exchange(self.handle, self._connections), host, port, backlog=1024
        )
        self._address = self._server.sockets[0].getsockname()[:2]
        self._filled = time.monotonic()

    async def close(self) -> None:
        """Stop, and close every connection."""
        if self._server is None:
            return
        self._server.close()
        for connection in list(self._connections):
            connection.close()
        for _ in range(_CLOSING):
            if not self._connections:
                break
            await asyncio.sleep(0)
        await self._server.wait_closed()
        self._server = None

    @property
    def url(self) -> str:
        """The base address for the Anthropic SDK; OpenAI's wants `/v1` after it."""
        host, port = self._address
        return f"http://{host}:{port}"

    # ---------------------------------------------------------------- requests

    def handle(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> Reply:
        """The reply to a request."""
        wire = WIRES.get(path) or (_MESSAGES if "anthropic-version" in headers else _CHAT)
        if refused := self._unknown_key(wire, headers):
            return refused
        if path == "/v1/models" or path.startswith("/v1/models/"):
            return self._models(wire, path.removeprefix("/v1/models").strip("/"))
        if path not in WIRES:
            return _error(wire, 404, "not_found_error", f"the stub has no {path}")
        if method != "POST":
            return _error(wire, 405, "invalid_request_error", f"{method} is not allowed here")
        self.requests += 1
        if wait := self._wait():
            headers_ = {"retry-after": f"{wait:.3f}", "retry-after-ms": f"{wait * 1000:.0f}"}
            return _error(wire, 429, "rate_limit_error", "too many requests a minute", headers_)
        try:
            data = _decoded(body)
            if not isinstance(data, dict):
                raise BadRequestError("the body is no JSON object")
            asked = wire.decode(data)
        except (ValueError, BadRequestError, TypeError, AttributeError, KeyError) as error:
            return _error(wire, 400, "invalid_request_error", str(error))
        name = data.get("model")
        speaker = self.speakers.get(name) if isinstance(name, str) else None
        if speaker is None or not isinstance(name, str):
            return self._no_model(wire, str(name))
        try:
            # Its part before a "." names the call; what follows is the body's, which APIs write
            # in different ways.
            key = headers.get("idempotency-key", "").partition(".")[0]
            return self._reply(wire, asked, name, speaker, key)
        except ValueError as error:
            return _error(wire, 400, "invalid_request_error", f"{name}: {error}")
        except Exception as error:  # a speaker of somebody else's: the caller is told
            said = f"the speaker {name!r} broke: {type(error).__name__}: {error}"
            return _error(wire, 500, "api_error", said)

    def _reply(self, wire: Wire, asked: Asked, name: str, speaker: Speaker, sent: str) -> Reply:
        # Not by the name: speakers that differ in a setting are compared on the same draws.
        content = msgspec.json.encode(asked.request, order="sorted")
        called = blake2b(content, key=self._seed, person=b"content", digest_size=16)
        called.update(sent.encode())
        digest = called.digest()
        draw, attempt = Key(digest), 0
        if not sent:
            draw = draw.child("time", self._time(digest))
        elif self._faulty:
            attempt = self._time(digest)
        troubles = self.behaviour.troubles
        fault = troubles.fault(draw.child("fault", attempt)) if self._faulty else ""
        delay = self.behaviour.delay(draw.child("delay", attempt))
        if fault and (failed := self._fault(wire, fault, delay)):
            return failed
        made = answers(asked, {**asked.request, "model": name}, speaker, draw, troubles)
        reply = self._written(wire, asked, made, delay)
        if fault == "dropped":
            kept = reply.parts[: max(len(reply.parts) // 2, 1)] if reply.stream else reply.parts
            return evolve(reply, parts=kept, cut=True)
        if fault == "broken_json":
            return _broken(reply)
        return reply

    def _written(self, wire: Wire, asked: Asked, made: list[Made], delay: float) -> Reply:
        """Answers as they are sent, each part when it is due."""
        speed = self.behaviour.tokens_per_second
        writing = max(one.output_tokens for one in made) / speed if speed else 0.0
        if not asked.stream:
            return Reply(200, ((delay + writing, wire.encode(made)),))
        begin, middle, end = wire.stream(made[0], asked)
        pause = writing / max(len(middle), 1)
        parts = ((delay, begin), *((pause, part) for part in middle), (0.0, end))
        return Reply(200, parts, "text/event-stream; charset=utf-8", stream=True)

    def _fault(self, wire: Wire, fault: str, delay: float) -> Reply | None:
        """The reply of a fault that needs no answer; None for those that spoil one."""
        if fault.startswith("rate_limited"):
            wait = self.behaviour.troubles.retry_after
            headers = {} if fault == "rate_limited_bare" else {"retry-after": f"{wait:g}"}
            return _error(wire, 429, "rate_limit_error", "injected: slow down", headers, delay)
        if fault == "server_error":
            return Reply(500, ((delay, _PAGE),), "text/html")
        if fault == "overloaded":
            status = wire.overloaded
            return _error(wire, status, "overloaded_error", "injected: busy", {}, delay)
        return None

    # ---------------------------------------------------------------- what is remembered

    def _time(self, digest: bytes) -> int:
        """How often this was asked before."""
        times = self._times
        count = times.pop(digest, -1) + 1
        times[digest] = count
        if len(times) > _REMEMBERED:
            times.popitem(last=False)
        return count

    def _wait(self) -> float:
        """Seconds until there is room under the rate limit; 0 takes the room."""
        limit = self.behaviour.requests_per_minute
        if not limit:
            return 0.0
        now = time.monotonic()
        refilled = (now - self._filled) * limit / 60
        self._allowance, self._filled = min(float(limit), self._allowance + refilled), now
        if self._allowance >= 1:
            self._allowance -= 1
            return 0.0
        return max((1 - self._allowance) * 60 / limit, 0.001)

    # ---------------------------------------------------------------- keys and models

    def _unknown_key(self, wire: Wire, headers: Mapping[str, str]) -> Reply | None:
        given = headers.get("authorization", "").removeprefix("Bearer").strip()
        given = given or headers.get("x-api-key", "")
        wanted = self.behaviour.api_key
        if given and wanted in ("", given):
            return None
        said = "the API key is not valid" if given else "no API key was sent"
        return _error(wire, 401, "authentication_error", said)

    def _models(self, wire: Wire, name: str) -> Reply:
        describe = _described if wire is _MESSAGES else _listed
        if name:
            if name not in self.speakers:
                return self._no_model(wire, name)
            return Reply(200, ((0.0, msgspec.json.encode(describe(name))),))
        data: dict[str, Any] = {"object": "list", "data": [describe(one) for one in self.speakers]}
        if wire is _MESSAGES:
            names = list(self.speakers)
            first, last = (names[0], names[-1]) if names else (None, None)
            data = {"data": data["data"], "has_more": False, "first_id": first, "last_id": last}
        return Reply(200, ((0.0, msgspec.json.encode(data)),))

    def _no_model(self, wire: Wire, name: str) -> Reply:
        close = did_you_mean(name, self.speakers)
        said = f"The model {name!r} does not exist here{close}"
        return _error(wire, 404, "not_found_error", said)


def _decoded(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadRequestError(f"the body is no JSON: {error}") from None


def _listed(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "orchestrion"}


def _described(name: str) -> dict[str, Any]:
    return {
        "type": "model",
        "id": name,
        "display_name": name,
        "created_at": "1970-01-01T00:00:00Z",
        "lifecycle": "active",
    }


def _error(
    wire: Wire,
    status: int,
    kind: str,
    message: str,
    headers: Mapping[str, str] | None = None,
    delay: float = 0.0,
) -> Reply:
    body = wire.error(status, kind, message)
    return Reply(status, ((delay, body),), headers=headers or {})


def _broken(reply: Reply) -> Reply:
    """An answer whose JSON breaks off, though HTTP says that all of it came."""
    delay = sum(one for one, _ in reply.parts)
    body = b"".join(part for _, part in reply.parts)
    return evolve(reply, parts=((delay, body[: len(body) // 2]),))


@asynccontextmanager
async def serving(
    speakers: Mapping[str, Speaker], behaviour: Serving | None = None, port: int = 0
) -> AsyncIterator[StubServer]:
    """A server in the running loop, for as long as the context."""
    server = StubServer(speakers, behaviour)
    await server.start(port=port)
    try:
        yield server
    finally:
        await server.close()
