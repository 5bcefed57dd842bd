"""What the protocols of questions and answers have in common: one request, one answer or stream."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from typing import Any, ClassVar, Generic, TypeVar

import msgspec
from attrs import frozen
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from orchestrion import Episode, Turn
from orchestrion_serve.conversation import Question
from orchestrion_serve.episodes import Episodes
from orchestrion_serve.refusals import Refusal, gone
from orchestrion_serve.requests import Admission, Call, Log

encode = msgspec.json.encode


Q = TypeVar("Q", bound=Question)


class Dialect(ABC, Generic[Q]):
    """How one protocol writes questions, answers and errors."""

    path: ClassVar[str]
    """Where it is served."""

    @abstractmethod
    def parse(self, body: bytes) -> Q:
        """Return a request's body, checked; raise a Refusal if it is wrong."""

    @abstractmethod
    def answer(self, call: Call, question: Q, turns: list[Turn], episode: Episode) -> Any:
        """Return the body of an answer that is not streamed."""

    @abstractmethod
    def events(
        self, call: Call, question: Q, events: AsyncGenerator[Turn | Episode, None]
    ) -> AsyncGenerator[bytes, None]:
        """Yield a stream's events as they are sent, the last one included.

        Nothing is yielded before the first turn or the answer, so that an error till then has a
        status.
        """

    def error(self, refusal: Refusal) -> Any:
        """Return the body of an error."""
        return error_of(refusal)

    @abstractmethod
    def failure(self, call: Call, refusal: Refusal, sent: int) -> bytes:
        """Return the event that ends a stream with an error, after so many that were sent."""


@frozen
class Endpoint(Generic[Q]):
    """The ASGI application that answers the requests of a protocol."""

    dialect: Dialect[Q]
    admission: Admission
    episodes: Episodes
    log: Log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        call = Call(self.log, scope, receive)
        try:
            response = await self._answer(call)
        except Refusal as refusal:
            response = refused(call, refusal, self.dialect.error)
        await response(scope, receive, send)

    async def _answer(self, call: Call) -> Response:
        dialect, turns = self.dialect, list[Turn]()
        question = dialect.parse(await self.admission.admit(call))
        self.episodes.choose(call, question.model)
        events = self.episodes.run(call, question.text(), steps=question.steps)
        if question.streams:
            written = dialect.events(call, question, events)
            return _EventStream(call, await anext(written), written, dialect.failure)
        async with aclosing(events):
            async for happened in events:
                if isinstance(happened, Turn):
                    turns.append(happened)
                else:
                    data = dialect.answer(call, question, turns, happened)
        call.finish(200)
        return as_json(data, 200, call.headers)


def error_of(refusal: Refusal) -> dict[str, Any]:
    """Return the body of an error, as all of OpenAI's protocols have it."""
    kind = "server_error" if refusal.status >= 500 else "invalid_request_error"
    error = {"message": str(refusal), "type": kind, "param": refusal.param, "code": refusal.code}
    return {"error": error}


def event(data: Mapping[str, Any], kind: str | None = None) -> bytes:
    """Return a server-sent event."""
    named = b"" if kind is None else b"event: " + kind.encode() + b"\n"
    return named + b"data: " + encode(data) + b"\n\n"


def refused(call: Call, refusal: Refusal, shape: Callable[[Refusal], Any]) -> Response:
    """Log a refusal, and return it as a response."""
    call.finish(refusal.status, refusal)
    return as_json(shape(refusal), refusal.status, {**call.headers, **refusal.headers})


def as_json(data: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return a response of JSON."""
    return _Json(encode(data), status, headers or {})


class _Json(Response):
    """A response of JSON; it is made for each request, so it does no more than it must."""

    def __init__(self, body: bytes, status: int, headers: Mapping[str, str]) -> None:
        self.body, self.status_code, self.background = body, status, None
        self.raw_headers = [
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(body)),
            *((name.encode(), value.encode("latin-1")) for name, value in headers.items()),
        ]


class _EventStream(Response):
    """Server-sent events; the episode is cancelled if the client goes away."""

    def __init__(
        self,
        call: Call,
        first: bytes,
        rest: AsyncGenerator[bytes, None],
        failure: Callable[[Call, Refusal, int], bytes],
    ) -> None:
        headers = {**call.headers, "cache-control": "no-cache", "x-accel-buffering": "no"}
        super().__init__(None, 200, headers, "text/event-stream; charset=utf-8")
        del self.headers["content-length"]
        self._call, self._first, self._rest, self._failure = call, first, rest, failure

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def write(body: bytes, more: bool = True) -> None:
            await send({"type": "http.response.body", "body": body, "more_body": more})

        sent = 1
        ended: Refusal | None = gone()  # unless it gets to the end
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        try:
            async with aclosing(self._rest):
                await send(start)
                await write(self._first)
                try:
                    async for body in self._rest:
                        await write(body)
                        sent += 1
                except Refusal as refusal:
                    ended = refusal
                    await write(self._failure(self._call, refusal, sent), more=False)
                else:
                    await write(b"", more=False)
                    ended = None
        finally:
            self._call.finish(ended.status if ended else 200, ended)
