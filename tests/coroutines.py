"""Tests that are coroutines."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Any

__all__ = ["sync"]


def sync(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Return a test that is a coroutine as one that pytest can call."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        asyncio.run(test(*args, **kwargs))

    return run
