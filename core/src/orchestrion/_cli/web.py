"""A listening socket and a time limit, for plugins that serve clients."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, nullcontext
from typing import Any

from orchestrion._cli.common import note
from orchestrion._errors import UsageError

try:
    import resource
except ImportError:  # pragma: no cover - systems without limits of this kind
    resource = None  # type: ignore[assignment]

UVICORN: Mapping[str, Any] = {
    "lifespan": "off",
    "ws": "none",
    "log_config": None,
    "access_log": False,
    "server_header": False,
    "proxy_headers": False,
}
"""Settings of uvicorn with which it logs nothing and believes no header about its clients."""
HEAD_SECONDS = 20.0
"""From the connection, or the last answer, to the end of a request's headers."""
RESERVED = 4
"""One in so many file descriptors is not for connections of clients."""
_QUIET = 60.0
"""Seconds between two lines about connections that were refused."""


def listener(host: str, port: int) -> socket.socket:
    """Return a socket that listens; port 0 takes a free one.

    Connections that would take the last file descriptors are closed at once.

    Raises:
        UsageError: the address cannot be used, or the first client would be refused.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With its protocol named, asyncio sends what is written at once; else answers take 40 ms more.
    opened = _Listener(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.bind((host, port))
        opened.listen(2048)
    except OSError as error:
        opened.close()
        raise UsageError(f"cannot listen on {host}, port {port}: {error.strerror}") from None
    if opened.fileno() >= _for_clients():
        opened.close()
        raise UsageError(f"no connection could be taken: {_nearly_all()}")
    return opened


class _Listener(socket.socket):
    _noted_at = -_QUIET

    def accept(self) -> tuple[socket.socket, Any]:
        """Return a connection, unless its descriptor is among the last ones."""
        connection, address = super().accept()
        # The system gives out the lowest number that is free.
        if connection.fileno() < _for_clients():
            return connection, address
        connection.close()
        if time.monotonic() - self._noted_at >= _QUIET:
            self._noted_at = time.monotonic()
            note(f"connections are refused: {_nearly_all()}")
        raise BlockingIOError  # as if none had come


def _for_clients() -> int:
    """Return the first number of a file descriptor that no client's connection gets."""
    limit = _descriptors()
    return limit - limit // RESERVED


def _nearly_all() -> str:
    return (
        f"nearly all of the {_descriptors()} file descriptors of this process are in use; "
        "`ulimit -n` allows more"
    )


def _descriptors() -> int:
    """Return how many file descriptors the process may have open."""
    limit = 1 << 30
    if resource is not None:
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        limit = limit if soft == resource.RLIM_INFINITY else soft
    return limit


@asynccontextmanager
async def running(server: Any, opened: socket.socket) -> AsyncIterator[asyncio.Task[None]]:
    """Run a `uvicorn.Server`, which leaves signals alone, until the block ends; yield its task."""
    server.capture_signals = nullcontext
    task = asyncio.create_task(server.serve(sockets=[opened]))
    try:
        yield task
    finally:
        server.should_exit = True
        await task


class Impatient:
    """Closes connections on which no request has begun in time; uvicorn does if nothing comes.

    Put it before uvicorn's protocol: `class Protocol(Impatient, H11Protocol)`.
    """

    loop: asyncio.AbstractEventLoop
    transport: Any
    cycle: Any
    _waiting: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)  # type: ignore[misc]
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop()
        super().connection_lost(exc)  # type: ignore[misc]

    def handle_events(self) -> None:
        before = self.cycle
        super().handle_events()  # type: ignore[misc]
        if self.cycle is not before:  # a request has begun
            self._stop()

    def on_response_complete(self) -> None:
        self._wait()
        super().on_response_complete()  # type: ignore[misc]

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
