"""Runs requests that are ready together as one batch."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

W = TypeVar("W")
R = TypeVar("R")

PATIENCE = 8
"""Rounds of the event loop without a new request before a batch starts."""


class Batcher(Generic[W, R]):
    """Collects requests until the event loop has nothing else to do.

    Args:
        work: returns the results of a batch. It runs on the event loop, so that the requests of a
            batch, and with them the last bit of every result, do not depend on time.
        largest: returns the maximum number of requests in a batch.
        overlap: run `work` in a thread, while other agents' calls go on.
    """

    def __init__(
        self,
        work: Callable[[Sequence[W]], Sequence[R]],
        largest: Callable[[], int],
        overlap: bool = False,
    ) -> None:
        self._work, self._find_largest, self._overlap = work, largest, overlap
        self._largest = 0
        self._waiting: list[tuple[W, asyncio.Future[R]]] = []
        self._collecting: asyncio.Task[None] | None = None
        self.sizes: list[int] = []
        """Number of requests of each batch."""

    async def __call__(self, wanted: W) -> R:
        """Return the result of one request."""
        future: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._waiting.append((wanted, future))
        if self._collecting is None:
            self._collecting = asyncio.create_task(self._collect())
        return await future

    async def _collect(self) -> None:
        try:
            self._largest = self._find_largest()
            while self._waiting:
                await self._wait_for_more()
                batch = self._waiting[: self._largest]
                self._waiting = self._waiting[self._largest :]
                await self._do([pair for pair in batch if not pair[1].done()])
        finally:
            self._collecting = None

    async def _wait_for_more(self) -> None:
        quiet, known = 0, len(self._waiting)
        while quiet < PATIENCE and known < self._largest:
            await asyncio.sleep(0)
            quiet = quiet + 1 if len(self._waiting) == known else 0
            known = len(self._waiting)

    async def _do(self, batch: list[tuple[W, asyncio.Future[R]]]) -> None:
        if not batch:
            return
        wanted = [request for request, _ in batch]
        self.sizes.append(len(wanted))
        try:
            if self._overlap:
                results = await asyncio.to_thread(self._work, wanted)
            else:
                results = self._work(wanted)
        except Exception as error:
            for _, future in batch:
                if not future.done():
                    future.set_exception(error)
            return
        for (_, future), result in zip(batch, results, strict=True):
            if not future.done():
                future.set_result(result)
