"""A running server: teams behind uvicorn, from the first request to the last."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from orchestrion import UsageError, is_local
from orchestrion.cli import UVICORN, Impatient, listener, running
from orchestrion.runs import Trained, fewer_collections
from orchestrion_serve.gateway import Gateway
from orchestrion_serve.in_use import InUse
from orchestrion_serve.keys import Keys
from orchestrion_serve.requests import Log, Settings
from orchestrion_serve.versions import check_text

CLOSING = 5
"""Seconds that clients get to read the last answers."""


class _Protocol(Impatient, H11Protocol):
    pass


class Serving:
    """A server that runs: `address` is its URL; `done` ends when it has stopped by itself."""

    def __init__(self, address: str, gateway: Gateway, done: asyncio.Task[None]) -> None:
        self.address, self.done = address, done
        self._gateway = gateway

    async def drain(self) -> None:
        """Refuse new requests, and wait for those in flight; leaving `serving` does it too."""
        await self._gateway.drain()


@asynccontextmanager
async def serving(
    teams: Mapping[str, Trained],
    host: str = "127.0.0.1",
    port: int = 0,
    settings: Settings | None = None,
    keys: Keys | None = None,
    log: Log | None = None,
    uses: Mapping[str, InUse] | None = None,
) -> AsyncIterator[Serving]:
    """Serve opened teams until the block ends; requests in flight are finished then.

    Args:
        teams: by model name; nothing learns in them.
        host: where to listen.
        port: 0 takes a free one; `Serving.address` has it.
        settings: the limits.
        keys: who may use it; needed for a host that other machines can reach.
        log: called with a record once a request; None logs nothing.
        uses: by model name, what `using` opened; None learns nothing from use.

    Raises:
        UsageError: the host needs keys, the address cannot be used, or a team's task takes no text.
    """
    if keys is None and not is_local(host):
        raise UsageError(f"--host {host}: other machines could reach it; give --keys FILE")
    for name, team in teams.items():
        check_text(name, team)
    gateway = Gateway(teams, settings or Settings(), keys, log or _silent, uses)
    await gateway.prepare()
    config = uvicorn.Config(
        gateway.app(),
        http=_Protocol,
        timeout_graceful_shutdown=CLOSING,
        **UVICORN,
    )
    with listener(host, port) as opened, fewer_collections():
        shown = f"[{host}]" if ":" in host else host
        address = f"http://{shown}:{opened.getsockname()[1]}"
        async with running(uvicorn.Server(config), opened) as done:
            try:
                yield Serving(address, gateway, done)
            finally:
                await gateway.drain()


def _silent(record: Mapping[str, object]) -> None:
    """Log nothing."""
