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
        self.spent = spent
        self.reserved = NO_USAGE
        self._stated = NO_USAGE

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
            self.spent = self.spent + usage
            self.check()

    def take_stated(self) -> Usage:
        """What turns stated since this was asked last; no journal has it."""
        taken, self._stated = self._stated, NO_USAGE
        return taken

    def reserve(self, worst: Usage) -> None:
        """Set `worst` aside, or raise `BudgetError` if the caps do not cover it."""
        if self._seconds is not None and self.elapsed > self._seconds:
            raise self._late()
        caps = self._caps
        if caps is not None:
            if caps.usd is not None and math.isnan(worst.usd):
                raise BudgetError(
                    "budget.usd is set but the price of this call is not known; "
                    "give the model's price, or take budget.usd out"
                )
            for name, cap, spent, held, more in (
                ("calls", caps.calls, self.spent.calls, self.reserved.calls, worst.calls),
                ("tokens", caps.tokens, self.spent.tokens, self.reserved.tokens, worst.tokens),
                ("usd", caps.usd, self.spent.usd, self.reserved.usd, worst.usd),
            ):
                if cap is not None and spent + held + more > cap:
                    raise BudgetError(
                        f"budget.{name}: {spent:g} of {cap:g} spent and {held:g} reserved"
                        + (f"; the next call could take {more:g}" if more else "")
                    )
        self.reserved = self.reserved + _known(worst)

    def settle(self, worst: Usage, actual: Usage) -> None:
        """Give a reservation back and book what the call really took."""
        back = _known(worst)
        held = self.reserved
        self.reserved = Usage(
            held.calls - back.calls,
            held.input_tokens - back.input_tokens,
            held.output_tokens - back.output_tokens,
            # A running difference of floats would drift away from zero.
            held.usd - back.usd if held.calls > back.calls else 0.0,
            held.cost - back.cost if held.calls > back.calls else 0.0,
        )
        self.spent = self.spent + _known(actual)


def _known(usage: Usage) -> Usage:
    if math.isnan(usage.usd):
        return Usage(usage.calls, usage.input_tokens, usage.output_tokens, 0.0, usage.cost)
    return usage
