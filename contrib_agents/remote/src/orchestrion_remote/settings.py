"""The common settings of agents on other machines, and how one call of them is made and booked."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Annotated, Any, ClassVar, Protocol

from attrs import frozen
from msgspec.structs import astuple
from orchestrion_llm import Limits

from orchestrion import (
    JSON,
    Agent,
    Answer,
    CallError,
    Calls,
    Key,
    Meta,
    OpenContext,
    Output,
    Request,
    Usage,
    UsageError,
    View,
)
from orchestrion_remote.balance import Balancer
from orchestrion_remote.body import Reply, request_of

GRACE = 10.0
"""Seconds after an attempt's time limit until the call path ends it, should it hang."""
_MILLION = 1_000_000
Rate = Annotated[float, Meta(ge=0)]


@frozen
class Price:
    """What an agent elsewhere charges, where it does not say so itself.

    Args:
        call: US dollars per call.
        input: US dollars per million input tokens.
        output: US dollars per million output tokens.
    """

    call: Rate = 0.0
    input: Rate = 0.0
    output: Rate = 0.0

    def usd(self, input_tokens: int, output_tokens: int) -> float:
        """Return the US dollars of one call."""
        return self.call + (input_tokens * self.input + output_tokens * self.output) / _MILLION


@frozen
class Most:
    """The most that one call takes: reserved before it, and booked if the agent does not say.

    Args:
        input_tokens: that the agent's models read.
        output_tokens: that they write.
        usd: US dollars; null works them out by the price.
    """

    input_tokens: Annotated[int, Meta(ge=0)] = 0
    output_tokens: Annotated[int, Meta(ge=0)] = 0
    usd: Rate | None = None


class Client(Protocol):
    """Asks an agent at the addresses that its balancer chooses among."""

    balancer: Balancer[Any]

    async def ask(self, content: JSON, name: str, reserve: Usage, calls: Calls) -> Answer:
        """Make one attempt at a call.

        Args:
            content: the request.
            name: the same in each attempt at a call.
            reserve: the most that the attempt takes.
            calls: of the activation, which receives texts as they come.

        Raises:
            CallError: with its kind of fault.
        """
        ...


@frozen(kw_only=True)
class Remote:
    """Settings of every agent elsewhere.

    Args:
        role: what it does, in words, for policies that read it.
        options: that the agent takes; a policy chooses one for each turn.
        timeout: the maximum of seconds of one attempt, whichever addresses it tries.
        limits: of the calls in flight and a minute, at all addresses together.
        key_env: the environment variable with the key that is sent as `Authorization: Bearer`;
            null sends none.
        price: what a call costs; null if that is not known, unless the agent says it with each
            answer. A budget in US dollars needs this or `most.usd`.
        most: the most that one call takes; null if that is not known.
        cost: what a turn costs for the reward, in the unit of the other agents' `cost`, unless the
            agent says it with its answer; null takes the turn's US dollars.
    """

    role: str = ""
    options: Sequence[str] = ()
    timeout: Annotated[float, Meta(gt=0, le=86400)] = 600.0
    limits: Limits = Limits()
    key_env: Annotated[str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")] | None = None
    price: Price | None = None
    most: Most | None = None
    cost: Rate | None = None

    protocol: ClassVar[str]
    """Begins the names of services, in limits and journal."""

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[Agent]:
        """Yield the agent; its connections are closed at the end.

        Raises:
            UsageError: the key or a certificate is missing, or no address is healthy.
        """
        name = ctx.path.removeprefix("agents.")
        service = f"{self.protocol}:{name}"
        key = "" if self.key_env is None else ctx.secret(self.key_env, header=True).reveal()
        if not ctx.live:
            yield _RemoteAgent(self, service, None)
            return
        async with self.client(key, name, ctx.path) as client:
            wrong = await client.balancer.check()
            if wrong and len(wrong) == client.balancer.size:
                raise UsageError(f"{ctx.path}: no address is healthy: {'; '.join(wrong)}")
            for text in wrong:
                ctx.note("health", f"not healthy, tried last: {text}")
            yield _RemoteAgent(self, service, client)

    def client(self, key: str, name: str, path: str) -> AbstractAsyncContextManager[Client]:
        """Return what connects to the agent.

        Args:
            key: that is sent; empty sends none.
            name: of the agent in the team.
            path: of the component in the config.
        """
        raise NotImplementedError

    def request(self, view: View, key: Key) -> JSON:
        """Return the content of a request."""
        return request_of(view, key)

    def bound(self, content: JSON) -> Most:
        """Return the most that a request takes, where `most` is not set."""
        return Most()

    def reserve(self, most: Most) -> Usage:
        """Return what is reserved before a call; its US dollars are NaN if they are not known."""
        usd = self._usd(most.usd, most.input_tokens, most.output_tokens)
        return Usage(1, most.input_tokens, most.output_tokens, usd, self._cost(usd))

    def booked(self, reply: Reply, reserve: Usage) -> Answer:
        """Return a reply as the answer of a call, which took `reserve` if it tells nothing."""
        data = {
            "content": reply.content,
            "data": reply.data,
            "final": reply.final,
            "metadata": reply.metadata,
            "error": reply.error or "",
        }
        stated = reply.usage
        if stated is None or not any(astuple(stated)):
            return Answer(data, reserve, estimated=True)
        usd = self._usd(stated.usd, stated.input_tokens, stated.output_tokens)
        cost = self._cost(usd) if stated.cost is None else stated.cost
        calls = max(1, stated.calls)
        return Answer(data, Usage(calls, stated.input_tokens, stated.output_tokens, usd, cost))

    def _usd(self, usd: float | None, input_tokens: int, output_tokens: int) -> float:
        if usd is not None:
            return usd
        return math.nan if self.price is None else self.price.usd(input_tokens, output_tokens)

    def _cost(self, usd: float) -> float:
        """Return the cost of a turn whose agent states none."""
        if self.cost is not None:
            return self.cost
        return 0.0 if math.isnan(usd) else usd


@frozen(eq=False)
class _RemoteAgent(Agent):
    """An opened agent elsewhere; without a client it asks nobody, as in a replay."""

    settings: Remote
    service: str
    client: Client | None

    @property
    def role(self) -> str:
        return self.settings.role

    @property
    def options(self) -> Sequence[str]:
        return tuple(self.settings.options)

    def ceiling(self, tokens: int) -> Usage | None:
        most, price = self.settings.most or Most(), self.settings.price
        has_fixed_price = price is not None and not price.input and not price.output
        if most.output_tokens or most.usd is not None or has_fixed_price:
            return self.settings.reserve(most)
        return None

    async def act(self, view: View, key: Key, calls: Calls) -> Output:
        """Ask the agent for its turn.

        Raises:
            RuntimeError: the agent answered that it could not do its work.
            CallError: it was not reached, or refused.
        """
        settings, name = self.settings, key.hex()
        content = settings.request(view, key)
        reserve = settings.reserve(settings.most or settings.bound(content))

        async def do() -> Answer:
            if self.client is None:
                raise CallError(f"{self.service}: opened without a connection", "permanent")
            return await self.client.ask(content, name, reserve, calls)

        request = Request(
            self.service,
            content,
            sample=name,
            limits=settings.limits,
            timeout=settings.timeout + GRACE,
        )
        answer = await calls.run(request, do, reserve)
        data: Mapping[str, JSON] = answer.data
        if data["error"]:
            raise CallError(data["error"], "permanent")
        return Output(
            data["content"],
            data=data["data"],
            final=data["final"],
            metadata={**data["metadata"], **({"estimated": True} if answer.estimated else {})},
        )
