"""Time limits of activations and calls; work that never waits needs no timer."""

from __future__ import annotations

import asyncio
import logging
import types
from collections.abc import Coroutine, Generator
from typing import Any, TypeVar

T = TypeVar("T")

PATIENCE = 5.0
"""Seconds after which work that ignores its cancellation is cancelled again."""


async def result_of(work: Coroutine[Any, Any, T], seconds: float | None, who: str) -> T:
    """Return the result of `work`; `seconds` and errors as in `rest_of`."""
    try:
        waits_for = work.send(None)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]
    except GeneratorExit as error:
        raise exited(error) from error
    return await rest_of(work, waits_for, seconds, who)


async def rest_of(
    work: Coroutine[Any, Any, T], waits_for: Any, seconds: float | None, who: str
) -> T:
    """Return the result of started work, see `_resume`; cancel it after `seconds` (None: never).

    Raises:
        TimeoutError: it took longer, whatever it returned or raised then.
    """
    if seconds is None:
        return await _resume(work, waits_for)
    task = asyncio.current_task()
    assert task is not None
    limit = _Limit(task, seconds, who)
    cancelling = task.cancelling()
    error: BaseException | None = None
    try:
        return await _resume(work, waits_for)
    except BaseException as caught:
        error = caught
        raise
    finally:
        limit.timer.cancel()
        for _ in range(limit.cancels):
            task.uncancel()
        # Cancelled by the limit alone, or by other code as well?
        others = isinstance(error, asyncio.CancelledError) and task.cancelling() > cancelling
        if limit.cancels and not others and not isinstance(error, KeyboardInterrupt):
            raise TimeoutError from None


class _Limit:
    """Cancels a task after some seconds, and again every few seconds until `timer` is cancelled."""

    __slots__ = ("_seconds", "_task", "_who", "cancels", "timer")

    def __init__(self, task: asyncio.Task[Any], seconds: float, who: str) -> None:
        self._task, self._seconds, self._who = task, seconds, who
        self.cancels = 0
        self.timer = task.get_loop().call_later(seconds, self._cancel)

    def _cancel(self) -> None:
        if self.cancels == 1:
            logging.getLogger("orchestrion").warning(
                "%s has not ended %g s after its time limit of %g s, though it was cancelled; "
                "the run waits for it",
                self._who,
                PATIENCE,
                self._seconds,
            )
        self.cancels += 1
        self._task.cancel()
        self.timer = self._task.get_loop().call_later(PATIENCE, self._cancel)


def exited(error: GeneratorExit) -> RuntimeError:
    """Return an error for a GeneratorExit of plugin code, which must not close our coroutines."""
    return RuntimeError(f"it raised GeneratorExit: {error}")


@types.coroutine
def _resume(work: Coroutine[Any, Any, T], waits_for: Any) -> Generator[Any, Any, T]:
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
