"""Tests that are coroutines."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from typing import Any

__all__ = ["AsyncTest", "SyncTest", "given", "sync"]

AsyncTest = Callable[..., Coroutine[Any, Any, None]]
SyncTest = Callable[..., None]


def sync(test: AsyncTest) -> SyncTest:
    """Return a test that is a coroutine as one that pytest can call."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        asyncio.run(test(*args, **kwargs))

    return run


def given(
    opened: Callable[..., AbstractAsyncContextManager[Any]],
    run: Callable[[Coroutine[Any, Any, None]], None] = asyncio.run,
) -> Callable[[AsyncTest], SyncTest]:
    """Return a decorator for a test whose first argument is what a context manager gives.

    Args:
        opened: makes the context manager; gets the test's other arguments.
        run: runs the test, with the context manager around it.
    """

    def decorate(test: AsyncTest) -> SyncTest:
        async def inside(**others: Any) -> None:
            async with opened(**others) as first:
                await test(first, **others)

        @functools.wraps(test)
        def called(**others: Any) -> None:
            run(inside(**others))

        signature = inspect.signature(test)
        _, *others = signature.parameters.values()
        # Else pytest would look for a fixture with the first argument's name.
        called.__signature__ = signature.replace(parameters=others)  # type: ignore[attr-defined]
        return called

    return decorate
