"""Ask a policy for the decisions of all episodes that are ready, in one batch."""

from __future__ import annotations

import asyncio

from orchestrion._errors import CallError, RunError
from orchestrion._guards import FATAL, raise_named
from orchestrion._interfaces import Calls, Policy, Situation
from orchestrion._keys import Key
from orchestrion._records import Decision


class DecisionBatcher:
    """Ask one policy, for many episodes at once."""

    def __init__(self, policy: Policy, place: str) -> None:
        self.policy, self.place = policy, place
        self.prepares = bool(getattr(policy, "prepares", False))
        self._waiting: list[tuple[Situation, Key, asyncio.Future[Decision]]] = []

    async def prepare(self, situation: Situation, calls: Calls) -> None:
        """Let the policy prepare its decision, which may make calls."""
        try:
            await self.policy.prepare(situation, calls)
        except (CallError, *FATAL):
            raise
        except Exception as error:
            raise_named(self.place, "prepare()", error)

    def soon(self, situation: Situation, key: Key) -> asyncio.Future[Decision]:
        """Return one decision, taken together with those of all episodes that are ready."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Decision] = loop.create_future()
        if not self._waiting:
            # The event loop calls it after everything that is ready now.
            loop.call_soon(self._flush)
        self._waiting.append((situation, key, answer))
        return answer

    def _flush(self) -> None:
        waiting, self._waiting = self._waiting, []
        # An episode that was cancelled meanwhile needs no decision.
        waiting = [item for item in waiting if not item[2].done()]
        if not waiting:
            return
        try:
            situations, keys, _ = zip(*waiting, strict=True)
            decisions = self.ask(list(situations), list(keys))
        except Exception as error:
            for _, _, answer in waiting:
                answer.set_exception(error)
            return
        for (_, _, answer), decision in zip(waiting, decisions, strict=True):
            answer.set_result(decision)

    def ask(self, situations: list[Situation], keys: list[Key]) -> list[Decision]:
        try:
            decisions = list(self.policy.decide(situations, keys))
        except BaseException as error:
            raise_named(self.place, "decide()", error)
        if len(decisions) != len(situations):
            raise RunError(
                f"{self.place}: decide() returned {len(decisions)} decisions for "
                f"{len(situations)} situations; it must return one for each"
            )
        return decisions
