"""Attempts at HTTP calls; imported when the component is opened."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any, Self
from urllib.parse import urljoin

import httpx2
import msgspec
from msgspec import Struct
from orchestrion_llm import (
    EncodedError,
    Place,
    TooLongError,
    counted,
    described,
    http_client,
    of_answer,
)

from orchestrion import JSON, Answer, CallError, Calls, Usage, hidden_bytes
from orchestrion_remote.balance import Balancer
from orchestrion_remote.body import Reply, StatedUsage, reply_of
from orchestrion_remote.http import Http

_SHOWN = 300
_HEALTH_SECONDS = 10.0


class HttpClient:
    """See `Client`."""

    def __init__(self, settings: Http, key: str, clients: Mapping[str, httpx2.AsyncClient]) -> None:
        self._settings = settings
        self._headers = {"Content-Type": "application/json", **settings.headers}
        if key:
            self._headers["Authorization"] = f"Bearer {key}"
        healthy = None if settings.health is None else self._check
        self.balancer = Balancer(clients, settings.timeout, healthy, reached=_reach)

    @classmethod
    @asynccontextmanager
    async def opened(cls, settings: Http, key: str) -> AsyncIterator[Self]:
        """Yield a client whose connections are closed at the end."""
        async with AsyncExitStack() as stack:
            clients = {
                url: await stack.enter_async_context(http_client(url, settings.timeout))
                for url in settings.urls
            }
            yield cls(settings, key, clients)

    async def ask(self, content: JSON, name: str, reserve: Usage, calls: Calls) -> Answer:
        body = msgspec.json.encode(content)
        return await self.balancer.call(
            partial(self._post, body=body, name=name, reserve=reserve), reserve
        )

    async def _post(
        self, url: str, client: httpx2.AsyncClient, body: bytes, name: str, reserve: Usage
    ) -> Answer:
        headers = {**self._headers, "Idempotency-Key": name}
        try:
            response = await client.post(url, content=body, headers=headers)
        except (TooLongError, EncodedError) as error:
            raise CallError(f"{url}: {described(error)}", "malformed", spent=reserve) from None
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
            raise CallError(f"{url}: {described(error)}") from None  # nothing was sent
        except httpx2.RequestError as error:
            # The request was sent: the agent may have worked on it.
            raise CallError(f"{url}: {described(error)}", spent=reserve) from None
        if response.status_code >= 300:
            raise self._refused(url, response)
        try:
            if self._settings.format == "chat":
                reply = _from_chat(response.content)
            else:
                reply = reply_of(response.content, self._settings.answer)
        except ValueError as error:
            text = f"{url}: an answer that cannot be used: {error}"
            raise CallError(text, "malformed", spent=reserve) from None
        return self._settings.booked(reply, reserve)

    def _refused(self, url: str, response: httpx2.Response) -> CallError:
        status, key_env = response.status_code, self._settings.key_env or ""
        fault = of_answer(Place("", url, "", key_env), status, response.headers, response.content)
        text = hidden_bytes(response.content)[:_SHOWN].decode("utf-8", "replace")
        message = " ".join(f"{url}: {status} {text}".split())
        if status in (401, 403):
            message += f"; is key_env ({key_env or 'not set'}) the right key?"
        return CallError(message, fault.fault, fault.retry_after)

    async def _check(self, address: str, client: httpx2.AsyncClient) -> None:
        """Raise a `CallError` if an address is not healthy."""
        assert self._settings.health is not None
        url = urljoin(address, self._settings.health)
        try:
            response = await client.get(url, headers=self._headers, timeout=_HEALTH_SECONDS)
        except httpx2.RequestError as error:
            raise CallError(f"{url}: {described(error)}", "overload") from None
        if not response.is_success:
            raise CallError(f"{url}: {response.status_code}, not healthy", "overload")


async def _reach(address: str, client: httpx2.AsyncClient) -> None:
    """Raise a `CallError` if an address takes no connection; whatever it answers is fine."""
    try:
        await client.head(address, timeout=_HEALTH_SECONDS)
    except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
        raise CallError(f"{address}: {described(error)}") from None
    except httpx2.RequestError:
        return  # it was connected, but does not know HEAD


# ---------------------------------------------------------------- chat completions


class _Message(Struct):
    content: str | None = None


class _Choice(Struct):
    message: _Message


class _Completion(Struct):
    choices: list[_Choice]
    usage: Any = None


def _from_chat(body: bytes) -> Reply:
    """Return the reply in a chat completion.

    Raises:
        ValueError: it is none.
    """
    completion = msgspec.json.decode(body, type=_Completion)
    if not completion.choices or completion.choices[0].message.content is None:
        raise ValueError("it has no text")
    tokens = counted(completion.usage, "prompt_tokens", "completion_tokens")
    stated = None if tokens is None else StatedUsage(1, tokens.input, tokens.output)
    return Reply(completion.choices[0].message.content, usage=stated)
