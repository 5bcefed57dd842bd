"""Results of pure computations, done once and shared by content."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from hashlib import blake2b
from typing import Any

import msgspec

__all__ = ["Reuse", "digest"]


def digest(*content: Any) -> str:
    """32 hex digits that stand for a JSON value; equal values give equal digests."""
    return blake2b(msgspec.json.encode(content, order="deterministic"), digest_size=16).hexdigest()


class Reuse:
    """A bounded memory in which equal requests that come together are computed once."""

    def __init__(self, size: int = 200_000) -> None:
        self._size = size
        self._known: OrderedDict[str, Any] = OrderedDict()
        self._pending: dict[str, asyncio.Future[Any]] = {}
        self.hits = 0
        self.misses = 0

    async def get(self, name: str, do: Callable[[], Awaitable[Any]]) -> Any:
        """The result under `name`; `do` computes it if nobody has and nobody is about to.

        An error goes to everyone who waits and is not kept. If the one who computes is
        cancelled, one of those who wait computes instead.
        """
        while True:
            if name in self._known:
                self.hits += 1
                self._known.move_to_end(name)
                return self._known[name]
            pending = self._pending.get(name)
            if pending is None:
                return await self._compute(name, do)
            await asyncio.wait([pending])
            if not pending.cancelled():
                self.hits += 1
                return pending.result()

    async def _compute(self, name: str, do: Callable[[], Awaitable[Any]]) -> Any:
        self.misses += 1
        pending = asyncio.get_running_loop().create_future()
        self._pending[name] = pending
        try:
            result = await do()
        except asyncio.CancelledError:
            pending.cancel()
            raise
        except BaseException as error:
            pending.set_exception(error)
            pending.exception()  # nobody may be waiting; that is no reason for a warning
            raise
        else:
            pending.set_result(result)
            self._known[name] = result
            if len(self._known) > self._size:
                self._known.popitem(last=False)
            return result
        finally:
            del self._pending[name]
