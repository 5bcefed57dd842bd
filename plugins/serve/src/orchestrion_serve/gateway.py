"""The HTTP interface of opened teams: from a request to an episode and back.

A request is admitted (key, room, body), becomes a problem, and runs as an episode with a key of
its own. One queue tells what happens next: a turn finished, the episode ended, the client has
gone, or the time is up. What ends first decides the answer; the rest is cancelled.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import msgspec
from attrs import frozen
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from orchestrion import BudgetError, Episode, Key, OrchestrionError, Problem, Turn, Usage, hidden
from orchestrion.runs import Trained
from orchestrion_serve.chat import (
    Chat,
    Refusal,
    answer_of,
    chunk,
    completion,
    failed,
    parse,
    reasoning,
)
from orchestrion_serve.keys import Keys

__all__ = ["Gateway", "Settings"]

BODY_SECONDS = 30.0
"""How long a client may take to send its body."""
DISCARDED = 16
"""A body that is too large is read to its end, so that the client can read the answer, up to this
many times the limit."""
Log = Callable[[Mapping[str, Any]], None]


@frozen
class Settings:
    """Limits of the server.

    Args:
        concurrency: requests at once; more are answered with 429.
        timeout: seconds of an episode; then 504.
        max_body: bytes of a request's body; then 413.
        drain: seconds that requests in flight get when the server stops.
    """

    concurrency: int = 64
    timeout: float = 600.0
    max_body: int = 1_000_000
    drain: float = 30.0


class Call:
    """One request, as its headers and its line in the log show it."""

    def __init__(self, log: Log) -> None:
        self.id = uuid4().hex
        self.tenant = ""
        self.model: str | None = None
        self.episode = ""
        self.usage = Usage()
        """Of the turns that are finished."""
        self.turns: Callable[[Turn], None] | None = None
        """Receives each finished turn, for a request that streams steps."""
        self._log, self._started = log, time.perf_counter()

    @property
    def headers(self) -> dict[str, str]:
        """Return the headers that name the request; all values are the server's own."""
        named = {"x-request-id": self.id}
        return {**named, "x-orchestrion-episode": self.episode} if self.episode else named

    def turn_finished(self, turn: Turn) -> None:
        """Add up what the turn took, and pass it on."""
        self.usage = self.usage + turn.usage
        if self.turns is not None:
            self.turns(turn)

    def finish(self, status: int, code: str = "") -> None:
        """Log the request: no contents, and no text that the client chose."""
        self._log(
            {
                "time": round(time.time(), 3),
                "id": self.id,
                "episode": self.episode or None,
                "key": self.tenant or None,
                "model": self.model,
                "status": status,
                "error": code or None,
                "seconds": round(time.perf_counter() - self._started, 4),
                "tokens": self.usage.input_tokens + self.usage.output_tokens,
                "usd": self.usage.usd,
            }
        )

    def refuse(self, refusal: Refusal) -> Response:
        """Log the refusal, and return it as a response."""
        self.finish(refusal.status, refusal.code)
        return _json(refusal.data(), refusal.status, {**self.headers, **refusal.headers})


class Turns:
    """Passes on each finished turn to the request that its episode belongs to."""

    episode_finished: Callable[[Episode], None] | None = None

    def __init__(self) -> None:
        self.calls: dict[str, Call] = {}
        self.turn_finished: Callable[[str, Turn], None] | None = self._turn

    def _turn(self, episode: str, turn: Turn) -> None:
        if call := self.calls.get(episode):
            call.turn_finished(turn)


class Gateway:
    """Serves opened teams.

    Args:
        teams: by model name.
        settings: the limits.
        keys: who may use it; None means everybody who reaches it by a loopback address.
        log: called once a request.
    """

    def __init__(
        self, teams: Mapping[str, Trained], settings: Settings, keys: Keys | None, log: Log
    ) -> None:
        self._teams, self._settings, self._keys, self._log = teams, settings, keys, log
        self._turns = Turns()
        self._created = int(time.time())
        self._reading = 0
        self._draining = False
        self._work: set[asyncio.Task[Episode]] = set()
        for team in teams.values():
            team.engine.observers = self._turns

    def app(self) -> Starlette:
        """Return the ASGI application."""
        return Starlette(
            routes=[
                Route("/v1/chat/completions", self._completions, methods=["POST"]),
                Route("/v1/models", self._models),
                Route("/v1/models/{name:path}", self._models),
                Route("/healthz", self._healthz),
                Route("/readyz", self._readyz),
            ],
            exception_handlers={HTTPException: _http_error},
        )

    async def drain(self) -> None:
        """Admit no more requests, and wait for those in flight; cancel what takes too long."""
        self._draining = True
        if self._work:
            await asyncio.wait(self._work, timeout=self._settings.drain)
        for work in self._work:
            work.cancel()

    # ------------------------------------------------------------------ endpoints

    async def _healthz(self, request: Request) -> Response:
        return _json({"status": "ok"})

    async def _readyz(self, request: Request) -> Response:
        if self._draining:
            return _json({"status": "draining"}, 503)
        return _json({"status": "ready"})

    async def _models(self, request: Request) -> Response:
        call = Call(self._log)
        try:
            self._authenticate(call, request)
            models = {
                name: {
                    "id": name,
                    "object": "model",
                    "created": self._created,
                    "owned_by": "orchestrion",
                }
                for name in self._teams
            }
            name = request.path_params.get("name")
            if name is None:
                return _json({"object": "list", "data": list(models.values())}, 200, call.headers)
            return _json(models[self._known(name)], 200, call.headers)
        except Refusal as refusal:
            return call.refuse(refusal)

    async def _completions(self, request: Request) -> Response:
        call = Call(self._log)
        try:
            self._authenticate(call, request)
            chat = await self._read(request)
            call.model = self._known(chat.model)
            events = self._run(call, chat, request)
            if chat.stream:
                # Until the first event there is something to say, an error has a status.
                chunks = self._chunks(call, chat, events)
                return _EventStream(call, await anext(chunks), chunks)
            async with aclosing(events):
                async for event in events:
                    if isinstance(event, Episode):
                        reply = _json(completion(call.id, chat.model, event), 200, call.headers)
            call.finish(200)
            return reply
        except Refusal as refusal:
            return call.refuse(refusal)
        except ClientDisconnect:
            return call.refuse(_gone())

    # ------------------------------------------------------------------ admission

    def _authenticate(self, call: Call, request: Request) -> None:
        if self._keys is None:
            # A page in a browser must not reach the server by a name that resolves to loopback.
            if not is_local(_hostname(request.headers.get("host", ""))):
                raise Refusal(403, "forbidden_host", "without keys, only loopback hosts are served")
            return
        scheme, _, key = request.headers.get("authorization", "").partition(" ")
        name = self._keys.name_of(key.strip()) if scheme.lower() == "bearer" else None
        if name is None:
            message = "the API key is missing or wrong"
            headers = {"www-authenticate": "Bearer"}
            raise Refusal(401, "invalid_api_key", message, headers=headers)
        call.tenant = name

    def _known(self, model: str) -> str:
        if model not in self._teams:
            raise Refusal(404, "model_not_found", f"there is no model {model!r:.80}", "model")
        return model

    async def _read(self, request: Request) -> Chat:
        """Return the body, if there is room for another request.

        Raises:
            Refusal: there is none, or the body is late, too large or wrong.
        """
        if self._draining:
            raise _stopping()
        if len(self._work) + self._reading >= self._settings.concurrency:
            message = f"{self._settings.concurrency} requests are being answered"
            raise Refusal(429, "too_many_requests", message, headers={"retry-after": "1"})
        if request.headers.get("content-type", "").partition(";")[0] != "application/json":
            # A page in a browser can send other types without asking.
            message = "send the body as `content-type: application/json`"
            raise Refusal(415, "unsupported_media_type", message)
        self._reading += 1
        try:
            async with asyncio.timeout(BODY_SECONDS):
                return parse(await self._body(request))
        except TimeoutError:
            headers = {"connection": "close"}
            message = f"the body took longer than {BODY_SECONDS:g} s"
            raise Refusal(408, "slow_body", message, headers=headers) from None
        finally:
            self._reading -= 1

    async def _body(self, request: Request) -> bytes:
        pieces, size, limit = [], 0, self._settings.max_body
        async for piece in request.stream():
            size += len(piece)
            if size <= limit:
                pieces.append(piece)
            elif size > DISCARDED * limit:
                break
        if size > limit:
            headers = {"connection": "close"}
            message = f"the body is larger than {limit} bytes"
            raise Refusal(413, "body_too_large", message, headers=headers)
        return b"".join(pieces)

    # ------------------------------------------------------------------ episodes

    async def _run(
        self, call: Call, chat: Chat, request: Request
    ) -> AsyncGenerator[Turn | Episode, None]:
        """Yield the finished turns, if they were asked for, and then the episode.

        Raises:
            Refusal: it failed, took too long, or the client has gone; it is cancelled then.
        """
        problem, key = self._problem(call, chat), self._key(call, request)
        call.episode = key.hex()
        inbox: asyncio.Queue[Turn | asyncio.Task[Episode] | Refusal] = asyncio.Queue()
        if chat.steps and chat.stream:
            call.turns = inbox.put_nowait
        work = self._start(call, problem, key)
        work.add_done_callback(inbox.put_nowait)
        gone = asyncio.create_task(_disconnected(request))
        gone.add_done_callback(lambda _: inbox.put_nowait(_gone()))
        seconds = self._settings.timeout
        late = failed(f"the episode took longer than {seconds:g} s", 504, "timeout")
        timer = asyncio.get_running_loop().call_later(seconds, inbox.put_nowait, late)
        try:
            while True:
                event = await inbox.get()
                if isinstance(event, Refusal):
                    raise event
                elif isinstance(event, Turn):
                    yield event
                else:
                    yield self._ended(event)
                    return
        finally:
            timer.cancel()
            gone.cancel()
            work.cancel()

    def _problem(self, call: Call, chat: Chat) -> Problem:
        text = chat.text()
        try:
            return self._teams[chat.model].engine.team.task.problem_from(text)
        except (OrchestrionError, ValueError) as error:
            message = f"the task cannot use this text: {hidden(str(error))[:500]}"
            raise Refusal(400, "invalid_request", message, "messages") from None
        except Exception as error:
            message = f"the task failed with {type(error).__name__}"
            raise failed(message, 500, "internal_error") from None

    def _key(self, call: Call, request: Request) -> Key:
        """Return the episode's key: a random one, or the client's own for its `Idempotency-Key`."""
        name = request.headers.get("idempotency-key", call.id)
        if not 0 < len(name) <= 255:
            message = "the header Idempotency-Key has 1 to 255 characters"
            raise Refusal(400, "invalid_request", message, "Idempotency-Key")
        assert call.model is not None
        seed = self._teams[call.model].config.seed
        return Key(seed).child("serve", call.tenant, name)

    def _start(self, call: Call, problem: Problem, key: Key) -> asyncio.Task[Episode]:
        if self._draining:
            raise _stopping()
        assert call.model is not None
        engine = self._teams[call.model].engine
        work = asyncio.create_task(engine.run(call.id, problem, key))
        self._work.add(work)
        self._turns.calls[call.id] = call

        def ended(_: object) -> None:
            self._work.discard(work)
            del self._turns.calls[call.id]
            # Reports for people, which would grow with every request.
            engine.cut_off.pop(call.id, None)
            engine.failed_turns.clear()

        work.add_done_callback(ended)
        return work

    def _ended(self, work: asyncio.Task[Episode]) -> Episode:
        """Return the episode of ended work.

        Raises:
            Refusal: there is none.
        """
        if work.cancelled():
            raise _stopping() if self._draining else failed("the episode was cancelled")
        error = work.exception()
        if error is None:
            return work.result()
        if isinstance(error, BudgetError):
            raise Refusal(402, "insufficient_quota", "the team's budget is used up")
        if isinstance(error, OrchestrionError):
            raise failed(f"the episode failed: {hidden(str(error))[:500]}")
        raise failed(f"the episode failed: {type(error).__name__}", 500, "internal_error")

    async def _chunks(
        self, call: Call, chat: Chat, events: AsyncGenerator[Turn | Episode, None]
    ) -> AsyncGenerator[Mapping[str, Any], None]:
        """Yield the events of a stream."""
        role = {"role": "assistant"}
        async with aclosing(events):
            async for event in events:
                if isinstance(event, Turn):
                    text = {"reasoning_content": reasoning(event)}
                    yield chunk(call.id, chat.model, {**role, **text})
                    role = {}
                else:
                    content = {"content": answer_of(event)}
                    yield chunk(call.id, chat.model, {**role, **content})
                    yield chunk(call.id, chat.model, {}, event)
                    if chat.include_usage:
                        yield chunk(call.id, chat.model, None, event)


class _EventStream(Response):
    """Server-sent events; the episode is cancelled if the client goes away."""

    def __init__(
        self,
        call: Call,
        first: Mapping[str, Any],
        rest: AsyncGenerator[Mapping[str, Any], None],
    ) -> None:
        headers = {**call.headers, "cache-control": "no-cache", "x-accel-buffering": "no"}
        super().__init__(None, 200, headers, "text/event-stream; charset=utf-8")
        del self.headers["content-length"]
        self._call, self._first, self._rest = call, first, rest

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def event(data: bytes, more: bool = True) -> None:
            body = b"data: " + data + b"\n\n"
            await send({"type": "http.response.body", "body": body, "more_body": more})

        status, code = 499, "client_gone"  # unless it gets to the end
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        try:
            async with aclosing(self._rest):
                await send(start)
                await event(_encode(self._first))
                try:
                    async for data in self._rest:
                        await event(_encode(data))
                except Refusal as refusal:
                    status, code = refusal.status, refusal.code
                    await event(_encode(refusal.data()), more=False)
                else:
                    await event(b"[DONE]", more=False)
                    status, code = 200, ""
        finally:
            self._call.finish(status, code)


def is_local(host: str) -> bool:
    """Return whether only this machine can reach a host; unlike 0.0.0.0, which all can."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _hostname(host: str) -> str:
    """Return the name in a Host header; "" if it has none."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


async def _disconnected(request: Request) -> None:
    """Return when the client has gone; its body was read before."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _gone() -> Refusal:
    return Refusal(499, "client_gone", "the client has gone")


def _stopping() -> Refusal:
    headers = {"retry-after": "1", "connection": "close"}
    return Refusal(503, "stopping", "the server is stopping", headers=headers)


async def _http_error(request: Request, error: Exception) -> Response:
    """Return errors of routing (404, 405) in OpenAI's shape."""
    assert isinstance(error, HTTPException)
    refusal = Refusal(error.status_code, "invalid_url", f"{request.method} is not served here")
    return _json(refusal.data(), error.status_code, error.headers)


_encode = msgspec.json.encode


def _json(
    data: Mapping[str, Any], status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    return Response(_encode(data), status, headers, "application/json")
