"""What each key may use: requests and tokens a minute, US dollars a day and in all.

Minutes are a sliding window, so that `Retry-After` is the time after which a request is let in.
Days are those of UTC. What a request takes is known turn by turn, so requests in flight can exceed
a limit by what they take; the next one is refused.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from pathlib import Path

from attrs import frozen
from orchestrion_logged import locked

from orchestrion import StoreError, Usage, UsageError
from orchestrion.runs import write_atomic
from orchestrion_serve.refusals import Refusal, stopping

MINUTE, DAY = 60.0, 86_400.0
SAVING = 1.0
"""Delay in seconds before spend is written to disk: what a crash can lose."""
AGAIN = 5.0
"""Seconds between attempts to write spend after a failure."""
SHARE = 3
"""A client may hold at most this many times the free places: a single client gets 3/4 of all
places, two clients get 3/7 each."""


@frozen
class KeyLimits:
    """The limits of one key; None means no limit."""

    requests: int | None = None
    """Requests per minute."""
    tokens: int | None = None
    """Tokens per minute."""
    usd_a_day: float | None = None
    usd: float | None = None

    @property
    def counts_money(self) -> bool:
        """Return whether a limit is in US dollars."""
        return self.usd is not None or self.usd_a_day is not None


class Account:
    """What one key has used.

    Args:
        limits: of the key.
        clock: returns the time in seconds.
        changed: called after money was spent.
        usd, day, usd_today: what was spent before, in all and on that day.
    """

    def __init__(
        self,
        limits: KeyLimits,
        clock: Callable[[], float],
        changed: Callable[[], None],
        usd: float = 0.0,
        day: int = 0,
        usd_today: float = 0.0,
    ) -> None:
        self.usd, self.day, self.usd_today = usd, day, usd_today
        self._limits, self._clock, self._changed = limits, clock, changed
        self._requests: deque[float] = deque()
        self._turns: deque[tuple[float, int]] = deque()
        self._tokens = 0

    @property
    def counts_money(self) -> bool:
        """Return whether a limit is in US dollars."""
        return self._limits.counts_money

    def admit(self) -> None:
        """Count a request.

        Raises:
            Refusal: a limit is reached; `Retry-After` says for how long.
        """
        now, limits = self._clock(), self._limits
        self._today(now)
        if limits.usd is not None and self.usd >= limits.usd:
            message = f"the {limits.usd:g} US dollars of this key are spent"
            raise Refusal(402, "insufficient_quota", message)
        if limits.usd_a_day is not None and self.usd_today >= limits.usd_a_day:
            message = f"the {limits.usd_a_day:g} US dollars a day of this key are spent"
            raise _later(message, (self.day + 1) * DAY - now)
        self._forget(now - MINUTE)
        if limits.tokens is not None and self._tokens >= limits.tokens:
            raise _later(f"{limits.tokens} tokens a minute are used", self._room(now))
        if limits.requests is not None:
            if len(self._requests) >= limits.requests:
                message = f"this key may make {limits.requests} requests a minute"
                raise _later(message, self._requests[0] + MINUTE - now)
            self._requests.append(now)

    def charge(self, usage: Usage) -> None:
        """Add the usage of a turn."""
        now = self._clock()
        if self._limits.tokens is not None and usage.tokens:
            self._turns.append((now, usage.tokens))
            self._tokens += usage.tokens
        if usage.usd > 0:  # not NaN, where no price is known
            self._today(now)
            self.usd += usage.usd
            self.usd_today += usage.usd
            self._changed()

    def _today(self, now: float) -> None:
        if self.day != int(now // DAY):
            self.day, self.usd_today = int(now // DAY), 0.0

    def _forget(self, before: float) -> None:
        while self._requests and self._requests[0] <= before:
            self._requests.popleft()
        while self._turns and self._turns[0][0] <= before:
            self._tokens -= self._turns.popleft()[1]

    def _room(self, now: float) -> float:
        """Return the seconds until the tokens of the last minute are below the limit."""
        tokens = self._tokens
        assert self._limits.tokens is not None
        for at, count in self._turns:
            tokens -= count
            if tokens < self._limits.tokens:
                return at + MINUTE - now
        return MINUTE


class Accounts:
    """The accounts of all keys that have limits.

    Args:
        limits: by the key's name.
        file: keeps the money that was spent, for one server at a time; None keeps it in memory.
        clock: returns the time in seconds.

    Raises:
        UsageError: the file cannot be read.
        StoreError: another server uses it, or it cannot be written beside.
    """

    def __init__(
        self,
        limits: Mapping[str, KeyLimits],
        file: Path | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._file = file
        self._timer: asyncio.TimerHandle | None = None
        # Before it is read: what another server spends meanwhile would not be counted.
        self._lock = _locked(file) if file is not None else None
        try:
            self._before = spent = _spent(file) if file is not None else {}
        except UsageError:
            self.close()
            raise
        self._accounts = {
            name: Account(of_key, clock, self._soon, *spent.get(name, ()))
            for name, of_key in limits.items()
        }

    def of(self, name: str) -> Account | None:
        """Return the account of a key; None if the key has no limits."""
        return self._accounts.get(name)

    def save(self) -> None:
        """Write what was spent, durably."""
        if self._timer is None:
            return
        self._timer.cancel()
        assert self._file is not None
        data = {name: (a.usd, a.day, a.usd_today) for name, a in self._accounts.items()}
        # Keys that are not in the file of keys now may come back.
        write_atomic(self._file, [json.dumps({**self._before, **data}).encode()])
        self._timer = None

    def close(self) -> None:
        """Write what was spent, and let another server use the file; a second call does nothing."""
        self.save()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _try(self) -> None:
        """Write what was spent; try again later if that fails."""
        try:
            self.save()
        except StoreError:  # a full disk, say
            self._timer = asyncio.get_running_loop().call_later(AGAIN, self._try)

    def _soon(self) -> None:
        if self._file is not None and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(SAVING, self._try)


class Room:
    """Which requests are answered at once, so that no client keeps the others out.

    Args:
        limit: requests at once.
        fair: whether several clients share it. Then one that holds some gets no more than
            `SHARE` times what stays free, and never the last place.
    """

    def __init__(self, limit: int, fair: bool = False) -> None:
        self._limit, self._fair = limit, fair
        self._held: Counter[str] = Counter()
        self._free = limit
        self.closed = False
        """Whether the server is stopping."""

    def take(self, client: str) -> None:
        """Take a place for a request.

        Raises:
            Refusal: the server is stopping or full, or the client has its share.
        """
        if self.closed:
            raise stopping()
        own, free = self._held[client], self._free
        if free < 1:
            raise _later(f"{self._limit} requests are being answered", 1, "too_many_requests")
        if self._fair and own and (free == 1 or own >= SHARE * free):
            message = f"{own} requests of this key are being answered; the rest is for other keys"
            raise _later(message, 1, "too_many_requests")
        self._held[client] += 1
        self._free -= 1

    def give(self, client: str) -> None:
        """Give a place back."""
        self._held[client] -= 1
        self._free += 1


def _locked(file: Path) -> int:
    taken = f"{file}: another server counts what these keys spend; give each its own file of keys"
    try:
        return locked(file.with_name(f"{file.name}.lock"), taken)
    except OSError as error:
        raise StoreError(f"{file}: cannot be written to: {error}") from error


def _spent(file: Path) -> Mapping[str, tuple[float, int, float]]:
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
        spent = {
            name: (float(usd), int(day), float(today)) for name, (usd, day, today) in data.items()
        }
        if not all(0 <= number < math.inf for numbers in spent.values() for number in numbers):
            raise ValueError("an amount is no number from 0 on")
        return spent
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise UsageError(f"{file}: is not what this server wrote ({error}); remove it") from None


def _later(message: str, seconds: float, code: str = "rate_limit_exceeded") -> Refusal:
    headers = {"retry-after": str(max(1, math.ceil(seconds)))}
    return Refusal(429, code, message, headers=headers)
