"""Activations that run side by side, and the order in which the policy learns that they ended.

Which of several ends first depends on the clock. So the order is journaled, in one of two ways:

- With `Decision.arrival`, the policy decides by it. The order is written before the policy is
  asked again, and a resumed run repeats it, as a replay does.
- Without it, only the number of decisions depends on the order. All of an episode's order is
  written in one row when the episode ends, and only a replay repeats it.

A replay has an order of its own, see `replaying`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Coroutine
from functools import partial
from typing import Any, NamedTuple

from orchestrion._engine.recording import JournalWriter, Recorded, place_of
from orchestrion._errors import ReplayError
from orchestrion._keys import Key
from orchestrion._records import NO_USAGE, Activation, Turn


class Ended(NamedTuple):
    """An activation that has ended."""

    number: int  # of the activation in its loop: turns join the trajectory in this order
    turn_index: int
    task: asyncio.Task[Turn]


class Running:
    """The activations of one loop that run as tasks."""

    __slots__ = ("_another", "_ended", "_indices", "order", "tasks")

    def __init__(self, order: CompletionOrder) -> None:
        self.order = order
        self.tasks: dict[asyncio.Task[Turn], Activation] = {}
        """In the order they were started, until their turns are taken."""
        self._indices: dict[asyncio.Task[Turn], int] = {}
        self._ended: list[Ended] = []
        self._another = asyncio.Event()
        """Set when an activation ends, for the loop if it waits for that."""

    def start(
        self, activation: Activation, number: int, index: int, turn: Coroutine[Any, Any, Turn]
    ) -> None:
        """Start an activation; `number` and `index` as in `Ended`."""
        task = asyncio.create_task(turn)
        self.tasks[task] = activation
        self._indices[task] = index
        task.add_done_callback(partial(self._end, number, index))

    async def take(self, decision: int, each: bool, arrival: bool) -> list[Turn]:
        """Return the turns that the policy sees next, in the order they were started.

        These are all, unless `each` is true: then those that `order` says. `decision` is the index
        of the last decision, `arrival` as in `Decision`.
        """
        if each and len(self.tasks) > 1:
            finished = await self.order.next(self, decision, arrival)
        else:
            finished = await self.all()
        indices = {ended.turn_index for ended in finished}
        self._ended = [ended for ended in self._ended if ended.turn_index not in indices]
        turns = []
        for ended in sorted(finished):
            turns.append(ended.task.result())
            del self.tasks[ended.task], self._indices[ended.task]
        return turns

    async def cancel(self) -> list[Turn]:
        """Cancel what runs and wait for it; return its turns, all with the status `cancelled`.

        A turn that ended after the last decision counts as cancelled too: a replay, in which
        others may have ended by now, must give the same episode.
        """
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        turns = [
            Turn(self._indices[task], activation.agent, activation.option, status="cancelled")
            for task, activation in self.tasks.items()
        ]
        self.tasks, self._indices, self._ended = {}, {}, []
        return turns

    async def first(self) -> list[Ended]:
        while not self._ended:
            await self._one_more()
        return self._ended.copy()

    async def all(self) -> list[Ended]:
        while len(self._ended) < len(self.tasks):
            await self._one_more()
        return self._ended.copy()

    async def these(self, indices: Collection[int], episode: str) -> list[Ended]:
        """Wait until the turns with these indices have ended, whichever else has ended by then."""
        wanted = set(indices)
        while not wanted <= {ended.turn_index for ended in self._ended}:
            if len(self._ended) == len(self.tasks):
                raise ReplayError(
                    f"in the recorded run the turns {list(indices)} ended first (episode "
                    f"{episode}), but not all of them run now; the config or a plugin has changed "
                    "since"
                )
            await self._one_more()
        return [ended for ended in self._ended if ended.turn_index in wanted]

    def _end(self, number: int, index: int, task: asyncio.Task[Turn]) -> None:
        self._ended.append(Ended(number, index, task))
        self._another.set()

    async def _one_more(self) -> None:
        """Wait until another activation ends. The cost does not grow with their number."""
        self._another.clear()
        await self._another.wait()


class CompletionOrder:
    """Decides which of the activations that run side by side the policy sees as ended next.

    It takes whichever ends first, and journals it.
    """

    __slots__ = ("_by_decision", "_episode", "_journal", "_key")

    def __init__(self, journal: JournalWriter, episode: str, key: Key) -> None:
        self._journal, self._episode, self._key = journal, episode, key
        self._by_decision: dict[int, list[int]] | None = None
        """Indices of the turns that ended first, by decision. None until two run side by side."""

    async def next(self, running: Running, decision: int, arrival: bool) -> list[Ended]:
        """Wait for the first to end after a decision; `arrival` as in `Decision.arrival`.

        Raises:
            ReplayError: the recorded order does not fit the activations that run.
        """
        if arrival:
            return await self._journaled(running, decision)
        if self._by_decision is None:
            self._by_decision = {}
        ended = await running.first()
        if len(ended) < len(running.tasks):
            self._by_decision[decision] = [turn.turn_index for turn in ended]
        return ended

    async def _journaled(self, running: Running, decision: int) -> list[Ended]:
        place = place_of(self._episode, self._key.child("arrival", decision))
        recorded = await self._journal.find(place)
        if recorded is not None:  # this run is resumed, and has decided by it before
            return await running.these(recorded.answer, self._episode)
        ended = await running.first()
        indices = [turn.turn_index for turn in ended]
        await self._journal.add(Recorded(place, "arrival", indices, NO_USAGE, "arrival"))
        return ended

    async def close(self) -> None:
        """Journal what is still to be journaled, at the end of an episode."""
        if self._by_decision is None:
            return
        place = order_place(self._episode, self._key)
        # A run that was cut off may have left an order that does not hold any more.
        if self._by_decision or await self._journal.find(place) is not None:
            answer = [[decision, indices] for decision, indices in self._by_decision.items()]
            row = Recorded(place, "order", answer, NO_USAGE, "arrival")
            # The disk must not decide when the next episode starts.
            await self._journal.add(row, wait=False)


def order_place(episode: str, key: Key) -> str:
    """Name the row that holds the order of a whole loop."""
    return place_of(episode, key.child("order"))
