"""Keep what a run spends below its caps, also with many calls in flight."""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from weakref import WeakSet

from orchestrion._config.sections import Budget as BudgetCaps
from orchestrion._engine.limiter import ServiceLimiter
from orchestrion._errors import BudgetError
from orchestrion._interfaces import CallLimits
from orchestrion._records import NO_USAGE, Usage

inside: ContextVar[bool] = ContextVar("inside", default=False)
"""Whether the current code runs inside a call, which holds a reservation."""
_payer: ContextVar[Callable[[Usage], None] | None] = ContextVar("payer", default=None)


@contextmanager
def paying(tell: Callable[[Usage], None]) -> Iterator[None]:
    """Tell what is spent in the block, and in tasks that are begun in it, as the budget books it.

    That is each attempt at a call, whether or not it got an answer, and what turns report beside
    their calls. An attempt that was cut off counts as what was reserved for it.

    Args:
        tell: called with each usage; must not raise.
    """
    token = _payer.set(tell)
    try:
        yield
    finally:
        _payer.reset(token)


class Budget:
    """Reserve the worst case before a call, and settle what it spent after it.

    Before a call is granted its reservation, spent + reserved <= cap holds, however many calls are
    in flight. Two things can exceed a cap: usage that a turn reports itself (`charge`), and a call
    that spends more than it reserved, which is logged. A reservation that does not fit waits, first
    come, first served, until calls in flight give back what they did not spend. A call made inside
    another one does not wait: the outer one holds its reservation until it is done. If the first
    that waits does not fit although nothing is in flight, it and all later calls get a
    `BudgetError`; calls in flight finish.

    `spent` and `elapsed` (in seconds) are what earlier parts of the run took.
    """

    def __init__(
        self, caps: BudgetCaps | None = None, spent: Usage = NO_USAGE, elapsed: float = 0.0
    ) -> None:
        self.caps = caps
        minutes = caps.minutes if caps is not None else None
        self._seconds = minutes * 60 if minutes is not None else None
        self._started = time.monotonic() - elapsed
        self._spent, self._reserved = _Sum(), _Sum()
        self._spent.add(spent)
        self._stated = NO_USAGE
        self._used_up = ""
        """Why no more calls are made; empty while they are."""
        self._waiting: deque[tuple[Usage, asyncio.Future[None]]] = deque()
        self._sharing = WeakSet([self])
        """The budgets that book in the same sums, and wait for each other's calls."""
        self.limiters: dict[str, ServiceLimiter] = {}
        """By service; runs that share a budget share them."""
        self._limiters_before: dict[str, ServiceLimiter] = {}
        """Those of the budgets that this one continues."""

    @property
    def spent(self) -> Usage:
        """What was spent; calls without a known price count as free."""
        return self._spent.usage()

    @property
    def reserved(self) -> Usage:
        """What is reserved for calls in flight."""
        return self._reserved.usage()

    @property
    def elapsed(self) -> float:
        """Seconds that this run has taken, earlier parts included."""
        return time.monotonic() - self._started

    def continued(self, caps: BudgetCaps | None) -> Budget:
        """Return a budget with other caps that shares the sums of this one, and replaces it.

        Calls of both may be in flight together: each keeps all of them below its own caps.
        """
        budget = Budget(caps)
        budget._started, budget._spent = self._started, self._spent
        budget._reserved, budget._sharing = self._reserved, self._sharing
        budget._limiters_before = self._limiters_before | self.limiters
        self._sharing.add(budget)
        return budget

    def limiter(self, service: str, limits: CallLimits) -> ServiceLimiter:
        """Return the limiter of a service: that of the budget before, unless its limits differ."""
        limiter = self.limiters.get(service)
        if limiter is None:
            before = self._limiters_before.get(service)
            same = before is not None and before.limits == limits
            limiter = self.limiters[service] = (before if same else None) or ServiceLimiter(limits)
        return limiter

    def check(self) -> None:
        """Raise `BudgetError` if the minutes are used up, or a cap is exceeded."""
        if self._seconds is not None and self.elapsed > self._seconds:
            raise self._late()
        if self.caps is not None:
            passed = self._lacking(NO_USAGE, _NOTHING)
            if passed:
                raise BudgetError(passed)

    @asynccontextmanager
    async def deadline(self) -> AsyncIterator[None]:
        """Cancel the block when the minutes are used up.

        Raises:
            BudgetError: that happened.
        """
        seconds_left = None if self._seconds is None else self._seconds - self.elapsed
        limit = asyncio.timeout(seconds_left)
        try:
            async with limit:
                yield
        except TimeoutError:
            if not limit.expired():
                raise
            raise self._late() from None

    def _late(self) -> BudgetError:
        return BudgetError(f"budget.minutes: {(self._seconds or 0) / 60:g} minutes are used up")

    def charge(self, usage: Usage) -> bool:
        """Book usage that a turn reports beside its calls; return whether to record it at once.

        It is known only now, so that turns under way can exceed a cap; then `check` raises. Usage
        that neither costs money nor counts against a cap is summed up for `take_stated`.
        """
        _tell(usage)
        if self.caps is None:
            return False
        self._spent.add(usage)
        if self.counts(usage):
            return True
        self._stated = self._stated + usage
        return False

    def counts(self, usage: Usage) -> bool:
        """Return whether usage that turns report costs money, or counts against a cap."""
        caps = self.caps
        return usage.usd > 0 or (
            caps is not None
            and bool(
                (caps.calls is not None and usage.calls)
                or (caps.tokens is not None and usage.tokens)
                or (caps.cost is not None and usage.cost)
            )
        )

    def take_stated(self) -> Usage:
        """Return, and forget, the reported usage that is in no journal."""
        stated, self._stated = self._stated, NO_USAGE
        return stated

    async def reserve(self, worst: Usage, service: str = "this call") -> None:
        """Reserve `worst`, as soon as it fits beside the other reservations.

        Raises:
            BudgetError: it does not fit, and nothing in flight can make room for it.
        """
        if self._seconds is not None and self.elapsed > self._seconds:
            raise self._late()
        caps = self.caps
        if caps is not None:
            for name in ("usd", "cost"):
                if getattr(caps, name) is not None and math.isnan(getattr(worst, name)):
                    raise BudgetError(
                        f"budget.{name} is set but the price of {service} is not known; "
                        "give its `price` in the config, with `price.tools` for tools that its "
                        f"service charges for, or take budget.{name} out"
                    )
            if self._used_up:
                raise BudgetError(self._used_up)
            nested = inside.get()
            lacking = self._lacking(worst, self._reserved)
            if lacking and nested:
                raise BudgetError(lacking)
            if lacking or (self._waiting and not nested and worst != NO_USAGE):
                await self._room(worst)
                return
        self._reserved.add(worst)

    def settle(self, worst: Usage, actual: Usage) -> None:
        """Give a reservation back and book what the call spent."""
        self._reserved.add(worst, -1)
        if not self._reserved.entries:
            self._reserved.usd = self._reserved.cost = 0.0  # differences of floats drift from zero
        self._spent.add(actual)
        _tell(actual)
        for budget in list(self._sharing):
            budget._wake()

    async def _room(self, worst: Usage) -> None:
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((worst, granted))
        self._wake()
        try:
            await granted
        except asyncio.CancelledError:
            if granted.done() and not granted.cancelled() and granted.exception() is None:
                self.settle(worst, NO_USAGE)
            else:
                self._wake()  # another reservation may be the first now
            raise

    def _wake(self) -> None:
        """Grant what fits now, in order; if nothing can fit any more, refuse all that wait."""
        while self._waiting:
            worst, granted = self._waiting[0]
            lacking = self._used_up or self._lacking(worst, self._reserved)
            if lacking and self._reserved.entries and not granted.done():
                return
            self._waiting.popleft()
            if granted.done():
                continue  # cancelled
            if lacking:
                self._used_up = lacking
                granted.set_exception(BudgetError(lacking))
                granted.exception()  # its waiter may be cancelled before it reads it
            else:
                self._reserved.add(worst)
                granted.set_result(None)

    def _lacking(self, worst: Usage, held: _Sum) -> str:
        """Return why the caps do not cover `worst` beside what is held; empty if they do."""
        caps, spent = self.caps, self._spent
        assert caps is not None
        for name, cap, used, reserved, more in (
            ("calls", caps.calls, spent.calls, held.calls, worst.calls),
            ("tokens", caps.tokens, spent.tokens, held.tokens, worst.tokens),
            ("usd", caps.usd, spent.usd, held.usd, worst.usd),
            ("cost", caps.cost, spent.cost, held.cost, worst.cost),
        ):
            if cap is not None and used + reserved + more > cap:
                return _lacks(name, cap, used, reserved, more)
        return ""


Allowance = Budget
"""What several runs of one process may spend together, as `orchestrion.runs` names it.

Usage that turns state and that costs nothing may be booked with another of these runs.
"""


def _tell(usage: Usage) -> None:
    tell = _payer.get()
    if tell is not None and usage != NO_USAGE:
        tell(usage)


def _lacks(name: str, cap: float, used: float, reserved: float, more: float) -> str:
    text = f"budget.{name}: {used:g} of {cap:g} spent"
    if reserved:
        text += f" and {reserved:g} reserved"
    if not more:
        return text
    text += f"; the next call could take {more:g}"
    if name == "calls":
        return text
    return f"{text}: raise it, or lower `max_tokens` if the call asks a model"


class _Sum:
    """A running sum, of so many `entries`: cheaper than a new `Usage` for every call."""

    __slots__ = ("calls", "cost", "entries", "input_tokens", "output_tokens", "usd")

    def __init__(self) -> None:
        self.entries = self.calls = self.input_tokens = self.output_tokens = 0
        self.usd = self.cost = 0.0

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens

    def usage(self) -> Usage:
        return Usage(self.calls, self.input_tokens, self.output_tokens, self.usd, self.cost)

    def add(self, usage: Usage, times: int = 1) -> None:
        self.entries += times * (usage != NO_USAGE)
        self.calls += times * usage.calls
        self.input_tokens += times * usage.input_tokens
        self.output_tokens += times * usage.output_tokens
        if not math.isnan(usage.usd):
            self.usd += times * usage.usd
        if not math.isnan(usage.cost):
            self.cost += times * usage.cost


_NOTHING = _Sum()
