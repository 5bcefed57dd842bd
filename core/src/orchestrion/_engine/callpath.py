"""The one call path: everything that costs something goes through it.

    journal -> caches -> attempts (see `attempts`) -> journal

`CallPath` makes calls and records them. `ReplayPath` (see `replaying`) overrides what a replay
takes from the record: answers, which turns were late, and the completion order.
"""

from __future__ import annotations

import time
from functools import partial

import msgspec

from orchestrion._engine.attempts import Attempts, Call, RetrySettings
from orchestrion._engine.budget import Budget
from orchestrion._engine.completion import CompletionOrder
from orchestrion._engine.recording import (
    AnswerCache,
    Booked,
    Facts,
    Failure,
    Journal,
    JournalWriter,
    Recorded,
    answer_of,
    place_of,
)
from orchestrion._engine.reuse import Reuse
from orchestrion._errors import CallError
from orchestrion._interfaces import Answer
from orchestrion._keys import Key
from orchestrion._records import NO_USAGE, Usage


class CallPath:
    """Makes and records the calls of a run: journal, caches, budget, limits, retries.

    By default nothing is capped, recorded or shared. `cache` keeps answers for requests with a true
    `Request.cache` beyond this process, `shared` has answers of earlier runs for requests whose
    `Request.cache` is not False, `booked` the pure results that earlier parts of the run booked.
    """

    def __init__(
        self,
        budget: Budget | None = None,
        journal: Journal | None = None,
        cache: AnswerCache | None = None,
        retry: RetrySettings | None = None,
        shared: Journal | None = None,
        booked: Booked | None = None,
    ) -> None:
        self.budget = budget or Budget()
        self.reuse, self._booked = Reuse(), booked or Booked()
        self.journal = JournalWriter(journal)
        self._attempts = Attempts(self.budget, self.journal, retry or RetrySettings())
        self._cache, self._shared = cache, JournalWriter(shared)
        self._answers = Reuse()
        self._in_flight = Reuse(0)  # keeps no results: the journal does

    @property
    def retried(self) -> int:
        """Attempts that came after a failed one."""
        return self._attempts.retried

    def waits(self) -> dict[str, float]:
        """Return the seconds that calls waited for the limits of each service."""
        limiters = sorted(self.budget.limiters.items())
        return {name: limiter.waited for name, limiter in limiters}

    async def drain(self) -> None:
        """Return when all rows are durable or have failed, however the run ended."""
        await self.journal.drain()
        await self._shared.drain()

    async def settle(self) -> None:
        """Return when all rows are durable, also those of `Request.computed`."""
        await self.journal.settle()
        await self._shared.settle()

    async def run(self, call: Call) -> Answer:
        """Return the answer of a call, recorded or new.

        Raises:
            CallError: the call failed for good.
            BudgetError: the budget does not cover it.
        """
        recorded = None if call.request.computed else self.journal.get(call.name)
        if recorded is not None:
            return answer_of(recorded)
        answer: Answer = await self._in_flight.get(call.name, partial(self._answer, call))
        return answer

    async def _answer(self, call: Call) -> Answer:
        """Return the answer of a call that is not on record yet; record it, or its failure."""
        try:
            if call.request.cache:
                return await self._from_run(call)
            return await self._from_earlier_runs(call)
        except CallError as error:
            answer = [str(error), error.fault, error.retry_after]
            facts = call.facts._replace(attempts=call.failures, at=time.time())
            row = Recorded(f"{call.name}/failed", call.digest, answer, NO_USAGE, "failed", facts)
            await self._record(call, row)
            raise

    async def _from_run(self, call: Call) -> Answer:
        """Return the answer of an equal call of this run; without one, `_from_earlier_runs`."""
        is_new = False

        async def ask() -> Answer:
            nonlocal is_new
            recorded = self._cache.get(call.digest) if self._cache is not None else None
            if recorded is not None:
                return Answer(recorded.answer, recorded.usage)
            is_new = True
            answer = await self._from_earlier_runs(call)
            if self._cache is not None:
                self._cache.put(Recorded(call.digest, call.digest, answer.data, answer.usage))
            return answer

        answer: Answer = await self._answers.get(call.digest, ask)
        if not is_new:
            await self._record_cached(call, answer)
        return answer

    async def _from_earlier_runs(self, call: Call) -> Answer:
        """Return the answer of an equal call of another run; without one, make the call."""
        if call.request.cache is False:
            return await self._attempts.answer(call)
        recorded = self._shared.get(call.digest)
        if recorded is not None:
            answer = answer_of(recorded)
            await self._record_cached(call, answer)
            return answer
        answer = await self._attempts.answer(call)
        facts = Facts(estimated=answer.estimated)
        row = Recorded(call.digest, call.digest, answer.data, answer.usage, facts=facts)
        await self._shared.add(row, wait=not call.request.computed)
        return answer

    async def _record_cached(self, call: Call, answer: Answer) -> None:
        facts = call.facts._replace(estimated=answer.estimated, attempts=0, at=time.time())
        row = Recorded(call.name, call.digest, answer.data, answer.usage, "cached", facts)
        await self._record(call, row)

    async def _record(self, call: Call, row: Recorded) -> None:
        row = row._replace(pieces=self.journal.pieces(call.request))
        await self.journal.add(row, wait=not call.request.computed)

    def time_limit(self, seconds: float | None) -> float | None:
        """Return the limit to enforce where `seconds` is configured; a replay returns None."""
        return seconds

    def late(self, episode: str, key: Key) -> Failure | None:
        """Return the record of a turn or judgement that must be late again; None in a live run."""
        return None

    async def record_late(self, episode: str, key: Key, failure: Failure, facts: Facts) -> None:
        """Record that a turn or judgement exceeded its time limit, for a replay.

        Its calls count as spent by their own rows.
        """
        answer = [failure.message, list(msgspec.structs.astuple(failure.usage)), list(failure.made)]
        place = f"{place_of(episode, key)}/late"
        await self.journal.add(Recorded(place, "late", answer, NO_USAGE, "late", facts))

    def completion_order(self, episode: str, key: Key) -> CompletionOrder:
        """Return what decides the completion order of a loop."""
        return CompletionOrder(self.journal, episode, key)

    async def state(self, usage: Usage, who: str, stage: str, result: str = "") -> None:
        """Book the usage that a turn reports beside its calls; durable when this returns."""
        if self.book(usage, result):
            # One row for all turns of an agent in a stage: the journal adds usage to it.
            place = f"stated:{stage}:{who}"
            facts = Facts(who=who, stage=stage)
            await self.journal.add(Recorded(place, "stated", None, usage, "stated", facts))
        self.budget.check()

    def book(self, usage: Usage, result: str = "") -> bool:
        """Book usage that a turn reports beside its calls, as `Budget.charge`.

        `result` names the pure result it was spent on, if it was one. That is booked once in a run,
        though several workers may compute it, unless it costs money or counts against a cap.
        """
        if result and not self.budget.counts(usage) and not self._booked.add(result):
            return False
        return self.budget.charge(usage)
