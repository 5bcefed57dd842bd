"""The call path of a replay: answers, lateness and completion order as they were recorded."""

from __future__ import annotations

from orchestrion._engine.attempts import Call
from orchestrion._engine.callpath import CallPath
from orchestrion._engine.completion import CompletionOrder, Ended, Running, order_place
from orchestrion._engine.recording import Failure, Journal, JournalWriter, answer_of, place_of
from orchestrion._errors import CallError, ReplayError
from orchestrion._interfaces import Answer
from orchestrion._keys import Key
from orchestrion._records import Usage


class ReplayPath(CallPath):
    """Answers from a run's journal alone: makes no call, spends nothing, records nothing."""

    def __init__(self, recorded: Journal) -> None:
        super().__init__()
        self._recorded = recorded

    async def run(self, call: Call) -> Answer:
        """Return the recorded answer of a call, or raise the error that it got then.

        Raises:
            ReplayError: the call is not on record.
        """
        recorded = self._recorded.get(call.name)
        if recorded is not None:
            return answer_of(recorded)
        failed = self._recorded.get(f"{call.name}/failed")
        if failed is not None:
            raise CallError(*failed.answer)
        raise ReplayError(
            f"no recorded call to {call.request.service} at {call.name}: it was not made in the "
            "recorded run, or asks something else now; the config, a plugin or its version "
            "has changed since"
        )

    def time_limit(self, seconds: float | None) -> None:
        """Return None: the record says which turns exceeded their time limit."""

    def late(self, episode: str, key: Key) -> Failure | None:
        """Return what is on record of a turn or judgement that exceeded its time limit."""
        recorded = self._recorded.get(f"{place_of(episode, key)}/late")
        if recorded is None:
            return None
        message, usage, made = recorded.answer
        return Failure(message, Usage(*usage), tuple(made))

    def completion_order(self, episode: str, key: Key) -> CompletionOrder:
        return RecordedOrder(JournalWriter(self._recorded), episode, key)


class RecordedOrder(CompletionOrder):
    """Waits for those activations that ended first in the recorded run."""

    async def next(self, running: Running, decision: int, arrival: bool) -> list[Ended]:
        if arrival:
            place = place_of(self._episode, self._key.child("arrival", decision))
            row = self._journal.get(place)
            if row is None:
                raise ReplayError(
                    f"no recorded completion order at {place}: the recorded run took no decision "
                    "there; the config, a plugin or its version has changed since"
                )
            return await running.these(row.answer, self._episode)
        if self._by_decision is None:
            row = self._journal.get(order_place(self._episode, self._key))
            self._by_decision = {} if row is None else dict(row.answer)
        indices = self._by_decision.get(decision)
        if indices is None:  # all ended before the policy was asked again
            return await running.all()
        return await running.these(indices, self._episode)

    async def close(self) -> None:
        """See `CompletionOrder.close`; a replay records nothing."""
