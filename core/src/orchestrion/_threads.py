"""Run plain functions in threads, so that one that never returns blocks no other."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

T = TypeVar("T")
MOST = 256
"""Calls that are awaited at the same time; further ones wait."""
MOST_LOST = 1_000
"""Calls that were given up and still run; beyond that, new ones are refused."""
_IDLE_SECONDS = 5.0


class _Calls:
    """The calls of one event loop."""

    def __init__(self) -> None:
        self.places = asyncio.Semaphore(MOST)
        self.idle: list[_Thread] = []
        self.lost = 0
        """How many were given up and still run."""


_by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, _Calls] = WeakKeyDictionary()


async def in_thread(function: Callable[..., T], *arguments: Any) -> T:
    """Call a plain function in a thread, in the context of the caller.

    For code that may take long or never return: unlike with `asyncio.to_thread`, a call that is
    given up (by a time limit, say) takes no place from those that come after it, and does not hold
    up the end of the process.

    Raises:
        RuntimeError: too many calls that were given up still run.
    """
    loop = asyncio.get_running_loop()
    if loop not in _by_loop:
        _by_loop[loop] = _Calls()
    calls = _by_loop[loop]
    async with calls.places:
        if calls.lost >= MOST_LOST:
            raise RuntimeError(
                f"{calls.lost} calls of plain functions were given up and still run, so that "
                "no more are made; give these functions time limits of their own"
            )
        outcome: asyncio.Future[T] = loop.create_future()
        thread = calls.idle.pop() if calls.idle else _Thread(calls.idle)

        def end(result: Any, failure: BaseException | None) -> None:
            calls.idle.append(thread)
            if outcome.cancelled():
                calls.lost -= 1
            elif failure is not None:
                outcome.set_exception(failure)
            else:
                outcome.set_result(result)

        work = partial(copy_context().run, function, *arguments)
        thread.calls.put((work, lambda *told: loop.call_soon_threadsafe(end, *told)))
        try:
            return await outcome
        finally:
            calls.lost += outcome.cancelled()


_Work = tuple[Callable[[], Any], Callable[[Any, BaseException | None], object]]


class _Thread(threading.Thread):
    def __init__(self, idle: list[_Thread]) -> None:
        super().__init__(name="orchestrion-function", daemon=True)
        self.idle = idle
        self.calls: SimpleQueue[_Work] = SimpleQueue()
        self.start()

    def run(self) -> None:
        while True:
            try:
                call = self.calls.get(timeout=_IDLE_SECONDS)
            except Empty:
                try:
                    self.idle.remove(self)
                except ValueError:  # a call is just being handed over
                    continue
                return
            _make(*call)
            del call


def _make(work: Callable[[], Any], tell: Callable[[Any, BaseException | None], object]) -> None:
    result: Any = None
    failure: BaseException | None = None
    try:
        result = work()
    except StopIteration as error:  # no future can hold it: we would wait forever
        failure = RuntimeError(f"a plain function raised {error!r}")
    except BaseException as error:
        failure = error
    with suppress(RuntimeError):  # the loop is closed
        tell(result, failure)
