"""A time limit that costs nearly nothing.

An `asyncio.timeout` for each activation doubles the cost of a turn that waits, because each sets
and cancels its own timer. Here all activations with one limit share one timer, and an activation
that never waits needs none.
"""

from __future__ import annotations

import asyncio
import logging
import types
from collections import deque
from collections.abc import Coroutine, Generator
from typing import Any, TypeVar

T = TypeVar("T")

PATIENCE = 5.0
"""Seconds after which work that ignores its cancellation is cancelled again."""

_FEW = 64
"""Entries that are not worth pruning."""


class _Entry:
    __slots__ = ("at", "cancels", "done", "task", "who")

    def __init__(self, at: float, task: asyncio.Task[Any], who: str) -> None:
        self.at, self.task, self.who = at, task, who
        self.done, self.cancels = False, 0


class Deadline:
    """One limit in seconds for many coroutines."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        # All have the same limit: the first that was added is due first.
        self._waiting: deque[_Entry] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._prune_at = _FEW

    async def within(self, work: Coroutine[Any, Any, T], waits_for: Any, who: str) -> T:
        """Return the result of `work`; cancel it at the limit, and ignore what it returns then.

        Raises:
            TimeoutError: it took longer than the limit.
        """
        task = asyncio.current_task()
        assert task is not None
        loop = task.get_loop()
        entry = _Entry(loop.time() + self.seconds, task, who)
        if len(self._waiting) >= self._prune_at:
            self._prune()
        self._waiting.append(entry)
        if self._timer is None:
            self._timer = loop.call_at(entry.at, self._expire)
        cancelling = task.cancelling()
        error: BaseException | None = None
        try:
            return await resume(work, waits_for)
        except BaseException as caught:
            error = caught
            raise
        finally:
            entry.done = True
            self._forget()
            for _ in range(entry.cancels):
                task.uncancel()
            # Cancelled by the limit alone, or by other code as well?
            others = isinstance(error, asyncio.CancelledError) and task.cancelling() > cancelling
            if entry.cancels and not others and not isinstance(error, KeyboardInterrupt):
                raise TimeoutError from None

    def _prune(self) -> None:
        """Remove what is done, also behind an entry that still runs."""
        self._waiting = deque(entry for entry in self._waiting if not entry.done)
        self._prune_at = max(_FEW, 2 * len(self._waiting))

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
            self._cancel(entry)
        if waiting:
            self._timer = loop.call_at(waiting[0].at, self._expire)

    def _cancel(self, entry: _Entry) -> None:
        """Cancel work, and again every few seconds until it ends."""
        if entry.done:
            return
        if entry.cancels == 1:
            logging.getLogger("orchestrion").warning(
                "%s has not ended %g s after its time limit of %g s, though it was cancelled; "
                "the run waits for it",
                entry.who,
                PATIENCE,
                self.seconds,
            )
        entry.cancels += 1
        entry.task.cancel()
        asyncio.get_running_loop().call_later(PATIENCE, self._cancel, entry)


class Deadlines(dict[float, Deadline]):
    """Time limits by their seconds, made when they are needed first."""

    def __missing__(self, seconds: float) -> Deadline:
        deadline = self[seconds] = Deadline(seconds)
        return deadline

    async def result(self, work: Coroutine[Any, Any, T], seconds: float | None, who: str) -> T:
        """Return the result of `work`; None means no time limit.

        Raises:
            TimeoutError: it took longer than the limit.
        """
        try:
            waits_for = work.send(None)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]
        except GeneratorExit as error:
            raise exited(error) from error
        return await self.rest(work, waits_for, seconds, who)

    async def rest(
        self, work: Coroutine[Any, Any, T], waits_for: Any, seconds: float | None, who: str
    ) -> T:
        """Return the result of work that waits already; see `result`."""
        if seconds is None:
            return await resume(work, waits_for)
        return await self[seconds].within(work, waits_for, who)


def exited(error: GeneratorExit) -> RuntimeError:
    """Return an error for a GeneratorExit of plugin code, which must not close our coroutines."""
    return RuntimeError(f"it raised GeneratorExit: {error}")


@types.coroutine
def resume(work: Coroutine[Any, Any, T], waits_for: Any) -> Generator[Any, Any, T]:
    """Await work that has been started with `send(None)`, which returned `waits_for`."""
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
        except GeneratorExit as caught:
            raise exited(caught) from caught
