"""Requests that are ready together run together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

__all__ = ["Batcher"]

W = TypeVar("W")
R = TypeVar("R")

PATIENCE = 8
"""Rounds of the event loop without a new request after which nobody else is about to come."""


class Batcher(Generic[W, R]):
    """Collects what is asked for until the event loop has nothing else to do.

    Args:
        work: does a batch; runs on the event loop, so that what meets in a batch, and with it the
            last bit of every result, does not depend on time. With `overlap` it runs in a thread,
            and other agents' calls go on meanwhile.
        largest: requests in a batch at most.
    """

    def __init__(
        self,
        work: Callable[[Sequence[W]], Sequence[R]],
        largest: int = 256,
        overlap: bool = False,
    ) -> None:
        self._work, self._largest, self._overlap = work, largest, overlap
        self._waiting: list[tuple[W, asyncio.Future[R]]] = []
        self._collecting: asyncio.Task[None] | None = None
        self.sizes: list[int] = []
        """How many requests each batch had."""

    async def __call__(self, wanted: W) -> R:
        """The result of one request."""
        future: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._waiting.append((wanted, future))
        if self._collecting is None:
            self._collecting = asyncio.create_task(self._collect())
        return await future

    async def _collect(self) -> None:
        try:
            while self._waiting:
                await self._gathered()
                now, self._waiting = (
                    self._waiting[: self._largest],
                    self._waiting[self._largest :],
                )
                await self._do([one for one in now if not one[1].done()])
        finally:
            self._collecting = None

    async def _gathered(self) -> None:
        quiet, known = 0, len(self._waiting)
        while quiet < PATIENCE and known < self._largest:
            await asyncio.sleep(0)
            quiet = quiet + 1 if len(self._waiting) == known else 0
            known = len(self._waiting)

    async def _do(self, now: list[tuple[W, asyncio.Future[R]]]) -> None:
        if not now:
            return
        wanted = [one for one, _ in now]
        self.sizes.append(len(wanted))
        try:
            if self._overlap:
                results = await asyncio.to_thread(self._work, wanted)
            else:
                results = self._work(wanted)
        except Exception as error:
            for _, future in now:
                if not future.done():
                    future.set_exception(error)
            return
        for (_, future), result in zip(now, results, strict=True):
            if not future.done():
                future.set_result(result)
