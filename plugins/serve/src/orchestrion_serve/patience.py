"""HTTP with a limit for how slowly a client may send the head of a request."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

__all__ = ["HEAD_SECONDS", "Impatient"]

HEAD_SECONDS = 20.0
"""From the connection, or the last answer, to the end of a request's headers."""


class Impatient(H11Protocol):
    """Closes connections on which no request has begun in time.

    uvicorn itself does so only while nothing at all comes.
    """

    _waiting: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        before = self.cycle
        super().handle_events()
        if self.cycle is not before:
            self._stop()

    def on_response_complete(self) -> None:
        self._wait()
        super().on_response_complete()

    def _wait(self) -> None:
        self._stop()
        self._waiting = self.loop.call_later(HEAD_SECONDS, self._close)

    def _stop(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def _close(self) -> None:
        if not self.transport.is_closing():
            self.transport.close()
