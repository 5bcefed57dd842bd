"""An opened model: canonical request, reservation, fallback."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import msgspec
from attrs import evolve

from orchestrion import (
    JSON,
    Answer,
    BudgetError,
    CallError,
    CallLimits,
    Calls,
    Key,
    Model,
    Request,
    Usage,
    hidden_bytes,
)
from orchestrion_llm.content import media_tokens
from orchestrion_llm.faults import Place
from orchestrion_llm.prices import CACHE_READ, Price
from orchestrion_llm.wire import Wire

if TYPE_CHECKING:
    from orchestrion_llm.caching import PromptCache
    from orchestrion_llm.client import Client
    from orchestrion_llm.settings import ApiSettings

VERSION = "2"
"""Incremented whenever equal requests are sent or read differently than before."""

_FRAME = 64
"""Tokens that a service adds to a prompt beside its fields, which the bytes cover."""
_TOOLS_FRAME = 1024
"""Tokens that it adds to describe tools or the output's form."""

_USE = 20_000
"""Tokens that are reserved for what one use of the service's own tools adds to a prompt."""

_encode = msgspec.json.encode


class ApiModel(Model):
    """A model behind an API.

    `client` is None in a replay and in a dry run. `close` is a hint beside an unknown price: a
    similar name of a model. `cache` marks prompts that the vendor should keep, where that is
    cheaper.
    """

    def __init__(
        self,
        settings: ApiSettings,
        wire: Wire,
        place: Place,
        price: Price | None,
        client: Client | None,
        close: str = "",
        cache: PromptCache | None = None,
    ) -> None:
        extra = _encode(settings.extra)
        has_cache_control = b'"cache_control"' in extra
        pays = price is not None and price.caching_pays and not has_cache_control
        self._cache = cache if pays else None
        if price is not None and has_cache_control:
            price = price.writing()
        self._settings, self._wire, self._place = settings, wire, place
        self._price, self._client, self._close = price, client, close
        self._hour = b'"1h"' in extra
        self.vendor_tools = settings.vendor_tools
        self.unsupported = () if wire.embeddings else ("embed",)

    async def complete(self, request: Mapping[str, JSON], key: Key, calls: Calls) -> Answer:
        """See `Model.complete`. An answer by the fallback model has the field `instead_of`.

        Raises:
            CallError: after the last attempt, unless the fallback model answers.
        """
        settings = self._settings
        body = self._wire.body(self._own(request), settings)
        plain = _encode(body)
        content = hidden_bytes(plain)
        if content is not plain and content != plain:
            body = msgspec.json.decode(content)
        reserve = self._bound(
            len(content)
            + _FRAME
            + (_TOOLS_FRAME if request.get("tools") or request.get("schema") is not None else 0)
            + media_tokens(request, settings.image_tokens),
            int(request.get("max_tokens") or settings.max_tokens),
            request.get("vendor_tools") or {},
        )
        name = key.hex()
        batch = settings.batch
        show = calls.show if calls.watched and batch is None else None
        # Stated in both cases: servers have different defaults. A batch has no streams.
        streaming = self._wire.streaming if show else {"stream": False}
        body_sent = {**body, **(streaming if batch is None else {})}
        content = _encode(body_sent)
        client, place = self._client, self._place

        async def attempt() -> Answer:
            if client is None:
                raise CallError(f"{place.service}: opened without a connection", "permanent")
            # Runs with the same seed have common keys, so the name includes the content.
            sent = f"{name}.{blake2b(content, digest_size=16).hexdigest()}"
            if self._cache is None:
                answer = await client.attempt(content, sent, reserve, show)
            else:
                marked, marks = self._cache.marked(body_sent)
                kept = False
                try:
                    answer = await client.attempt(_encode(marked), sent, reserve, show)
                    kept = CACHE_READ in answer.data.get("billed", ())
                finally:
                    self._cache.ended(marks, kept)
            raw = answer.data.get("raw")
            if raw is None:
                return answer
            return evolve(answer, data={**answer.data, "raw": self._tag(raw)})

        call = Request(
            place.service,
            body,
            VERSION,
            sample=name,
            cache=settings.cache,
            limits=settings.limits if batch is None else CallLimits(),
            timeout=settings.timeout if batch is None else batch.hours * 3600,
            lasting=batch is not None,
        )
        try:
            return await calls.run(call, attempt, reserve)
        except BudgetError as error:
            if self._close and "price" in str(error):
                raise BudgetError(f"{error}{self._close}") from None
            raise
        except CallError as error:
            if settings.fallback is None or error.fault in ("permanent", "quota"):
                raise
        answer = await settings.fallback.complete(request, key.child("fallback"), calls)
        return evolve(answer, data={**answer.data, "instead_of": place.service})

    async def embed(self, texts: Sequence[str], calls: Calls) -> Answer:
        """See `Model.embed`; one request for all texts.

        Raises:
            CallError: after the last attempt; permanent where the API has no embeddings.
        """
        settings, client, place = self._settings, self._client, self._place
        if self._wire.embeddings is None:
            raise CallError(f"{place.service}: this API cannot embed texts", "permanent")
        body = {
            **settings.extra,
            "model": settings.model,
            "input": list(texts),
            "encoding_format": "float",
        }
        content = hidden_bytes(_encode(body))
        reserve = self.embedding_ceiling(len(content))
        name = blake2b(content, digest_size=16).hexdigest()

        async def attempt() -> Answer:
            if client is None:
                raise CallError(f"{place.service}: opened without a connection", "permanent")
            return await client.embed(content, name, reserve, len(texts))

        call = Request(
            place.service,
            msgspec.json.decode(content),
            VERSION,
            cache=settings.cache is not False,
            limits=settings.limits,
            timeout=settings.timeout,
        )
        return await calls.run(call, attempt, reserve)

    def embedding_ceiling(self, tokens: int) -> Usage:
        """Return a bound of embedding texts of so many tokens."""
        return self._bound(tokens, 0)

    def ceiling(self, tokens: int) -> Usage:
        """Return a bound of one completion that reads at most `tokens` tokens."""
        own = self._bound(tokens + _FRAME + _TOOLS_FRAME, self._settings.max_tokens)
        other: Any = getattr(self._settings.fallback, "ceiling", None)
        if other is None:
            return own
        # Only one of them answers; failed attempts count as retries.
        most: Usage = other(tokens)
        return Usage(
            max(own.calls, most.calls),
            max(own.input_tokens, most.input_tokens),
            max(own.output_tokens, most.output_tokens),
            _larger(own.usd, most.usd),
            _larger(own.cost, most.cost),
        )

    def _tag(self, raw: JSON) -> JSON:
        """Return what a service wrote, tagged with its name: no other can read it."""
        return {"service": self._place.service, "api": self._wire.path, "content": raw}

    def _own(self, request: Mapping[str, JSON]) -> Mapping[str, JSON]:
        """Return the request with raw messages of this service, and without those of others."""
        if not any("raw" in message for message in request.get("messages") or ()):
            return request
        messages = []
        for message in request["messages"]:
            raw = message.get("raw")
            plain = {name: value for name, value in message.items() if name != "raw"}
            if raw is not None and raw == self._tag(raw["content"]):
                plain["raw"] = raw["content"]
            messages.append(plain)
        return {**request, "messages": messages}

    def _bound(
        self, input_tokens: int, output_tokens: int, uses: Mapping[str, int] | None = None
    ) -> Usage:
        price, uses = self._price, uses or {}
        input_tokens += _USE * sum(uses.values())
        if price is None:
            return Usage(1, input_tokens, output_tokens, math.nan, 0.0)
        usd = price.most(input_tokens, output_tokens, self._hour) + price.of_uses(uses)
        return Usage(1, input_tokens, output_tokens, usd, 0.0 if math.isnan(usd) else usd)


def _larger(first: float, other: float) -> float:
    """Return the larger of two; NaN if either is."""
    return math.nan if math.isnan(first) or math.isnan(other) else max(first, other)
