"""Attempts at HTTP calls; imported when the component is opened."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Self
from urllib.parse import urljoin

import httpx2
import msgspec
from attrs import frozen
from msgspec import Struct
from orchestrion_llm import EncodedError, Place, TooLongError, described, http_client, of_answer

from orchestrion import JSON, Answer, CallError, Calls, Usage, hidden_bytes
from orchestrion_remote.balance import Balancer
from orchestrion_remote.body import Reply, StatedUsage, reply_of
from orchestrion_remote.http import Http
from orchestrion_remote.settings import Rates, answer_of

_SHOWN = 300
_LOOK = 10.0


@frozen
class _Address:
    url: str
    client: httpx2.AsyncClient


class HttpClient:
    """Asks an agent at its addresses."""

    def __init__(self, settings: Http, key: str, addresses: list[_Address]) -> None:
        self._settings = settings
        self._rates = Rates(settings.price, settings.most)
        self._headers = {"Content-Type": "application/json", **settings.headers}
        if key:
            self._headers["Authorization"] = f"Bearer {key}"
        self.balancer = Balancer(
            [(address.url, address) for address in addresses],
            settings.timeout,
            None if settings.health is None else self._check,
        )

    @classmethod
    @asynccontextmanager
    async def opened(cls, settings: Http, key: str) -> AsyncIterator[Self]:
        """Yield a client whose connections are closed at the end."""
        async with AsyncExitStack() as stack:
            addresses = [
                _Address(url, await stack.enter_async_context(http_client(url, settings.timeout)))
                for url in settings.urls
            ]
            yield cls(settings, key, addresses)

    async def ask(self, content: JSON, name: str, reserve: Usage, calls: Calls) -> Answer:
        """Make one attempt at a call.

        Raises:
            CallError: with its kind of fault.
        """
        body = msgspec.json.encode(content)

        async def post(address: _Address) -> Answer:
            return await self._post(address, body, name, reserve)

        return await self.balancer.call(post, reserve)

    async def _post(self, address: _Address, body: bytes, name: str, reserve: Usage) -> Answer:
        headers = {**self._headers, "Idempotency-Key": name}
        try:
            response = await address.client.post(address.url, content=body, headers=headers)
        except (TooLongError, EncodedError) as error:
            raise CallError(
                f"{address.url}: {described(error)}", "malformed", spent=reserve
            ) from None
        except httpx2.RequestError as error:
            raise _broken(address, error, reserve) from None
        if response.status_code >= 300:
            raise self._refused(address, response)
        try:
            if self._settings.format == "chat":
                reply = _from_chat(response.content)
            else:
                reply = reply_of(response.content, self._settings.answer)
        except ValueError as error:
            raise CallError(
                f"{address.url}: an answer that cannot be used: {error}", "malformed", spent=reserve
            ) from None
        return answer_of(reply, self._rates, reserve)

    def _refused(self, address: _Address, response: httpx2.Response) -> CallError:
        status, key_env = response.status_code, self._settings.key_env or ""
        place = Place("", address.url, "", key_env)
        fault = of_answer(place, status, response.headers, response.content)
        text = hidden_bytes(response.content)[:_SHOWN].decode("utf-8", "replace")
        message = " ".join(f"{address.url}: {status} {text}".split())
        if status in (401, 403):
            message += f"; is key_env ({key_env or 'not set'}) the right key?"
        return CallError(message, fault.fault, fault.retry_after)

    async def _check(self, address: _Address) -> None:
        """Raise a `CallError` if an address is not healthy."""
        assert self._settings.health is not None
        url = urljoin(address.url, self._settings.health)
        try:
            response = await address.client.get(url, headers=self._headers, timeout=_LOOK)
        except httpx2.RequestError as error:
            raise CallError(f"{url}: {described(error)}", "overload") from None
        if not response.is_success:
            raise CallError(f"{url}: {response.status_code}, not healthy", "overload")


def _broken(address: _Address, error: httpx2.RequestError, reserve: Usage) -> CallError:
    text = f"{address.url}: {described(error)}"
    if isinstance(error, (httpx2.ConnectError, httpx2.ConnectTimeout)):
        return CallError(text)  # nothing was sent
    # The request was sent: the agent may have worked on it.
    return CallError(text, spent=reserve)


# ---------------------------------------------------------------- chat completions


class _Message(Struct):
    content: str | None = None


class _Choice(Struct):
    message: _Message


class _Tokens(Struct):
    prompt_tokens: int = 0
    completion_tokens: int = 0


class _Completion(Struct):
    choices: list[_Choice]
    usage: _Tokens | None = None
    error: Any = None


def _from_chat(body: bytes) -> Reply:
    """Return the reply in a chat completion.

    Raises:
        ValueError: it is none.
    """
    completion = msgspec.json.decode(body, type=_Completion)
    if not completion.choices or completion.choices[0].message.content is None:
        raise ValueError("it has no text")
    tokens = completion.usage
    stated = None
    if tokens is not None:
        stated = StatedUsage(1, tokens.prompt_tokens, tokens.completion_tokens)
    return Reply(completion.choices[0].message.content, usage=stated)
