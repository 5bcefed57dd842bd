"""Plain functions in threads: those that never return keep no other waiting."""

from __future__ import annotations

import asyncio
import threading
from contextvars import ContextVar

import pytest

from orchestrion import _threads, in_thread
from tests.coroutines import sync


@sync
async def test_it_returns_and_raises_as_the_function_does_in_the_callers_context() -> None:
    where: ContextVar[str] = ContextVar("where")

    def work(number: int) -> tuple[int, str]:
        if number < 0:
            raise ValueError("below zero")
        return number, where.get()

    where.set("here")
    assert await in_thread(work, 3) == (3, "here")
    with pytest.raises(ValueError, match="below zero"):
        await in_thread(work, -1)
    with pytest.raises(RuntimeError, match="StopIteration"):
        await in_thread(next, iter(()))


def test_calls_that_were_given_up_take_no_place_until_they_are_too_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_threads, "MOST", 2)
    monkeypatch.setattr(_threads, "MOST_LOST", 5)
    go_on = threading.Event()

    async def main() -> None:
        for _ in range(5):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await in_thread(go_on.wait)
            if _ < 4:
                assert await in_thread(int, "7") == 7
        with pytest.raises(RuntimeError, match="5 calls of plain functions were given up"):
            await in_thread(int, "7")
        go_on.set()
        while True:  # those that were given up end one by one
            try:
                assert await in_thread(int, "7") == 7
                return
            except RuntimeError:
                await asyncio.sleep(0)

    asyncio.run(asyncio.wait_for(main(), 30))


def test_no_more_than_so_many_are_made_at_once_and_threads_are_used_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_threads, "MOST", 3)
    lock, most, names = threading.Lock(), [0, 0], set()

    def work() -> None:
        with lock:
            most[0] += 1
            most[1] = max(most)
            names.add(threading.current_thread().ident)
        with lock:
            most[0] -= 1

    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(100):
                group.create_task(in_thread(work))

    asyncio.run(main())
    assert 1 <= most[1] <= 3
    assert len(names) <= 3
