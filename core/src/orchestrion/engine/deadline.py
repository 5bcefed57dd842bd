"""A time limit that costs nothing when there is nothing to wait for."""

from __future__ import annotations

import asyncio
import types
from collections.abc import Coroutine, Generator
from typing import Any, TypeVar

__all__ = ["within"]

T = TypeVar("T")


async def within(seconds: float | None, work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`, or TimeoutError after `seconds`.

    A coroutine that finishes without ever waiting needs no timer. Setting one costs more than
    all the rest of a no-op turn, so it is set only once `work` really waits.
    """
    if seconds is None:
        return await work
    try:
        waits_for = work.send(None)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]
    async with asyncio.timeout(seconds):
        return await _rest(work, waits_for)


@types.coroutine
def _rest(work: Coroutine[Any, Any, T], waits_for: Any) -> Generator[Any, Any, T]:
    """What `yield from work` would do, had it not been started yet."""
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
