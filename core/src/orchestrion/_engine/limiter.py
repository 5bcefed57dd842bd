"""Limit how fast each service is called: concurrency, requests and tokens a minute, adaptive."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from math import ceil

from orchestrion._interfaces import CallLimits

_SHRINK = 0.8
_GROW = 1.05
_COOL_DOWN = 15.0
_BURST_SECONDS = 10.0


class _Bucket:
    """A token bucket that holds what ten seconds allow."""

    def __init__(self, per_minute: int, clock: Callable[[], float]) -> None:
        self._rate = per_minute / 60
        self._capacity = max(1.0, self._rate * _BURST_SECONDS)
        self.level, self._clock, self._at = self._capacity, clock, clock()

    def wait(self, amount: float) -> float:
        """Seconds until `amount` may be taken; an amount over the capacity waits for a full one."""
        now = self._clock()
        self.level = min(self._capacity, self.level + (now - self._at) * self._rate)
        self._at = now
        return max(0.0, (min(amount, self._capacity) - self.level) / self._rate)


class ServiceLimiter:
    """The queue of one service. First come, first served.

    Without a concurrency limit all calls are made at once, until the service answers with a rate
    limit: then concurrency shrinks to 80 % of the calls in flight, at most once in 15 seconds, and
    grows by 5 % with every round of calls without one.
    """

    def __init__(self, limits: CallLimits, clock: Callable[[], float] = time.monotonic) -> None:
        self.limits, self._clock = limits, clock
        self._cap = limits.concurrency
        self._limit: float | None = limits.concurrency
        rates = {"requests": limits.requests_per_minute, "tokens": limits.tokens_per_minute}
        self._buckets = {name: _Bucket(rate, clock) for name, rate in rates.items() if rate}
        self.active = 0
        """Calls in flight."""
        self._clean = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._pause_until = 0.0
        self._shrunk_at = float("-inf")
        self.waited = 0.0
        """Seconds that all calls together have waited here."""

    @asynccontextmanager
    async def slot(self, tokens: int) -> AsyncIterator[None]:
        """Hold a slot of the service while the block runs, once limits and rates allow it.

        `tokens` is the expected size of the call.
        """
        start = self._clock()
        await self._enter()
        try:
            await self._pace(tokens)
            self.waited += self._clock() - start
            yield
        finally:
            self.active -= 1
            if self._waiting:
                self._wake()

    async def _enter(self) -> None:
        if not self._waiting and (self._limit is None or self.active < int(self._limit)):
            self.active += 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.active -= 1
                self._wake()
            raise

    def _wake(self) -> None:
        while self._waiting and (self._limit is None or self.active < int(self._limit)):
            turn = self._waiting.popleft()
            if not turn.done():
                self.active += 1
                turn.set_result(None)

    async def _pace(self, tokens: int) -> None:
        amounts = {"requests": 1, "tokens": tokens}
        while True:
            waits = [bucket.wait(amounts[name]) for name, bucket in self._buckets.items()]
            longest = max([self._pause_until - self._clock(), *waits])
            if longest <= 0:
                break
            await asyncio.sleep(longest)
        for name, bucket in self._buckets.items():
            bucket.level -= amounts[name]

    def rate_limited(self, pause: float) -> None:
        """Let all callers wait `pause` seconds, after the service answered with a rate limit."""
        now = self._clock()
        self._pause_until = max(self._pause_until, now + pause)
        self._clean = 0
        if now - self._shrunk_at >= _COOL_DOWN:
            self._shrunk_at = now
            current = self._limit if self._limit is not None else float(self.active)
            self._limit = max(1.0, min(current, self.active or current) * _SHRINK)

    def succeeded(self) -> None:
        """Count a call without a rate limit; grow concurrency after a round of them."""
        if self._limit is None or self._limit == self._cap:
            return
        self._clean += 1
        if self._clean >= self._limit:
            self._clean = 0
            self._limit = float(ceil(self._limit * _GROW + 1e-9))
            if self._cap is not None:
                self._limit = min(self._limit, float(self._cap))
            self._wake()
