"""The one path on which anything that costs is done.

    journal -> cache -> budget reservation -> limiter -> journal -> attempt (deadline) -> settle
    -> journal

A call has its reservation before it takes a place in its service, so that whoever holds a place
never waits for money that another call holds while it waits for that place.

Retries live here and nowhere else: plugins say what kind of fault it was.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from math import isfinite
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import msgspec
from attrs import astuple, frozen

from orchestrion._engine.budget import Budget, inside
from orchestrion._engine.checks import check_paid
from orchestrion._engine.deadline import Deadline
from orchestrion._engine.limiter import ServiceLimiter
from orchestrion._engine.pieces import cut
from orchestrion._engine.recording import Batch, Facts, Journal, Kind, Recorded, ended
from orchestrion._engine.reuse import Reuse, digest
from orchestrion._errors import BudgetError, CallError, ReplayError, RunError
from orchestrion._interfaces import Agent, Answer, Policy, Request, View
from orchestrion._keys import Key
from orchestrion._records import JSON, NO_USAGE, Trajectory, Usage
from orchestrion._secrets import hidden_bytes

if TYPE_CHECKING:
    from orchestrion._engine.episode import Engine

__all__ = ["ActivationCalls", "CallPath", "Facts", "Journal", "Recorded", "RetrySettings"]


_encode, _decode = msgspec.json.encode, msgspec.json.decode


_ROUNDING = 1 + 1e-9


class _Paid:
    """What an attempt has taken so far, or may have."""

    __slots__ = ("usage",)

    def __init__(self) -> None:
        self.usage = NO_USAGE


class AnswerCache(Protocol):
    """Answers that outlive a run's iterations, by request digest."""

    def get(self, key: str) -> Recorded | None: ...
    def put(self, row: Recorded) -> None: ...


class SharedCache(Protocol):
    """Answers that runs share, by request digest."""

    def get(self, key: str) -> Recorded | None: ...
    def put_many(self, rows: list[Recorded]) -> None: ...


class Shares(NamedTuple):
    """Answers that runs share, and those on their way there."""

    answers: SharedCache
    rows: Batch


@frozen
class RetrySettings:
    """How often and how patiently a failed call is tried again. Times in seconds."""

    attempts: int = 6
    malformed_attempts: int = 3
    deadline: float = 900.0
    base: float = 0.5
    overload_base: float = 2.0
    cap: float = 60.0
    hint_cap: float = 300.0


class CallPath:
    """What all activations of a run share: limiters, budget, cache, journal, reuse.

    Args:
        budget: the run's; without one nothing is capped.
        journal: without one nothing is recorded.
        cache: without one `Request.cache` is kept in memory only.
        replay: answer from the journal alone; a call that is not in it is a `ReplayError`.
        retry: see `RetrySettings`.
        shared: answers of earlier runs, for requests whose `Request.cache` is not False.
    """

    def __init__(
        self,
        budget: Budget | None = None,
        journal: Journal | None = None,
        cache: AnswerCache | None = None,
        replay: bool = False,
        retry: RetrySettings | None = None,
        shared: SharedCache | None = None,
    ) -> None:
        self.budget = budget or Budget()
        self.reuse = Reuse()
        self.retry = retry or RetrySettings()
        self.replay = replay
        self._journal, self._cache = journal, cache
        self._answers = Reuse()
        self._under_way = Reuse(0)  # remembers nothing that is over: the journal does
        self._limiters: dict[str, ServiceLimiter] = {}
        self._rows = None if journal is None or replay else Batch(journal.put_many)
        self._attempts = self._rows if getattr(journal, "keeps_attempts", False) else None
        self._shared = None if shared is None else Shares(shared, Batch(shared.put_many))
        self._deadlines: dict[float, Deadline] = {}
        self.retried = 0
        self._dearer: set[str] = set()
        """Services that took more than their calls could, which was said."""
        self._tried: dict[str, int] = {}
        """How many attempts there were at what has just failed for good."""

    def limiter(self, request: Request) -> ServiceLimiter:
        """The limiter of a request's service."""
        found = self._limiters.get(request.service)
        if found is None:
            found = self._limiters[request.service] = ServiceLimiter(request.limits)
        return found

    def waits(self) -> dict[str, float]:
        """Seconds that calls waited for each service's limits, all together."""
        return {name: one.waited for name, one in sorted(self._limiters.items())}

    def arrival(self, scope: str) -> list[int] | None:
        """The turns that arrived first at a place in the run, if that is on record.

        Raises:
            ReplayError: this is a replay, and it is not.
        """
        recorded = self._known(scope)
        if recorded is None:
            if self.replay:
                raise ReplayError(f"no recorded order of arrival at {scope}")
            return None
        arrived: list[int] = recorded.answer
        return arrived

    async def arrived(self, scope: str, turns: Sequence[int]) -> None:
        """Record which turns arrived first, before anything is decided by it."""
        await self._record(Recorded(scope, "arrival", list(turns), NO_USAGE, "arrival"))

    def order(self, scope: str) -> dict[int, list[int]]:
        """In a replay, which turns ended first after a decision, where nothing hung on it."""
        recorded = self._known(scope)
        return {} if recorded is None else dict(recorded.answer)

    async def ordered(self, scope: str, order: Mapping[int, Sequence[int]]) -> None:
        """Record such an order, if there is one or another one is on record."""
        if order or self._known(scope) is not None:
            answer = [[count, list(turns)] for count, turns in order.items()]
            await self._record(Recorded(scope, "order", answer, NO_USAGE, "arrival"))

    def lateness(self, scope: str) -> tuple[str, Usage, tuple[str, ...]] | None:
        """In a replay, what a turn said, took and called that was too late in the recorded run."""
        recorded = self._known(f"{scope}/late") if self.replay else None
        if recorded is None:
            return None
        message, usage, made = recorded.answer
        return message, Usage(*usage), tuple(made)

    async def late(
        self, scope: str, message: str, usage: Usage, facts: Facts, made: Sequence[str] = ()
    ) -> None:
        """Record that a turn took too long, which no clock of a replay would show.

        `usage` is what its calls took; it is on their own records that it counts as spent. `made`
        names them.
        """
        answer = [message, list(astuple(usage)), list(made)]
        await self._record(Recorded(f"{scope}/late", "late", answer, NO_USAGE, "late", facts))

    async def state(self, usage: Usage, who: str, stage: str) -> None:
        """Book what a turn states that it took beside its calls; durable when this returns.

        Raises:
            BudgetError: a cap is passed.
        """
        if self.budget.charge(usage) and self._rows is not None:
            # One row for all turns of an agent in a stage: what is recorded again adds up.
            key = f"stated:{stage}:{who}"
            facts = Facts(who=who, stage=stage)
            await self._rows.add(Recorded(key, "stated", None, usage, "stated", facts))
        self.budget.check()

    async def drain(self) -> None:
        """Return when all that was to be recorded is durable, however the run ended."""
        for rows in (self._rows, None if self._shared is None else self._shared.rows):
            if rows is not None:
                await rows.drain()

    def _known(self, key: str) -> Recorded | None:
        return self._journal.get(key) if self._journal is not None else None

    async def run(
        self,
        scope: str,
        request: Request,
        do: Callable[[], Awaitable[Answer]],
        reserve: Usage,
        who: str = "",
        stage: str = "",
        made: list[str] | None = None,
    ) -> Answer:
        """One call.

        Args:
            scope: names it within the run: equal in every repetition of the run. Two calls may
                share it (episodes that are compared have common keys): those that ask the same are
                one call, and others are told apart by what they ask.
            request: see `Calls.run`.
            do: likewise.
            reserve: likewise.
            who: on whose behalf, for reports.
            stage: the part of the run, likewise.
            made: is added the call's name on record.
        """
        name = digest(request.service, request.version, request.content, request.sample)
        key = f"{scope}:{name}"
        if made is not None:
            made.append(key)
        recorded = self._known(key)
        if recorded is not None:
            return Answer(recorded.answer, recorded.usage, recorded.facts.estimated)
        if self.replay:
            self._fail_as_recorded(key)
        facts = Facts(request.service, who, stage)

        async def ask() -> Answer:
            return await self._asked(key, name, request, do, reserve, facts)

        result: Answer = await self._under_way.get(key, ask)
        return result

    async def _asked(
        self,
        key: str,
        name: str,
        request: Request,
        do: Callable[[], Awaitable[Answer]],
        reserve: Usage,
        facts: Facts,
    ) -> Answer:
        async def live() -> Answer:
            return await self._live(key, name, request, do, reserve, facts)

        async def fresh() -> Answer:
            if request.cache is False or self._shared is None or self.replay:
                return await live()
            return await self._sharing(self._shared, key, name, request, live, facts)

        try:
            if not request.cache:
                return await fresh()
            known_here = True

            async def answer() -> Answer:
                nonlocal known_here
                known = self._cache.get(name) if self._cache is not None else None
                if known is not None:
                    return Answer(known.answer, known.usage)
                known_here = False
                given = await fresh()
                if self._cache is not None:
                    self._cache.put(Recorded(name, name, given.data, given.usage))
                return given

            result: Answer = await self._answers.get(name, answer)
            if known_here:
                await self._record_cached(key, name, request, result, facts)
            return result
        except CallError as error:
            facts = facts._replace(attempts=self._tried.pop(key, 0))
            told = [str(error), error.fault, error.retry_after]
            row = Recorded(f"{key}/failed", name, told, NO_USAGE, "failed", facts)
            await self._record(row._replace(pieces=self._pieces(request)))
            raise

    async def _sharing(
        self,
        shared: Shares,
        key: str,
        name: str,
        request: Request,
        live: Callable[[], Awaitable[Answer]],
        facts: Facts,
    ) -> Answer:
        """The answer that an earlier run got, or one of now, for later runs."""
        known = shared.answers.get(name)
        if known is not None:
            answer = Answer(known.answer, known.usage, known.facts.estimated)
            await self._record_cached(key, name, request, answer, facts)
            return answer
        answer = await live()
        told = Facts(estimated=answer.estimated)
        await shared.rows.add(Recorded(name, name, answer.data, answer.usage, facts=told))
        return answer

    async def _record_cached(
        self, key: str, name: str, request: Request, answer: Answer, facts: Facts
    ) -> None:
        facts = facts._replace(estimated=answer.estimated, attempts=0)
        row = Recorded(key, name, answer.data, answer.usage, "cached", facts)
        await self._record(row._replace(pieces=self._pieces(request)))

    def _pieces(self, request: Request) -> tuple[bytes, ...]:
        """What is asked, as it is now, for the record."""
        # Asked each time: what a run keeps can be lowered while it is open.
        if self._rows is None or not getattr(self._journal, "keeps_requests", False):
            return ()
        return cut(request.content if request.shown is None else request.shown)

    def _fail_as_recorded(self, key: str) -> None:
        """In a replay, a call that failed for good fails again in the same way."""
        recorded = self._known(f"{key}/failed")
        if recorded is not None:
            raise CallError(*recorded.answer)

    async def _live(
        self,
        scope: str,
        name: str,
        request: Request,
        do: Callable[[], Awaitable[Answer]],
        reserve: Usage,
        facts: Facts,
    ) -> Answer:
        if self.replay:
            raise ReplayError(
                f"no recorded call to {request.service} at {scope}: it was not made in the "
                "recorded run, or asks something else now; the config, a plugin or its version "
                "has changed since"
            )
        limiter = self.limiter(request)
        give_up = math.inf
        failures = 0
        pieces = self._pieces(request)
        while True:
            attempt = Recorded(
                *(f"{scope}#{failures}", name, None, reserve, "started", facts), pieces=pieces
            )
            try:
                await self.budget.reserve(reserve, request.service)
                paid = _Paid()  # nothing, as long as nothing was sent
                try:
                    async with limiter.slot(reserve.tokens):
                        # Waiting for a place is no fault of the call.
                        give_up = min(give_up, time.monotonic() + self.retry.deadline)
                        answer, seconds = await self._attempt(attempt, request, do, paid)
                finally:
                    self.budget.settle(reserve, paid.usage)
            except CallError as error:
                failures += 1
                pause = self._pause(error, failures, limiter, Key(scope.encode()[:16]))
                if pause is None or time.monotonic() + pause > give_up:
                    self._tried[scope] = failures
                    raise
                self.retried += 1
                await asyncio.sleep(pause)
            else:
                limiter.succeeded()
                # As a replay would give it: tuples are lists, keys are text, secrets are hidden.
                text = hidden_bytes(_encode(answer.data))
                data = _decode(text)
                answer = Answer(data, answer.usage, answer.estimated)
                facts = Facts(
                    *(request.service, facts.who, facts.stage),
                    *(seconds, failures + 1, answer.estimated),
                )
                row = Recorded(
                    *(scope, name, data, answer.usage, "answer", facts, attempt.key),
                    *(text.decode(), pieces),
                )
                await self._record(row)
                return answer

    async def _attempt(
        self, attempt: Recorded, request: Request, do: Callable[[], Awaitable[Answer]], paid: _Paid
    ) -> tuple[Answer, float]:
        """What one attempt gives, and how many seconds that took; `paid` says what it took."""
        reserve = attempt.usage
        try:
            # On record before it is made: a crash must not lose what it was paid for.
            if self._attempts is not None and reserve != NO_USAGE:
                await self._attempts.add(attempt)
            # What a call that never answers may have taken is its reservation.
            paid.usage = reserve
            outer = inside.set(True)
            began = time.monotonic()
            try:
                answer = await self._in_time(do, request)
            finally:
                inside.reset(outer)
            check_paid(answer.usage)
            paid.usage = answer.usage
            self._compare(answer.usage, reserve, request.service)
            return answer, time.monotonic() - began
        except TimeoutError:
            await self._record(_spent(attempt, "timeout", reserve))
            raise CallError(
                f"{request.service}: no answer within {request.timeout:g} s", "transient"
            ) from None
        except CallError as error:
            actual = error.spent or NO_USAGE
            check_paid(actual)
            paid.usage = actual
            billed = actual != NO_USAGE
            await self._record(_spent(attempt, "billed", actual) if billed else ended(attempt.key))
            raise
        except asyncio.CancelledError:
            # Not waited for: if it is not written any more, the attempt counts as lost.
            if self._rows is not None:
                sent = paid.usage != NO_USAGE
                self._rows.add(_spent(attempt, "cut", reserve) if sent else ended(attempt.key))
            raise
        except BaseException:
            await self._record(_spent(attempt, "cut", paid.usage))
            raise

    def _compare(self, actual: Usage, reserve: Usage, service: str) -> None:
        """Warn once of a service that takes more than its calls can take."""
        if service in self._dearer or reserve == NO_USAGE:
            return
        if (
            actual.calls <= reserve.calls
            and actual.input_tokens <= reserve.input_tokens
            and actual.output_tokens <= reserve.output_tokens
            and not actual.usd > reserve.usd * _ROUNDING
        ):
            return
        self._dearer.add(service)
        logging.getLogger("orchestrion").warning(
            "%s says that a call took %d calls, %d tokens of input, %d of output and %g US "
            "dollars, and it could take %d, %d, %d and %g at most: that is booked, but the budget "
            "can be passed by what such calls take too much",
            service,
            *(actual.calls, actual.input_tokens, actual.output_tokens, actual.usd),
            *(reserve.calls, reserve.input_tokens, reserve.output_tokens, reserve.usd),
        )

    async def _in_time(self, do: Callable[[], Awaitable[Answer]], request: Request) -> Answer:
        """What `do` gives, or TimeoutError. Calls with one limit share a timer."""
        work = do()
        if not isinstance(work, Coroutine):
            work = _awaited(work)
        try:
            waits_for = work.send(None)
        except StopIteration as stop:
            done: Answer = stop.value
            return done
        deadline = self._deadlines.get(request.timeout)
        if deadline is None:
            deadline = self._deadlines[request.timeout] = Deadline(request.timeout)
        return await deadline.within(work, waits_for, request.service)

    def _pause(
        self, error: CallError, failures: int, limiter: ServiceLimiter, jitter: Key
    ) -> float | None:
        """Seconds until the next attempt; None means give up."""
        retry = self.retry
        if error.fault == "quota":
            raise BudgetError(f"{error}; the run can be resumed") from error
        if error.fault == "permanent" or failures >= retry.attempts:
            return None
        if error.fault == "malformed" and failures >= retry.malformed_attempts:
            return None
        base = retry.overload_base if error.fault == "overload" else retry.base
        # "Full jitter": uniform between nothing and the exponential.
        pause = jitter.child(failures).uniform() * min(retry.cap, base * 2.0**failures)
        hint = error.retry_after
        if hint is not None and isfinite(hint) and hint > 0:
            if hint > retry.hint_cap:
                # Every later call would fail as well, for hours.
                raise BudgetError(
                    f"{error}; the service asks to wait {hint:.0f} s; the run can be resumed then"
                ) from error
            # A little later than asked, or all who wait come back at the same moment.
            pause = max(pause, hint * (1 + 0.1 * jitter.child("hint", failures).uniform()))
        if error.fault == "rate_limit":
            limiter.rate_limited(pause)
        return pause

    async def _record(self, row: Recorded) -> None:
        """Make a row durable; those that are ready together share one commit."""
        if self._rows is not None:
            await self._rows.add(row)


async def _awaited(work: Awaitable[Answer]) -> Answer:
    return await work


def _spent(attempt: Recorded, kind: Kind, usage: Usage) -> Recorded:
    """An attempt that gave no answer and was paid, or may have been."""
    facts = attempt.facts._replace(estimated=True)
    key = f"{attempt.key}!{kind}"
    return Recorded(
        *(key, attempt.request, None, usage, kind, facts, attempt.key), pieces=attempt.pieces
    )


class ActivationCalls:
    """The call path as one activation, verifier or reward function sees it (`Calls`)."""

    __slots__ = ("_engine", "_episode", "_key", "_label", "_next", "_scope", "made", "used", "who")

    def __init__(
        self,
        engine: Engine,
        key: Key,
        scope: str | None = None,
        who: str = "",
        label: str | None = None,
        episode: str = "",
        made: list[str] | None = None,
    ) -> None:
        self._engine, self._key, self._scope = engine, key, scope
        self.who, self._label, self._episode = who, label, episode
        self._next = 0
        self.used = NO_USAGE
        """What went through this handle so far."""
        self.made: list[str] = [] if made is None else made
        """Names of the calls, in order; those of two handles if they share the list."""

    @property
    def watched(self) -> bool:
        """See `Calls.watched`."""
        return self._engine.viewer is not None

    def show(self, text: str) -> None:
        """See `Calls.show`."""
        if self._engine.viewer is not None:
            self._engine.viewer(self._label or self.who, text)

    async def run(
        self,
        request: Request,
        do: Callable[[], Awaitable[Answer]],
        reserve: Usage = NO_USAGE,
    ) -> Answer:
        """See `Calls.run`."""
        # Taken before the first await: calls are numbered in the order they are made.
        index, self._next = self._next, self._next + 1
        scope = self._scope or self._key.hex()
        engine = self._engine
        answer = await engine.calls.run(
            f"{scope}/{index}", request, do, reserve, self.who, engine.stage, self.made
        )
        self.used = self.used + answer.usage
        return answer

    async def reuse(self, content: JSON, do: Callable[[], Awaitable[Any]]) -> Any:
        """See `Calls.reuse`."""
        return await self._engine.calls.reuse.get(digest(content), do)

    async def team(
        self,
        view: View,
        key: Key,
        members: Mapping[str, Agent],
        policy: Policy,
        turns: int | None = None,
    ) -> Trajectory:
        """See `Calls.team`."""
        trajectory, error = await self._engine.nested(
            view, key, members, policy, turns, self.who, self._label, self._episode
        )
        for turn in trajectory.turns:
            self.used = self.used + turn.usage
        if error:
            raise RunError(error)
        return trajectory
