"""The common settings of agents on other machines, and how one call of them is made and booked."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Annotated

from attrs import frozen
from orchestrion_llm import Limits

from orchestrion import (
    JSON,
    Agent,
    Answer,
    CallError,
    CallLimits,
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
from orchestrion_remote.balance import Balancer, T
from orchestrion_remote.body import Reply, StatedUsage

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
    """

    role: str = ""
    options: Sequence[str] = ()
    timeout: Annotated[float, Meta(gt=0, le=86400)] = 600.0
    limits: Limits = Limits()
    key_env: Annotated[str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")] | None = None
    price: Price | None = None
    most: Most | None = None


@frozen
class Rates:
    """How calls of an agent are reserved and booked."""

    price: Price | None
    most: Most | None

    def reserve(self, input_tokens: int = 0, output_tokens: int = 0) -> Usage:
        """Return the most that one call takes: `most`, or else these tokens."""
        usd: float | None = None
        if self.most is not None:
            input_tokens, output_tokens = self.most.input_tokens, self.most.output_tokens
            usd = self.most.usd
        return Usage(1, input_tokens, output_tokens, self._usd(usd, input_tokens, output_tokens))

    def book(self, stated: StatedUsage | None, reserve: Usage) -> tuple[Usage, bool]:
        """Return what a call took, and whether that is only its reservation."""
        if stated is None:
            return reserve, True
        usd = self._usd(stated.usd, stated.input_tokens, stated.output_tokens)
        cost = stated.cost
        if cost is None:
            cost = 0.0 if math.isnan(usd) else usd
        calls = max(1, stated.calls)
        return Usage(calls, stated.input_tokens, stated.output_tokens, usd, cost), False

    def _usd(self, usd: float | None, input_tokens: int, output_tokens: int) -> float:
        if usd is not None:
            return usd
        return math.nan if self.price is None else self.price.usd(input_tokens, output_tokens)


def secret_of(settings: Remote, ctx: OpenContext) -> str:
    """Return the key that is sent, registered as a secret; empty for none.

    Raises:
        UsageError: it is missing, or cannot stand in a header.
    """
    if settings.key_env is None:
        return ""
    key = ctx.secret(settings.key_env).reveal()
    if not key.isascii() or not key.isprintable():
        raise UsageError(f"{ctx.path}: {settings.key_env} is not a key: it has odd characters")
    return key


async def open_balancer(balancer: Balancer[T], ctx: OpenContext) -> None:
    """Ask all addresses for their health before a run.

    Raises:
        UsageError: none is healthy.
    """
    wrong = await balancer.check()
    if wrong and len(wrong) == balancer.size:
        raise UsageError(f"{ctx.path}: no address is healthy: {'; '.join(wrong)}")
    for text in wrong:
        ctx.note("health", f"not healthy, tried last: {text}")


class RemoteAgent(Agent):
    """An opened agent elsewhere.

    Args:
        settings: of the component.
        name: of the service, in limits and journal.
        write: makes the content of a request.
        ask: makes one attempt with what `write` made; None where nobody is asked, as in a replay.
        bound: the most tokens that a request takes, where `most` is not set.
    """

    ends = False
    pure = False

    def __init__(
        self,
        settings: Remote,
        name: str,
        write: Callable[[View, Key], JSON],
        ask: Callable[[JSON, str, Usage, Calls], Awaitable[Answer]] | None,
        bound: Callable[[JSON], tuple[int, int]] = lambda content: (0, 0),
    ) -> None:
        self._settings, self._service = settings, name
        self._write, self._ask, self._bound = write, ask, bound
        self.rates = Rates(settings.price, settings.most)
        self.role, self._options = settings.role, tuple(settings.options)
        limits = settings.limits
        self._limits = CallLimits(
            limits.concurrency, limits.requests_per_minute, limits.tokens_per_minute
        )

    @property
    def options(self) -> Sequence[str]:
        """Return the options that a policy chooses from."""
        return self._options

    def ceiling(self, tokens: int) -> Usage | None:
        """Return the most that a turn takes, if the settings say it."""
        most = self._settings.most
        # It also bounds what the turn says.
        return self.rates.reserve() if most is not None and most.output_tokens else None

    async def act(self, view: View, key: Key, calls: Calls) -> Output:
        """Ask the agent for its turn.

        Raises:
            RuntimeError: the agent answered that it could not do its work.
            CallError: it was not reached, or refused.
        """
        content = self._write(view, key)
        reserve = self.rates.reserve(*self._bound(content))
        name = key.hex()

        async def do() -> Answer:
            if self._ask is None:
                raise CallError(f"{self._service}: opened without a connection", "permanent")
            return await self._ask(content, name, reserve, calls)

        request = Request(
            self._service,
            content,
            sample=name,
            limits=self._limits,
            timeout=self._settings.timeout + GRACE,
        )
        answer = await calls.run(request, do, reserve)
        data: Mapping[str, JSON] = answer.data
        if data["error"]:
            raise RuntimeError(data["error"])
        return Output(
            data["content"],
            data=data["data"],
            final=data["final"],
            metadata={**data["metadata"], **({"estimated": True} if answer.estimated else {})},
        )


def answer_of(reply: Reply, rates: Rates, reserve: Usage) -> Answer:
    """Return a reply as the answer of a call."""
    usage, estimated = rates.book(reply.usage, reserve)
    return Answer(reply.data_of(), usage, estimated)
