"""Answer the requests of a protocol of questions and answers: one answer or stream each."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from typing import Any

import msgspec
from attrs import frozen
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from orchestrion import Turn
from orchestrion.runs import TeamAnswer
from orchestrion_serve.conversation import Question, decoded
from orchestrion_serve.episodes import Episodes
from orchestrion_serve.refusals import Refusal, gone
from orchestrion_serve.requests import Admission, Call, Log


@frozen
class Service:
    """What all protocols share."""

    admission: Admission
    episodes: Episodes
    log: Log


@frozen
class Endpoint:
    """The ASGI application that answers the requests of a protocol."""

    protocol: type[Question]
    service: Service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        call = Call(self.service.log, scope, receive)
        try:
            response = await self._answer(call)
        except Refusal as refusal:
            response = refused(call, refusal, self.protocol.error)
        await response(scope, receive, send)

    async def _answer(self, call: Call) -> Response:
        episodes = self.service.episodes
        question = decoded(await self.service.admission.admit(call), self.protocol)
        question.check()
        episodes.choose(call, question.model)
        text, category = question.text(), question.category
        events = episodes.run(call, text, steps=question.steps, category=category)
        if question.stream:
            pieces = _pieces(call, question, events)
            return _EventStream(call, await anext(pieces), pieces)
        turns = list[Turn]()
        async with aclosing(events):
            async for news in events:
                if isinstance(news, Turn):
                    turns.append(news)
                else:
                    data = question.answer(call, turns, news)
        call.finish(200)
        return as_json(data, 200, call.headers)


async def _pieces(
    call: Call, question: Question, events: AsyncGenerator[Turn | TeamAnswer, None]
) -> AsyncGenerator[bytes, None]:
    """Yield the pieces of a stream; a Refusal after the first one is sent, and raised again."""
    turns, sent = list[Turn](), 0
    try:
        async with aclosing(events):
            async for news in events:
                for piece in question.events(call, turns, news, sent):
                    yield piece
                    sent += 1
                if isinstance(news, Turn):
                    turns.append(news)
    except Refusal as refusal:
        if sent:
            yield question.failure(call, refusal, sent)
        raise


def refused(call: Call, refusal: Refusal, shape: Callable[[Refusal], Any]) -> Response:
    """Log a refusal, and return it as a response."""
    call.finish(refusal.status, refusal)
    return as_json(shape(refusal), refusal.status, {**call.headers, **refusal.headers})


def as_json(data: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return a response of JSON."""
    return Response(msgspec.json.encode(data), status, headers, "application/json")


class _EventStream(Response):
    """Server-sent events; the episode is cancelled if the client goes away."""

    def __init__(self, call: Call, first: bytes, rest: AsyncGenerator[bytes, None]) -> None:
        headers = {**call.headers, "cache-control": "no-cache", "x-accel-buffering": "no"}
        super().__init__(None, 200, headers, "text/event-stream; charset=utf-8")
        del self.headers["content-length"]
        self._call, self._first, self._rest = call, first, rest

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def write(body: bytes, more: bool = True) -> None:
            await send({"type": "http.response.body", "body": body, "more_body": more})

        ended: Refusal | None = gone()  # unless it gets to the end
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        try:
            async with aclosing(self._rest):
                await send(start)
                await write(self._first)
                reason = None
                try:
                    async for body in self._rest:
                        await write(body)
                except Refusal as refusal:
                    reason = refusal
                await write(b"", more=False)
                ended = reason
        finally:
            self._call.finish(ended.status if ended else 200, ended)
