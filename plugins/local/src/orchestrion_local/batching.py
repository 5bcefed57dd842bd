"""Completes prompts that are ready together as one batch."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from orchestrion_local.sampling import Completion, Prompt

Waiting = tuple[Prompt, asyncio.Future[Completion]]

PATIENCE = 8
"""Rounds of the event loop without a new request before a batch starts."""


class Batcher:
    """Collects requests until the event loop has nothing else to do.

    Args:
        work: returns the completions of a batch. It runs on the event loop, so that the prompts of
            a batch, and with them the last bit of every result, do not depend on time.
        largest: returns the maximum number of prompts in a batch.
        overlap: run `work` in a thread, while other agents' calls go on.
    """

    def __init__(
        self,
        work: Callable[[Sequence[Prompt]], Sequence[Completion]],
        largest: Callable[[], int],
        overlap: bool = False,
    ) -> None:
        self._work, self._find_largest, self._overlap = work, largest, overlap
        self._largest = 0
        self._waiting: list[Waiting] = []
        self._collecting: asyncio.Task[None] | None = None
        self.sizes: list[int] = []
        """Number of requests of each batch."""

    async def __call__(self, prompt: Prompt) -> Completion:
        """Return the completion of a prompt."""
        future: asyncio.Future[Completion] = asyncio.get_running_loop().create_future()
        self._waiting.append((prompt, future))
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

    async def _do(self, batch: list[Waiting]) -> None:
        if not batch:
            return
        prompts = [prompt for prompt, _ in batch]
        self.sizes.append(len(prompts))
        try:
            if self._overlap:
                results = await asyncio.to_thread(self._work, prompts)
            else:
                results = self._work(prompts)
        except Exception as error:
            for _, future in batch:
                if not future.done():
                    future.set_exception(error)
            return
        for (_, future), result in zip(batch, results, strict=True):
            if not future.done():
                future.set_result(result)
