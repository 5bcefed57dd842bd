"""Decisions that are ready together are taken together."""

from __future__ import annotations

import asyncio

from orchestrion._engine.checks import broken
from orchestrion._errors import RunError
from orchestrion._interfaces import Policy, Situation
from orchestrion._keys import Key
from orchestrion._records import Decision

__all__ = ["DecisionBatcher"]


class DecisionBatcher:
    """Asks one policy for many episodes at once; `place` is what messages call it."""

    def __init__(self, policy: Policy, place: str) -> None:
        self.policy, self.place = policy, place
        self.prepares = bool(getattr(policy, "prepares", False))
        self._waiting: list[tuple[Situation, Key, asyncio.Future[Decision]]] = []

    def now(self, situation: Situation, key: Key) -> Decision:
        """One decision, alone."""
        return self._ask([situation], [key])[0]

    def soon(self, situation: Situation, key: Key) -> asyncio.Future[Decision]:
        """One decision, together with those of all episodes that are ready."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Decision] = loop.create_future()
        if not self._waiting:
            # Runs after everything that is ready in this turn of the loop.
            loop.call_soon(self._flush)
        self._waiting.append((situation, key, answer))
        return answer

    def _flush(self) -> None:
        waiting, self._waiting = self._waiting, []
        # An episode that was cancelled meanwhile needs no decision.
        waiting = [one for one in waiting if not one[2].done()]
        if not waiting:
            return
        try:
            decisions = self._ask([one[0] for one in waiting], [one[1] for one in waiting])
        except Exception as error:
            for _, _, answer in waiting:
                answer.set_exception(error)
            return
        for (_, _, answer), decision in zip(waiting, decisions, strict=True):
            answer.set_result(decision)

    def _ask(self, situations: list[Situation], keys: list[Key]) -> list[Decision]:
        try:
            decisions = list(self.policy.decide(situations, keys))
        except BaseException as error:
            raise broken(self.place, "decide", error) from error
        if len(decisions) != len(situations):
            raise RunError(
                f"{self.place}: {len(decisions)} decisions for "
                f"{len(situations)} situations; decide() must return one for each"
            )
        return decisions
