"""Protocols that are answered by their own SDK, behind the same admission as the others.

A request is admitted and read here; the SDK then gets its body again, and calls back for an
episode. The SDK is an optional dependency, imported when the server starts: it takes seconds.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from typing import Any

from attrs import frozen
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from orchestrion import Turn
from orchestrion.runs import TeamAnswer
from orchestrion_serve.conversation import decoded
from orchestrion_serve.episodes import Episodes, finish_reason
from orchestrion_serve.exchange import Service, refused
from orchestrion_serve.refusals import Refusal, gone, wrong
from orchestrion_serve.requests import Call, disconnected, usage_data

KEY = "orchestrion.exchange"


@frozen
class Exchange:
    """One request of a protocol with its own SDK."""

    call: Call
    episodes: Episodes

    def run(
        self, text: str, *, steps: bool, category: str = ""
    ) -> AsyncGenerator[Turn | TeamAnswer, None]:
        """Return what `Episodes.run` yields for the call's model."""
        return self.episodes.run(self.call, text, steps=steps, category=category)

    def facts(self, answer: TeamAnswer) -> dict[str, Any]:
        """Return how an episode ended, its key and its usage."""
        reason, usage = finish_reason(answer), usage_data(answer.usage)
        return {"finish_reason": reason, "episode": self.call.episode, "usage": usage}


class Hosted:
    """An ASGI application around that of a protocol's SDK.

    Args:
        extra: the SDK's package, which is also the extra that installs it.
        factory: `module:function` that makes the SDK's application for a Service.
        service: the part that all protocols share.
    """

    def __init__(self, extra: str, factory: str, service: Service) -> None:
        self._extra, self._factory, self._service = extra, factory, service
        self._app: ASGIApp | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Admit a request, and answer it."""
        admission = self._service.admission
        call = Call(self._service.log, scope, receive)
        try:
            if scope["method"] == "POST":
                body = await admission.admit(call)
                _check(body)
            else:
                admission.authenticate(call)
                body = b""
            app = await self.load()
        except Refusal as refusal:
            return await refused(call, refusal, rpc_error)(scope, receive, send)
        leaving = asyncio.create_task(disconnected(receive))
        unread = [body]

        async def replay() -> Message:
            if unread:
                return {"type": "http.request", "body": unread.pop(), "more_body": False}
            return await left()

        async def left() -> Message:
            await asyncio.wait({leaving})
            return {"type": "http.disconnect"}

        call.receive = left

        async def named(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = dict(message["headers"])
                headers |= {name.encode(): value.encode() for name, value in call.headers.items()}
                message = {**message, "headers": list(headers.items())}
            await send(message)

        exchange = Exchange(call, self._service.episodes)
        try:
            await app({**scope, KEY: exchange}, replay, named)
        finally:
            leaving.cancel()

    async def load(self) -> ASGIApp:
        """Return the SDK's application; the SDK is imported beside the event loop, once.

        Raises:
            Refusal: it is not installed.
        """
        if self._app is None:
            module, _, name = self._factory.partition(":")
            try:
                loaded = await asyncio.to_thread(importlib.import_module, module)
            except ImportError as error:
                message = f"install `orchestrion-serve[{self._extra}]` on the server: {error}"
                raise Refusal(501, "not_installed", message) from None
            # It would write what clients sent to standard error.
            logging.getLogger(self._extra).setLevel(logging.CRITICAL + 1)
            self._app = getattr(loaded, name)(self._service)
        return self._app


def exchange_of(scope: Scope) -> Exchange:
    """Return the admitted request of an SDK's scope."""
    exchange: Exchange = scope[KEY]
    return exchange


@contextmanager
def logged(call: Call) -> Iterator[None]:
    """Log how the block ended, in which an episode runs."""
    ended: Refusal | None = gone()
    try:
        yield
        ended = None
    except Refusal as refusal:
        ended = refusal
        raise
    finally:
        call.finish(ended.status if ended else 200, ended)


def rpc_error(refusal: Refusal) -> dict[str, Any]:
    """Return the body of an error as JSON-RPC has it."""
    code = -32603 if refusal.status >= 500 else -32600
    error = {"code": code, "message": str(refusal), "data": {"code": refusal.code}}
    return {"jsonrpc": "2.0", "id": None, "error": error}


def _check(body: bytes) -> None:
    """Raise a Refusal if a body is a batch or no JSON; the SDKs differ in what they do then."""
    if isinstance(decoded(body, object), list):
        raise wrong("a batch is not supported: send each message in a request of its own", None)
