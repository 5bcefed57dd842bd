"""A time limit that costs next to nothing.

An `asyncio.timeout` for each activation doubles the cost of a turn that waits: each sets a timer
of its own and takes it back. Here all activations with one limit share one timer, and an
activation that never waits needs none.
"""

from __future__ import annotations

import asyncio
import types
from collections import deque
from collections.abc import Coroutine, Generator
from typing import Any, TypeVar

__all__ = ["Deadline", "resume"]

T = TypeVar("T")


class _Entry:
    __slots__ = ("at", "done", "expired", "task")

    def __init__(self, at: float, task: asyncio.Task[Any]) -> None:
        self.at, self.task = at, task
        self.done = self.expired = False


class Deadline:
    """One limit in seconds for many pieces of work."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        # All have the same limit, so who came first is due first.
        self._waiting: deque[_Entry] = deque()
        self._timer: asyncio.TimerHandle | None = None

    async def within(self, work: Coroutine[Any, Any, T], waits_for: Any) -> T:
        """The result of `work`, or TimeoutError if it takes longer than the limit.

        `work` has been started with `send(None)`, which gave `waits_for`.
        """
        task = asyncio.current_task()
        assert task is not None
        loop = task.get_loop()
        entry = _Entry(loop.time() + self.seconds, task)
        self._waiting.append(entry)
        if self._timer is None:
            self._timer = loop.call_at(entry.at, self._expire)
        cancelling = task.cancelling()
        try:
            return await resume(work, waits_for)
        except asyncio.CancelledError:
            # Cancelled by the limit alone, or by somebody else as well?
            if entry.expired and task.uncancel() <= cancelling:
                raise TimeoutError from None
            raise
        finally:
            entry.done = True
            self._forget()

    def _forget(self) -> None:
        waiting = self._waiting
        while waiting and waiting[0].done:
            waiting.popleft()
        if not waiting and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _expire(self) -> None:
        self._timer = None
        waiting, loop = self._waiting, asyncio.get_running_loop()
        while waiting and (waiting[0].done or waiting[0].at <= loop.time()):
            entry = waiting.popleft()
            if not entry.done:
                entry.expired = True
                entry.task.cancel()
        if waiting:
            self._timer = loop.call_at(waiting[0].at, self._expire)


@types.coroutine
def resume(work: Coroutine[Any, Any, T], waits_for: Any) -> Generator[Any, Any, T]:
    """What `await work` would do, had it not been started with `send(None)` yet."""
    while True:
        error: BaseException | None = None
        value = None
        try:
            value = yield waits_for
        except GeneratorExit:
            work.close()
            raise
        except BaseException as caught:
            error = caught
        try:
            waits_for = work.send(value) if error is None else work.throw(error)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]
