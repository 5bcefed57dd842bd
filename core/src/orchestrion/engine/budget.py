"""What a run may spend, kept below its caps also with many calls in flight."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol

from orchestrion.errors import BudgetError
from orchestrion.records import NO_USAGE, Usage

__all__ = ["Budget", "BudgetCaps"]


class BudgetCaps(Protocol):
    """The caps of a run; None means no cap."""

    @property
    def calls(self) -> int | None: ...
    @property
    def tokens(self) -> int | None: ...
    @property
    def usd(self) -> float | None: ...
    @property
    def minutes(self) -> float | None: ...


class Budget:
    """Reserves the worst case before a call, settles what it took after it.

    At every moment spent + reserved <= cap, so that a cap is never passed, however many calls
    are in flight.

    Args:
        caps: see `BudgetCaps`; None means no cap at all.
        spent: what earlier parts of this run spent.
        elapsed: seconds that earlier parts of this run took.
    """

    def __init__(
        self, caps: BudgetCaps | None = None, spent: Usage = NO_USAGE, elapsed: float = 0.0
    ) -> None:
        self._caps = caps
        minutes = caps.minutes if caps is not None else None
        self._seconds = minutes * 60 if minutes is not None else None
        self._started = time.monotonic() - elapsed
        self._spent, self._reserved = _Sum(), _Sum()
        self._spent.add(spent)
        self._stated = NO_USAGE

    @property
    def spent(self) -> Usage:
        """What was taken; calls with no known price count as free."""
        return self._spent.usage()

    @property
    def reserved(self) -> Usage:
        """What is set aside for calls in flight."""
        return self._reserved.usage()

    @property
    def elapsed(self) -> float:
        """Seconds this run has taken, earlier parts included."""
        return time.monotonic() - self._started

    def check(self) -> None:
        """Raise `BudgetError` when the minutes are used up, or a cap was passed."""
        self.reserve(NO_USAGE)

    @asynccontextmanager
    async def deadline(self) -> AsyncIterator[None]:
        """Cancel what runs inside when the minutes are used up.

        Raises:
            BudgetError: that happened.
        """
        left = None if self._seconds is None else self._seconds - self.elapsed
        limit = asyncio.timeout(left)
        try:
            async with limit:
                yield
        except TimeoutError:
            if not limit.expired():
                raise
            raise self._late() from None

    def _late(self) -> BudgetError:
        return BudgetError(f"budget.minutes: {(self._seconds or 0) / 60:g} minutes are used up")

    def charge(self, usage: Usage) -> None:
        """Book what a turn states that it took beside its calls.

        It is known only now, so that a cap can be passed by the turns under way.

        Raises:
            BudgetError: a cap is passed.
        """
        if self._caps is not None:
            self._stated = self._stated + usage
            self._spent.add(usage)
            self.check()

    def take_stated(self) -> Usage:
        """What turns stated since this was asked last; no journal has it."""
        taken, self._stated = self._stated, NO_USAGE
        return taken

    def reserve(self, worst: Usage, service: str = "this call") -> None:
        """Set `worst` aside, or raise `BudgetError` if the caps do not cover it."""
        if self._seconds is not None and self.elapsed > self._seconds:
            raise self._late()
        caps = self._caps
        if caps is not None:
            if caps.usd is not None and math.isnan(worst.usd):
                raise BudgetError(
                    f"budget.usd is set but the price of {service} is not known; "
                    "give the model's `price` in the config, or take budget.usd out"
                )
            spent_, held_ = self._spent, self._reserved
            for name, cap, spent, held, more in (
                ("calls", caps.calls, spent_.calls, held_.calls, worst.calls),
                ("tokens", caps.tokens, spent_.tokens, held_.tokens, worst.tokens),
                ("usd", caps.usd, spent_.usd, held_.usd, worst.usd),
            ):
                if cap is not None and spent + held + more > cap:
                    raise BudgetError(
                        f"budget.{name}: {spent:g} of {cap:g} spent and {held:g} reserved"
                        + (f"; the next call could take {more:g}" if more else "")
                    )
        self._reserved.add(worst)

    def settle(self, worst: Usage, actual: Usage) -> None:
        """Give a reservation back and book what the call really took."""
        self._reserved.take_back(worst)
        self._spent.add(actual)


class _Sum:
    """A running sum, which costs less than a new usage for every call."""

    __slots__ = ("calls", "cost", "input_tokens", "output_tokens", "usd")

    def __init__(self) -> None:
        self.calls = self.input_tokens = self.output_tokens = 0
        self.usd = self.cost = 0.0

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens

    def usage(self) -> Usage:
        return Usage(self.calls, self.input_tokens, self.output_tokens, self.usd, self.cost)

    def add(self, usage: Usage) -> None:
        self.calls += usage.calls
        self.input_tokens += usage.input_tokens
        self.output_tokens += usage.output_tokens
        self.cost += usage.cost
        if not math.isnan(usage.usd):
            self.usd += usage.usd

    def take_back(self, usage: Usage) -> None:
        self.calls -= usage.calls
        self.input_tokens -= usage.input_tokens
        self.output_tokens -= usage.output_tokens
        if self.calls <= 0:
            # A running difference of floats would drift away from zero.
            self.usd = self.cost = 0.0
            return
        self.cost -= usage.cost
        if not math.isnan(usage.usd):
            self.usd -= usage.usd
