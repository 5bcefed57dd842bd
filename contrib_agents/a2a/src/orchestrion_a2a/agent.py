"""An A2A agent: settings, and what it is sent."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Annotated

from attrs import field, frozen
from orchestrion_llm import check_address

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
    View,
)

GRACE = 10.0
"""Seconds after an attempt's time limit until the call path ends it, should it hang."""

Attempt = Callable[[Callable[[str], None]], Awaitable[Answer]]
"""Makes one attempt; its argument receives texts as they come."""


@frozen(kw_only=True)
class A2A:
    """Sends its view to an agent that speaks A2A, and waits until the task has ended.

    The text it sends is the problem, the turns it may read with their agents' names, and what the
    environment shows. The turn's content is the text of the agent's artifacts (or of its message),
    its data the data in them. A task that fails, or asks for input, fails the turn.

    Args:
        url: the address below which the card is, at /.well-known/agent-card.json.
        data: also send the problem's data, as a data part.
        role: what it does, in words, for policies that read it.
        timeout: the maximum of seconds of one attempt, in which the task ends.
        poll: seconds between two looks at a task of an agent that does not stream.
        concurrency: the maximum of calls in flight; null sets no limit.
        key_env: the environment variable with the key that is sent as `Authorization: Bearer`;
            null sends none.
        price: US dollars of a call, since the protocol states no usage; null if it is not known.
            A budget in US dollars needs it.
    """

    url: str = field(validator=check_address)
    data: bool = False
    role: str = ""
    timeout: Annotated[float, Meta(gt=0, le=86400)] = 600.0
    poll: Annotated[float, Meta(gt=0)] = 1.0
    concurrency: Annotated[int, Meta(ge=1)] | None = None
    key_env: Annotated[str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")] | None = None
    price: Annotated[float, Meta(ge=0)] | None = None

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[Agent]:
        """Yield the agent; its connections are closed at the end.

        Raises:
            UsageError: the key is missing or unusable.
        """
        name = f"a2a:{ctx.path.removeprefix('agents.')}"
        key = "" if self.key_env is None else ctx.secret(self.key_env, header=True).reveal()
        if not ctx.live:
            yield _Opened(self, name, None)
            return
        from orchestrion_a2a.client import Client

        async with Client.opened(self, key) as client:
            yield _Opened(self, name, client.attempts)


@frozen(eq=False)
class _Opened(Agent):
    """The agent, open; without `attempts` it asks nobody, as in a replay."""

    settings: A2A
    name: str
    attempts: Callable[[Mapping[str, JSON], str, Usage], Attempt] | None

    @property
    def role(self) -> str:
        return self.settings.role

    def ceiling(self, tokens: int) -> Usage | None:
        return None if self.settings.price is None else self.usage()

    def usage(self) -> Usage:
        """Return what a call takes; its US dollars are NaN if they are not known."""
        price = self.settings.price
        return Usage(1, usd=math.nan if price is None else price, cost=price or 0.0)

    async def act(self, view: View, key: Key, calls: Calls) -> Output:
        """Ask the agent for its turn.

        Raises:
            RuntimeError: the task did not complete.
            CallError: the agent was not reached, or refused.
        """
        settings = self.settings
        content: dict[str, JSON] = {"text": _text(view)}
        if settings.data and view.problem.data is not None:
            content["data"] = view.problem.data
        usage = self.usage()
        # One for all attempts at this call: a task that was begun is looked up, not begun again.
        attempt = None if self.attempts is None else self.attempts(content, key.hex(), usage)

        async def do() -> Answer:
            if attempt is None:
                raise CallError(f"{self.name}: opened without a connection", "permanent")
            return await attempt(calls.show)

        request = Request(
            self.name,
            content,
            sample=key.hex(),
            limits=CallLimits(settings.concurrency),
            timeout=settings.timeout + GRACE,
        )
        answer = await calls.run(request, do, usage)
        if answer.data["error"]:
            raise CallError(answer.data["error"], "permanent")
        return Output(answer.data["content"], data=answer.data["data"])


def _text(view: View) -> str:
    texts = [view.problem.text]
    texts += [f"{turn.agent}:\n{turn.output.content}" for turn in view.turns]
    if view.observation is not None and view.observation.text:
        texts.append(view.observation.text)
    return "\n\n".join(texts)
