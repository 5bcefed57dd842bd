"""The one path on which anything that costs is done.

    journal -> cache -> limiter -> budget reservation -> attempt (deadline) -> settle -> journal

Retries live here and nowhere else: plugins say what kind of fault it was.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from math import isfinite
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from attrs import frozen

from orchestrion.engine.budget import Budget
from orchestrion.engine.limiter import ServiceLimiter
from orchestrion.engine.reuse import Reuse, digest
from orchestrion.errors import BudgetError, CallError, ReplayError, RunError
from orchestrion.interfaces import Agent, Answer, Policy, Request, View
from orchestrion.keys import Key
from orchestrion.records import JSON, NO_USAGE, Trajectory, Usage

if TYPE_CHECKING:
    from orchestrion.engine.episode import Engine

__all__ = ["ActivationCalls", "CallPath", "Journal", "Recorded", "RetrySettings"]


@frozen
class Recorded:
    """A call as the journal holds it. `answer` is None for an attempt that gave none."""

    key: str
    request: str
    answer: JSON
    usage: Usage


class Journal(Protocol):
    """Where calls are recorded, durably, before their answers are used."""

    def get(self, key: str) -> Recorded | None: ...
    def put_many(self, rows: list[Recorded]) -> None: ...


class AnswerCache(Protocol):
    """Answers that outlive a run's iterations, by request digest."""

    def get(self, key: str) -> Recorded | None: ...
    def put(self, row: Recorded) -> None: ...


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
    """

    def __init__(
        self,
        budget: Budget | None = None,
        journal: Journal | None = None,
        cache: AnswerCache | None = None,
        replay: bool = False,
        retry: RetrySettings | None = None,
    ) -> None:
        self.budget = budget or Budget()
        self.reuse = Reuse()
        self.retry = retry or RetrySettings()
        self._journal, self._cache, self._replay = journal, cache, replay
        self._answers = Reuse()
        self._limiters: dict[str, ServiceLimiter] = {}
        self._batch: tuple[list[Recorded], asyncio.Future[None]] | None = None
        self._flushing: asyncio.Task[None] | None = None
        self.retried = 0

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
        recorded = self._journal.get(scope) if self._journal is not None else None
        if recorded is None:
            if self._replay:
                raise ReplayError(f"no recorded order of arrival at {scope}")
            return None
        arrived: list[int] = recorded.answer
        return arrived

    async def arrived(self, scope: str, turns: Sequence[int]) -> None:
        """Record which turns arrived first, before anything is decided by it."""
        await self._record(Recorded(scope, "arrival", list(turns), NO_USAGE))

    async def run(
        self, scope: str, request: Request, do: Callable[[], Awaitable[Answer]], reserve: Usage
    ) -> Answer:
        """One call. `scope` names it within the run: equal in every repetition of the run."""
        name = digest(request.service, request.version, request.content, request.sample)
        recorded = self._journal.get(scope) if self._journal is not None else None
        if recorded is not None:
            if recorded.request != name:
                raise ReplayError(
                    f"the call to {request.service} at {scope} differs from the recorded one; "
                    "the config, a plugin or its version has changed since"
                )
            return Answer(recorded.answer, recorded.usage)
        if not request.cache:
            return await self._live(scope, name, request, do, reserve)

        async def answer() -> Answer:
            known = self._cache.get(name) if self._cache is not None else None
            if known is not None:
                return Answer(known.answer, known.usage)
            fresh = await self._live(scope, name, request, do, reserve)
            if self._cache is not None:
                self._cache.put(Recorded(name, name, fresh.data, fresh.usage))
            return fresh

        result: Answer = await self._answers.get(name, answer)
        return result

    async def _live(
        self,
        scope: str,
        name: str,
        request: Request,
        do: Callable[[], Awaitable[Answer]],
        reserve: Usage,
    ) -> Answer:
        if self._replay:
            raise ReplayError(f"no recorded call to {request.service} at {scope}")
        limiter = self.limiter(request)
        give_up = time.monotonic() + self.retry.deadline
        failures = 0
        jitter = Key(scope.encode()[:16])
        while True:
            try:
                async with limiter.slot(reserve.tokens):
                    answer = await self._attempt(f"{scope}#{failures}", name, request, do, reserve)
            except CallError as error:
                failures += 1
                pause = self._pause(error, failures, limiter, jitter)
                if pause is None or time.monotonic() + pause > give_up:
                    raise
                self.retried += 1
                await asyncio.sleep(pause)
            else:
                limiter.succeeded()
                # As a replay would give it: tuples are lists, keys are text.
                data = msgspec.json.decode(msgspec.json.encode(answer.data))
                answer = Answer(data, answer.usage)
                await self._record(Recorded(scope, name, answer.data, answer.usage))
                return answer

    async def _attempt(
        self,
        scope: str,
        name: str,
        request: Request,
        do: Callable[[], Awaitable[Answer]],
        reserve: Usage,
    ) -> Answer:
        self.budget.reserve(reserve)
        # What a call that never answers may have taken is its reservation.
        actual = reserve
        try:
            async with asyncio.timeout(request.timeout):
                answer = await do()
            actual = answer.usage
            return answer
        except TimeoutError:
            await self._record(Recorded(scope, name, None, reserve))
            raise CallError(
                f"{request.service}: no answer within {request.timeout:g} s", "transient"
            ) from None
        except CallError:
            actual = NO_USAGE
            raise
        finally:
            self.budget.settle(reserve, actual)

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
                return None
            pause = max(pause, hint)
        if error.fault == "rate_limit":
            limiter.rate_limited(pause)
        return pause

    async def _record(self, row: Recorded) -> None:
        """Make a call durable; calls that are ready together share one commit."""
        if self._journal is None:
            return
        if self._batch is None:
            self._batch = ([], asyncio.get_running_loop().create_future())
        rows, done = self._batch
        rows.append(row)
        if self._flushing is None:
            self._flushing = asyncio.create_task(self._flush(self._journal))
        # A cancelled caller must not take the others' commit with it.
        await asyncio.shield(done)

    async def _flush(self, journal: Journal) -> None:
        try:
            while self._batch is not None:
                (rows, done), self._batch = self._batch, None
                try:
                    await asyncio.to_thread(journal.put_many, rows)
                except BaseException as error:
                    done.set_exception(error)
                    done.exception()  # those who waited may be gone
                    if not isinstance(error, Exception):
                        raise
                else:
                    done.set_result(None)
        finally:
            self._flushing = None


class ActivationCalls:
    """The call path as one activation, verifier or reward function sees it (`Calls`)."""

    __slots__ = ("_engine", "_key", "_next", "_scope", "used")

    def __init__(self, engine: Engine, key: Key, scope: str | None = None) -> None:
        self._engine, self._key, self._scope = engine, key, scope
        self._next = 0
        self.used = NO_USAGE
        """What went through this handle so far."""

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
        answer = await self._engine.calls.run(f"{scope}/{index}", request, do, reserve)
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
        trajectory, error = await self._engine.nested(view, key, members, policy, turns)
        for turn in trajectory.turns:
            self.used = self.used + turn.usage
        if error:
            raise RunError(error)
        return trajectory
