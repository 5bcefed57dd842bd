"""Run coroutines to their end from code that cannot await, also where an event loop runs."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from contextvars import copy_context
from functools import wraps
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def blocking(work: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
    """Return a function that runs a coroutine function to its end, in a loop of its own.

    Where an event loop runs already (a notebook's cell, a coroutine), that loop stands still until
    then, and the new one runs in a thread. Ctrl-C, and a notebook's interrupt, cancel the
    coroutine, wait until it has ended, and raise KeyboardInterrupt; a second one does not wait.
    """

    @wraps(work)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        return _run(lambda: work(*args, **kwargs))

    call.__name__ = call.__qualname__ = work.__name__.removeprefix("a")
    return call


def _loop_runs() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _run(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    # Not within `except`: there, "no running event loop" would be the cause of all errors.
    if not _loop_runs():
        return asyncio.run(work())
    begun: Future[tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]]] = Future()
    ended: Future[T] = Future()

    async def main() -> T:
        task = asyncio.current_task()
        assert task is not None
        begun.set_result((asyncio.get_running_loop(), task))
        return await work()

    def in_thread() -> None:
        try:
            ended.set_result(asyncio.run(main()))
        except BaseException as error:
            ended.set_exception(error)

    with _interruptible():
        threading.Thread(target=copy_context().run, args=(in_thread,), daemon=True).start()
        try:
            return ended.result()
        except KeyboardInterrupt as interrupt:
            if not ended.done():
                loop, task = begun.result()
                loop.call_soon_threadsafe(task.cancel)
                wait([ended])
                for note in getattr(ended.exception(), "__notes__", ()):
                    interrupt.add_note(note)
            raise


@contextmanager
def _interruptible() -> Iterator[None]:
    """Let SIGINT raise KeyboardInterrupt; the running loop would only hear of it afterwards."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
