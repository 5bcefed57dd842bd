"""Choose among the addresses of an agent: least outstanding calls first, and failover.

An address that fails rests: a second after its first failure, twice as long after each further one,
up to half a minute, and at least as long as it asks for. Addresses that rest are chosen last. After
its rest, an address is first asked for its health, where that is possible.

There are no retries here. Only where an attempt failed for nothing (no connection, or refused
before any work) are the other addresses tried, each once, as parts of the same attempt. An attempt
that may have cost something fails, and the call path makes the next one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from itertools import count
from typing import Generic, TypeVar

from attrs import define

from orchestrion import Answer, CallError, Fault, Usage

T = TypeVar("T")
_Check = Callable[[str, T], Awaitable[None]]

FIRST_REST, LONGEST_REST = 1.0, 30.0
ELSEWHERE: frozenset[Fault] = frozenset({"transient", "overload", "rate_limit"})
"""Faults of one address, which others need not have."""


@define(eq=False)
class _Place(Generic[T]):
    name: str
    connection: T
    active: int = 0  # calls in flight
    chosen: int = 0  # the number of its latest call
    failures: int = 0  # in a row
    rests_until: float = 0.0

    def rest(self, now: float, hint: float | None = None) -> None:
        self.failures += 1
        seconds = min(LONGEST_REST, FIRST_REST * 2.0 ** min(self.failures - 1, 10))
        self.rests_until = max(self.rests_until, now + max(seconds, hint or 0.0))

    def recover(self) -> None:
        self.failures, self.rests_until = 0, 0.0


class Balancer(Generic[T]):
    """Makes attempts at one of several equivalent addresses.

    Args:
        connections: what is asked, by address.
        seconds: the maximum of one attempt in total.
        healthy: raises a `CallError` if an address is not healthy; None asks for nothing.
        clock: in seconds.
        reached: asked instead before a run, where there is no `healthy`.
    """

    def __init__(
        self,
        connections: Mapping[str, T],
        seconds: float,
        healthy: _Check[T] | None = None,
        clock: Callable[[], float] = time.monotonic,
        reached: _Check[T] | None = None,
    ) -> None:
        self.size = len(connections)
        self._places = [_Place(name, connection) for name, connection in connections.items()]
        self._seconds, self._healthy, self._clock = seconds, healthy, clock
        self._first_check = healthy or reached
        self._numbers = count(1)

    async def check(self) -> list[str]:
        """Return what is wrong with each address that is not healthy now; these rest."""
        if self._first_check is None:
            return []
        results = await asyncio.gather(*map(self._wrong, self._places))
        return [text for text in results if text]

    async def call(self, ask: Callable[[str, T], Awaitable[Answer]], reserve: Usage) -> Answer:
        """Return the answer of one attempt.

        Args:
            ask: asks one address by its connection. A `CallError` with `spent` says that the
                attempt may have cost something; without, that it was free.
            reserve: the most that an attempt takes; booked if no answer comes in time.

        Raises:
            CallError: the attempt failed at every address, or somewhere where it was not free.
        """
        try:
            async with asyncio.timeout(self._seconds) as limit:
                return await self._anywhere(ask, limit)
        except TimeoutError:
            names = " or ".join(place.name for place in self._places)
            text = f"{names}: no answer within {self._seconds:g} s"
            raise CallError(text, spent=reserve) from None

    async def _anywhere(
        self, ask: Callable[[str, T], Awaitable[Answer]], limit: asyncio.Timeout
    ) -> Answer:
        left = list(self._places)
        while True:
            place = min(left, key=self._rank)
            left.remove(place)
            place.active += 1
            place.chosen = next(self._numbers)
            try:
                if place.failures and self._healthy is not None:
                    await self._healthy(place.name, place.connection)
                answer = await ask(place.name, place.connection)
            except CallError as error:
                if error.fault not in ELSEWHERE:
                    raise
                place.rest(self._clock(), error.retry_after)
                if error.spent is not None or not left:
                    raise
            except asyncio.CancelledError:
                if limit.expired():
                    place.rest(self._clock())
                raise
            else:
                place.recover()
                return answer
            finally:
                place.active -= 1

    def _rank(self, place: _Place[T]) -> tuple[float, int, int]:
        """Order places: those that do not rest, the least busy, the least recently used first."""
        rest = max(0.0, place.rests_until - self._clock())
        return rest, place.active, place.chosen

    async def _wrong(self, place: _Place[T]) -> str:
        assert self._first_check is not None
        try:
            await self._first_check(place.name, place.connection)
        except CallError as error:
            place.rest(self._clock(), error.retry_after)
            return str(error)
        return ""
