"""A request before and after its episode: who sends it, what is read of it, its line in the log."""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from collections.abc import Callable, Mapping
from math import isnan
from secrets import token_hex
from typing import Any
from urllib.parse import urlsplit

from attrs import frozen
from starlette.types import Message, Receive, Scope

from orchestrion import Turn, Usage, is_local
from orchestrion_serve.keys import Keys
from orchestrion_serve.limits import Account, Room
from orchestrion_serve.refusals import Refusal, failed, gone, wrong

BODY_SECONDS = 30.0
"""How long a client may take to send its body."""
DISCARDED = 16
"""The server reads up to this many times the limit of a body that is too large: most clients read
the answer only after they have sent all of it."""
Log = Callable[[Mapping[str, Any]], None]


@frozen
class Settings:
    """Limits of the server.

    Args:
        concurrency: requests at once; more are answered with 429.
        timeout: seconds of an episode; then 504.
        max_body: bytes of a request's body; then 413.
        drain: seconds that requests in flight get when the server stops.
        max_usd: US dollars of an episode; then 402. None means no cap.
        known_categories: whether a problem of no category that the team learned from gets 400.
    """

    concurrency: int = 64
    timeout: float = 600.0
    max_body: int = 1_000_000
    drain: float = 30.0
    max_usd: float | None = None
    known_categories: bool = False


def known(amount: float) -> float | None:
    """Return an amount; None for NaN, which JSON lacks: a price in it is not known."""
    return None if isnan(amount) else amount


def usage_data(usage: Usage) -> dict[str, float | None]:
    """Return what a team took, for protocols that have no fields of their own for it."""
    tokens = {"input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens}
    return {**tokens, "usd": known(usage.usd), "cost": known(usage.cost)}


async def disconnected(receive: Receive) -> None:
    """Return when the client has gone; its body was read before."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def _never() -> Message:
    """Wait: who does not speak HTTP is there until it ends, and cancels by a message."""
    await asyncio.Event().wait()
    raise AssertionError


_ONCE = frozenset({b"authorization", b"host", b"idempotency-key", b"x-api-key"})


class Call:
    """One request, as its headers and its line in the log show it.

    Args:
        log: gets the line.
        scope: of the request, as ASGI has it; None if it came another way.
        receive: returns what the client sends, and that it has gone.
    """

    def __init__(self, log: Log, scope: Scope | None = None, receive: Receive = _never) -> None:
        # Read once: Starlette goes through all of them at each look.
        heads: list[tuple[bytes, bytes]] = list(scope["headers"]) if scope is not None else []
        self.heads: Mapping[bytes, bytes] = dict(heads)
        self.contradicted = {name for name, value in heads if value != self.heads[name]} & _ONCE
        """Headers about identity or payment that were sent twice with different values."""
        self.receive = receive
        self.id = token_hex(16)
        self.created = int(time.time())
        self.tenant = ""
        self.model: str | None = None
        """The model that answers."""
        self.requested = ""
        """The name that the client gave the model."""
        self.pinned = False
        """Whether the client wants this version of the model only."""
        self.log = ""
        """The folder of the log that belongs to the client's key; "" if it has none."""
        self.episode = ""
        self.usage = Usage()
        """The usage so far, including failed and cancelled turns."""
        self.agents: Counter[str] = Counter()
        """How often which agent was called."""
        self.turns: Callable[[Turn], None] | None = None
        """Called with each finished turn, if the request streams its steps."""
        self.seconds: float | None = None
        """The time limit of the request: the smaller one of the client's and the server's."""
        self.usd: float | None = None
        """The limit of its cost in US dollars, likewise."""
        self.refuse: Callable[[Refusal], None] | None = None
        """Ends the episode with an error."""
        self.account: Account | None = None
        """The account of the client's key, if the key has limits."""
        self._write, self._started = log, time.perf_counter()

    def head(self, name: bytes) -> str:
        """Return a header of the request; "" if it has none of this name."""
        return self.heads.get(name, b"").decode("latin-1")

    @property
    def headers(self) -> dict[str, str]:
        """Return the headers that name the request; all values are the server's own."""
        named = {"x-request-id": self.id, "request-id": self.id}
        return {**named, "x-orchestrion-episode": self.episode} if self.episode else named

    def spend(self, usage: Usage) -> None:
        """Book what an attempt at a call, or a turn beside its calls, spent."""
        self.usage = self.usage + usage
        if self.account is not None:
            self.account.charge(usage)
        if self.refuse is None:
            return
        if self.usd is not None and self.usage.usd > self.usd:
            message = f"the episode took more than {self.usd:g} US dollars"
            self.refuse(failed(message, 402, "cost_limit"))
        limited = self.usd is not None or (self.account is not None and self.account.counts_money)
        if limited and isnan(self.usage.usd):
            message = (
                "what the team took is not known, so that a limit in US dollars cannot hold; its "
                "owner has to give its models a `price`"
            )
            self.refuse(failed(message, 402, "unknown_price"))

    def finish(self, status: int, refusal: Refusal | None = None) -> None:
        """Log the request: no contents, and no text that the client chose."""
        self._write(
            {
                "time": round(time.time(), 3),
                "id": self.id,
                "episode": self.episode or None,
                "key": self.tenant or None,
                "model": self.model,
                "status": status,
                "error": refusal.code if refusal else None,
                **({"reason": refusal.reason} if refusal and refusal.reason else {}),
                "seconds": round(time.perf_counter() - self._started, 4),
                "tokens": self.usage.input_tokens + self.usage.output_tokens,
                "usd": known(self.usage.usd),
                "cost": known(self.usage.cost),
                "agents": self.agents,
            }
        )


class Admission:
    """Decides which requests come in; without `keys`, those to a loopback address."""

    def __init__(self, settings: Settings, keys: Keys | None, room: Room) -> None:
        self.settings, self.keys, self._room = settings, keys, room

    async def admit(self, call: Call, *, counts: bool = True) -> bytes:
        """Note whose request it is, and return its body.

        Every request that can start an episode comes in here, whatever its protocol; one that
        starts none does not count against the limits of its key.

        Raises:
            Refusal: its sender is unknown, there is no room, or the body is late, too large, not
                declared as JSON, or its client has gone.
        """
        self.authenticate(call)
        self._room.take(call.tenant)
        try:
            return await self._admitted(call, counts)
        finally:
            self._room.give(call.tenant)

    async def _admitted(self, call: Call, counts: bool) -> bytes:
        heads = call.heads
        call.seconds = _number(heads, b"x-orchestrion-timeout", self.settings.timeout)
        call.usd = _number(heads, b"x-orchestrion-max-usd", self.settings.max_usd)
        if counts and call.account is not None:
            call.account.admit()
        if heads.get(b"content-type", b"").partition(b";")[0] != b"application/json":
            # A page in a browser can send other types without asking.
            message = "send the body as `content-type: application/json`"
            raise Refusal(415, "unsupported_media_type", message)
        try:
            async with asyncio.timeout(BODY_SECONDS):
                return await self._body(call.receive)
        except TimeoutError:
            headers = {"connection": "close"}
            message = f"the body took longer than {BODY_SECONDS:g} s"
            raise Refusal(408, "slow_body", message, headers=headers) from None

    def authenticate(self, call: Call) -> None:
        """Note whose request it is.

        Raises:
            Refusal: its key is missing, wrong or contradicted; or without keys, its host is not
                this machine.
        """
        for header in sorted(call.contradicted):
            message = f"the header {header.decode()} was given twice, with different values"
            raise Refusal(400, "contradicting_headers", message)
        if self.keys is None:
            # A page in a browser must not reach the server by a name that resolves to loopback.
            if not is_here(call.head(b"host")):
                raise Refusal(403, "forbidden_host", "without keys, only loopback hosts are served")
            return
        scheme, _, key = call.head(b"authorization").partition(" ")
        if scheme.lower() != "bearer":
            key = call.head(b"x-api-key")
        elif call.head(b"x-api-key") not in ("", key.strip()):
            message = "the headers authorization and x-api-key have different keys"
            raise Refusal(400, "contradicting_headers", message)
        name = self.keys.name_of(key.strip())
        if name is None:
            message = "the API key is missing or wrong"
            headers = {"www-authenticate": "Bearer"}
            raise Refusal(401, "invalid_api_key", message, headers=headers)
        call.tenant = name
        call.account, call.log = self.keys.accounts.of(name), self.keys.logs.get(name, "")

    async def _body(self, receive: Receive) -> bytes:
        pieces, size, limit, more = [], 0, self.settings.max_body, True
        while more and size <= DISCARDED * limit:
            received = await receive()
            if received["type"] == "http.disconnect":
                raise gone()
            piece: bytes = received.get("body", b"")
            size += len(piece)
            if size <= limit:
                pieces.append(piece)
            more = received.get("more_body", False)
        if size > limit:
            headers = {"connection": "close"}
            message = f"the body is larger than {limit} bytes"
            raise Refusal(413, "body_too_large", message, headers=headers)
        return b"".join(pieces)


def _number(heads: Mapping[bytes, bytes], header: bytes, limit: float | None) -> float | None:
    """Return the number in a header, or the server's own limit if that is less."""
    text = heads.get(header)
    if text is None:
        return limit
    number = float(text) if re.fullmatch(rb"\d{1,9}(\.\d{1,9})?", text) else 0.0
    if number <= 0:
        name = header.decode()
        raise wrong(f"the header {name} is a number above 0, such as 2.5", name)
    return number if limit is None else min(number, limit)


def is_here(host: str) -> bool:
    """Return whether a Host header names this machine."""
    try:
        return is_local(urlsplit(f"//{host}").hostname or "")
    except ValueError:
        return False
