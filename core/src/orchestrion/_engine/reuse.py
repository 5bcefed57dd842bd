"""Compute pure results once and share them by content."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from hashlib import blake2b
from typing import Any

import msgspec

RESULTS = 200_000
"""How many pure results of a run are kept."""


def digest(*content: Any) -> str:
    """Return 32 hex digits for JSON values; equal values have equal digests."""
    return blake2b(msgspec.json.encode(content, order="deterministic"), digest_size=16).hexdigest()


class Reuse:
    """A bounded cache of results; requests that wait for the same result compute it once."""

    def __init__(self, size: int = RESULTS) -> None:
        self._size = size
        self._known: OrderedDict[str, Any] = OrderedDict()
        self._pending: dict[str, asyncio.Future[Any]] = {}

    async def get(self, name: str, do: Callable[[], Awaitable[Any]]) -> Any:
        """Return the result under `name`; call `do` if it is neither known nor being computed.

        An error is raised in all that wait for the result, and is not kept. If the caller that
        computes is cancelled, one of those that wait computes instead.
        """
        while True:
            if name in self._known:
                self._known.move_to_end(name)
                return self._known[name]
            pending = self._pending.get(name)
            if pending is None:
                return await self._compute(name, do)
            await asyncio.wait([pending])
            if not pending.cancelled():
                return pending.result()

    async def _compute(self, name: str, do: Callable[[], Awaitable[Any]]) -> Any:
        pending = asyncio.get_running_loop().create_future()
        self._pending[name] = pending
        try:
            result = await do()
        except asyncio.CancelledError:
            pending.cancel()
            raise
        except BaseException as error:
            pending.set_exception(error)
            pending.exception()  # nobody may wait for it: no warning
            raise
        else:
            pending.set_result(result)
            self._known[name] = result
            if len(self._known) > self._size:
                self._known.popitem(last=False)
            return result
        finally:
            del self._pending[name]
