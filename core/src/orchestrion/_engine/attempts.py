"""Attempts at a call: budget, limiter, time limit, and when to try again.

    budget reservation -> limiter -> journal -> attempt (time limit) -> settle -> journal

A call reserves its budget first and takes a slot of its service then; the other order can deadlock.

Retries are made here and nowhere else: plugins say what kind of fault it was.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable, Coroutine

import msgspec
from attrs import define, frozen
from msgspec.structs import astuple

from orchestrion._engine.budget import Budget, inside
from orchestrion._engine.checks import check_paid
from orchestrion._engine.deadline import result_of
from orchestrion._engine.limiter import ServiceLimiter
from orchestrion._engine.recording import Facts, JournalWriter, Kind, Recorded, ended
from orchestrion._engine.reuse import digest
from orchestrion._errors import BudgetError, CallError
from orchestrion._events import INFO, event
from orchestrion._interfaces import Answer, Request
from orchestrion._keys import Key
from orchestrion._records import NO_USAGE, Usage
from orchestrion._secrets import hidden_bytes

_encode, _decode = msgspec.json.encode, msgspec.json.decode

_ROUNDING = 1 + 1e-9
_HINT_JITTER = 0.1
"""How much longer than a service asks a call waits at most, as a part of that time."""


@frozen
class RetrySettings:
    """How often and how long a failed call is tried again. Times in seconds."""

    attempts: int = 6
    malformed_attempts: int = 3  # where answers cannot be used
    deadline: float = 900.0  # no attempt begins later than this after the first
    base: float = 0.5  # half of the longest pause after the first failure; doubles with each
    overload_base: float = 2.0  # the same, where the service is busy
    cap: float = 60.0  # of a pause that the service did not ask for
    hint_cap: float = 300.0  # a service that asks to wait longer ends the run, resumable


@define(eq=False)
class Call:
    """One call under way."""

    name: str  # in the journal, unique in the run
    digest: str  # of the request
    request: Request
    do: Callable[[], Awaitable[Answer]]  # makes one attempt
    reserve: Usage  # the most that an attempt can spend
    facts: Facts
    failures: int = 0  # attempts that failed so far
    error: str = ""  # of the last of them
    spent: Usage = NO_USAGE  # what the present attempt has spent so far, or may have

    @classmethod
    def at(
        cls,
        place: str,
        request: Request,
        do: Callable[[], Awaitable[Answer]],
        reserve: Usage = NO_USAGE,
        who: str = "",
        stage: str = "",
    ) -> Call:
        """Return the call of a place in the run, which is the same in every repetition.

        Calls may share their place (episodes that are compared have common keys): equal requests
        are then one call, and different ones are told apart by what they ask.
        """
        request_digest = digest(request.service, request.version, request.content, request.sample)
        facts = Facts(request.service, who, stage)
        return cls(f"{place}:{request_digest}", request_digest, request, do, reserve, facts)


class Attempts:
    """Makes calls: at most as fast, as much and as often as limits, budget and retries allow."""

    def __init__(self, budget: Budget, journal: JournalWriter, retry: RetrySettings) -> None:
        self.budget, self.journal, self.retry = budget, journal, retry
        self.retried = 0
        """Attempts that came after a failed one."""
        self._over_reserve: set[str] = set()
        """Services that spent more than was reserved, which was logged."""

    async def answer(self, call: Call) -> Answer:
        """Return the answer of a call, which is on record by then.

        Raises:
            CallError: it failed for good; `call.failures` counts the attempts.
            BudgetError: the budget does not cover it, or the service asks to stop for long.
        """
        request, reserve = call.request, call.reserve
        limiter = self.budget.limiter(request.service, request.limits)
        pieces = self.journal.pieces(request)
        jitter = Key(call.name.encode()[:16])
        give_up = math.inf
        while True:
            name = f"{call.name}#{call.failures}"
            # A lasting request goes on at the service: it is booked when its answer is fetched.
            lost = NO_USAGE if request.lasting else reserve
            attempt = Recorded(name, call.digest, None, lost, "started", call.facts, pieces=pieces)
            try:
                await self.budget.reserve(reserve, request.service)
                call.spent = NO_USAGE  # until something was sent
                try:
                    async with limiter.slot(reserve.tokens):
                        # The time that it waited for a slot does not count.
                        give_up = min(give_up, time.monotonic() + self.retry.deadline)
                        answer, seconds = await self._attempt(attempt, call)
                finally:
                    self.budget.settle(reserve, call.spent)
            except CallError as error:
                call.failures += 1
                call.error = str(error)
                pause = self._pause(error, call.failures, limiter, jitter)
                if pause is None or time.monotonic() + pause > give_up:
                    raise
                self.retried += 1
                event(
                    INFO,
                    "retry",
                    service=request.service,
                    agent=call.facts.who,
                    call=call.name,
                    failures=call.failures,
                    fault=error.fault,
                    error=str(error),
                    pause=round(pause, 3),
                )
                await asyncio.sleep(pause)
            else:
                limiter.succeeded()
                return await self._record_answer(call, attempt, answer, seconds)

    async def _record_answer(
        self, call: Call, attempt: Recorded, answer: Answer, seconds: float
    ) -> Answer:
        """Record an answer; return it as a replay would: lists for tuples, secrets hidden."""
        text = hidden_bytes(_encode(answer.data))
        data = _decode(text)
        facts = call.facts._replace(
            seconds=seconds,
            attempts=call.failures + 1,
            estimated=answer.estimated,
            at=time.time() - seconds,
        )
        row = attempt._replace(
            key=call.name,
            answer=data,
            usage=answer.usage,
            kind="answer",
            facts=facts,
            ends=attempt.key,
            text=text.decode(),
            computed=call.request.computed,
        )
        await self.journal.add(row, wait=not call.request.computed)
        return Answer(data, answer.usage, answer.estimated)

    async def _attempt(self, attempt: Recorded, call: Call) -> tuple[Answer, float]:
        """Return the answer of one attempt and its seconds; `call.spent` says what it spent."""
        reserve, request = call.reserve, call.request
        wait = not request.computed
        try:
            # On record before it is made: a crash must not lose what it may have spent.
            if self.journal.keeps_attempts and reserve != NO_USAGE:
                await self.journal.add(attempt, wait)
            # A call that never answers may have spent all that was reserved for it.
            call.spent = reserve
            outer = inside.set(True)
            began = time.monotonic()
            try:
                work = call.do()
                if not isinstance(work, Coroutine):
                    work = _awaited(work)
                answer = await result_of(work, request.timeout, request.service)
            finally:
                inside.reset(outer)
            check_paid(answer.usage)
            call.spent = answer.usage
            self._warn_if_over(answer.usage, reserve, request.service)
            return answer, time.monotonic() - began
        except TimeoutError:
            await self.journal.add(_without_answer(attempt, "timeout", reserve), wait)
            raise CallError(
                f"{request.service}: no answer within {request.timeout:g} s", "transient"
            ) from None
        except CallError as error:
            actual = error.spent or NO_USAGE
            check_paid(actual)
            call.spent = actual
            free = actual == NO_USAGE
            row = ended(attempt.key) if free else _without_answer(attempt, "billed", actual)
            await self.journal.add(row, wait)
            raise
        except asyncio.CancelledError:
            # Not awaited. If the row is not written any more, the attempt counts as lost.
            if request.lasting:
                call.spent = NO_USAGE
            unsent = call.spent == NO_USAGE
            self.journal.add_soon(
                ended(attempt.key) if unsent else _without_answer(attempt, "cut", reserve)
            )
            raise
        except BaseException:
            await self.journal.add(_without_answer(attempt, "cut", call.spent), wait)
            raise

    def _warn_if_over(self, actual: Usage, reserve: Usage, service: str) -> None:
        """Log once for each service that a call spent more than was reserved for it."""
        if service in self._over_reserve or reserve == NO_USAGE:
            return
        spent, reserved = astuple(actual)[:4], astuple(reserve)[:4]
        # An unknown price (NaN) is never more.
        if not any(used > limit * _ROUNDING for used, limit in zip(spent, reserved, strict=True)):
            return
        self._over_reserve.add(service)
        logging.getLogger("orchestrion").warning(
            "%s took %s, more than the %s that were reserved for a call; all of it is booked, but "
            "such calls can exceed the budget by the difference. Tell what a call takes at most",
            service,
            _in_words(actual),
            _in_words(reserve),
        )

    def _pause(
        self, error: CallError, failures: int, limiter: ServiceLimiter, jitter: Key
    ) -> float | None:
        """Return the seconds until the next attempt, or None to give up.

        Raises:
            BudgetError: the account is empty, or the service asks to wait for very long.
        """
        retry = self.retry
        if error.fault == "quota":
            raise BudgetError(f"{error}; the run can be resumed") from error
        if error.fault == "permanent" or failures >= retry.attempts:
            return None
        if error.fault == "malformed" and failures >= retry.malformed_attempts:
            return None
        base = retry.overload_base if error.fault == "overload" else retry.base
        # "Full jitter": uniform between zero and the exponential.
        pause = jitter.child(failures).uniform() * min(retry.cap, base * 2.0**failures)
        hint = error.retry_after
        if hint is not None and math.isfinite(hint) and hint > 0:
            if hint > retry.hint_cap:
                # Every call until then would fail as well.
                raise BudgetError(
                    f"{error}; the service asks to wait {hint:.0f} s; the run can be resumed then"
                ) from error
            # A little longer than asked, or all who wait return at the same moment.
            more = _HINT_JITTER * jitter.child("hint", failures).uniform()
            pause = max(pause, hint * (1 + more))
        if error.fault == "rate_limit":
            limiter.rate_limited(pause)
        return pause


async def _awaited(work: Awaitable[Answer]) -> Answer:
    return await work


def _without_answer(attempt: Recorded, kind: Kind, usage: Usage) -> Recorded:
    """Return the row of an attempt that gave no answer and spent this, or may have."""
    return attempt._replace(
        key=f"{attempt.key}!{kind}",
        usage=usage,
        kind=kind,
        facts=attempt.facts._replace(estimated=True),
        ends=attempt.key,
    )


def _in_words(usage: Usage) -> str:
    """Return a usage as words; US dollars only if they are known."""
    usd = "" if math.isnan(usage.usd) else f", {usage.usd:g} US dollars"
    return f"{usage.input_tokens} input and {usage.output_tokens} output tokens{usd}"
