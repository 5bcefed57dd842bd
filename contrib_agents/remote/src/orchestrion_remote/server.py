"""Agents of a config behind gRPC, and behind plain HTTP; imported when the server starts."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

from attrs import frozen

from orchestrion import BudgetError, Key, Turn, UsageError, View, is_local
from orchestrion.runs import Trained
from orchestrion_remote.body import Reply

AGAIN = 1
"""Seconds after which a client that was refused for now may come back."""


@frozen
class Settings:
    """Of a server.

    Args:
        concurrency: turns at once; further ones wait.
        waiting: turns that may wait; more are refused with a time to come back.
        drain: seconds that turns in flight get when the server stops.
        key: that callers must send; empty asks for none.
        cert: the server's certificate, a PEM file; None serves plain text.
        cert_key: its private key.
        client_ca: the certificates that callers' own must be signed by; None asks for none.
    """

    concurrency: int = 64
    waiting: int = 1000
    drain: float = 30.0
    key: str = ""
    cert: Path | None = None
    cert_key: Path | None = None
    client_ca: Path | None = None


class RefusedError(Exception):
    """A request that is not carried out: `kind` is busy, stopping, unknown, invalid or budget."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


@frozen
class Piece:
    """What an agent says on the way."""

    agent: str
    text: str


class Agents:
    """The served agents: at most so many turns at once.

    Args:
        trained: opened.
        names: of the served agents; empty serves all of the team.
        settings: of the server.
    """

    def __init__(self, trained: Trained, names: Sequence[str], settings: Settings) -> None:
        members = {member.name: member for member in trained.opened.roster()}
        for name in names:
            if name not in members:
                known = ", ".join(members)
                raise UsageError(f"--agent {name}: the team has no such agent; it has {known}")
        self.names = tuple(names) or tuple(members)
        self._members = members
        self._settings = settings
        self._engine = trained.engine
        # Of the same components; it passes on what agents say, so that models stream.
        self._watched = trained.opened.engine(trained.calls)
        self._watched.viewer = self._show
        self._queues: dict[str, asyncio.Queue[Piece | Reply]] = {}
        self._numbers = count()
        self._loop = asyncio.get_running_loop()
        self._slots = asyncio.Semaphore(settings.concurrency)
        self._active = self._waiting = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self.stopping = False

    async def act(self, agent: str, view: View, key: Key) -> Reply:
        """Return the reply of an agent; cancelling this cancels its work.

        Raises:
            RefusedError: it was not asked, or the budget is used up.
        """
        async with self._admitted(agent, view):
            return await self._act(self._engine, agent, view, key, None)

    async def stream(self, agent: str, view: View, key: Key) -> AsyncGenerator[Piece | Reply, None]:
        """Yield what an agent says on the way, and then its reply; see `act`."""
        async with self._admitted(agent, view):
            number = str(next(self._numbers))
            queue = self._queues[number] = asyncio.Queue()
            work = asyncio.create_task(
                self._act(self._watched, agent, view, key, f"{number}:{agent}")
            )
            work.add_done_callback(lambda _: queue.put_nowait(Reply()))
            try:
                while not isinstance(event := await queue.get(), Reply):
                    yield event
                yield await work
            finally:
                del self._queues[number]
                work.cancel()
                await asyncio.wait([work])

    async def drain(self) -> None:
        """Refuse new requests and those that wait; return when those in flight have ended.

        Return also when the time is up.
        """
        self.stopping = True
        for _ in range(self._waiting):
            self._slots.release()
        with suppress(TimeoutError):
            async with asyncio.timeout(self._settings.drain):
                await self._idle.wait()

    def permits(self, authorization: str | None) -> bool:
        """Return whether a request with this `Authorization` may be carried out."""
        if not self._settings.key:
            return True
        expected = f"Bearer {self._settings.key}".encode()
        return hmac.compare_digest((authorization or "").encode(), expected)

    @asynccontextmanager
    async def _admitted(self, agent: str, view: View) -> AsyncIterator[None]:
        if agent not in self.names:
            raise RefusedError("unknown", f"there is no agent {agent!r} here")
        options = self._members[agent].options
        if (view.option not in options) if options else (view.option is not None):
            known = ", ".join(options) or "none"
            raise RefusedError("invalid", f"{agent} has no option {view.option!r}; it has {known}")
        if self._slots.locked() and self._waiting >= self._settings.waiting:
            number = self._active + self._waiting
            raise RefusedError("busy", f"{number} turns are here, which is the maximum")
        self._waiting += 1
        try:
            await self._slots.acquire()
        finally:
            self._waiting -= 1
        if self.stopping:
            self._slots.release()
            raise RefusedError("stopping", "the server is stopping")
        self._active += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._slots.release()
            self._active -= 1
            if not self._active:
                self._idle.set()

    async def _act(self, engine: Any, agent: str, view: View, key: Key, label: str | None) -> Reply:
        try:
            turn: Turn = await engine.act(agent, view, key, label)
        except BudgetError as error:
            raise RefusedError("budget", str(error)) from error
        finally:
            engine.failed_turns.clear()  # a report for people, which would grow with every turn
        return Reply.of(turn)

    def _show(self, label: str, text: str) -> None:
        """Pass on a piece; agents that are plain functions call this in threads of their own."""
        number, _, agent = label.partition(":")
        self._loop.call_soon_threadsafe(self._put, number, Piece(agent, text))

    def _put(self, number: str, piece: Piece) -> None:
        queue = self._queues.get(number)
        if queue is not None:
            queue.put_nowait(piece)


@frozen
class Serving:
    """A server that runs: the ports it listens at, None for a protocol that is not served."""

    agents: Agents
    grpc_port: int | None
    http_port: int | None


@asynccontextmanager
async def serving(
    trained: Trained,
    names: Sequence[str] = (),
    host: str = "127.0.0.1",
    grpc_port: int | None = 0,
    http_port: int | None = None,
    settings: Settings | None = None,
) -> AsyncIterator[Serving]:
    """Serve agents of an opened config until the block ends; turns in flight are finished then.

    Args:
        trained: the config, or a run with what it learned.
        names: the served agents; empty serves all of the team.
        host: where to listen.
        grpc_port: of gRPC; 0 takes a free one, None serves none.
        http_port: of plain HTTP, likewise.
        settings: of the server.

    Raises:
        UsageError: an agent is unknown, a port or a certificate cannot be used, or other machines
            could reach the server and nothing protects it.
    """
    settings = settings or Settings()
    if (settings.cert is None) != (settings.cert_key is None):
        raise UsageError("a certificate and its private key belong together: name both or none")
    if settings.client_ca is not None and settings.cert is None:
        raise UsageError("certificates of callers need one of the server: name it too")
    if not (settings.key or settings.client_ca or is_local(host)):
        raise UsageError(
            f"{host}: other machines could reach it; ask callers for a key or a certificate"
        )
    agents = Agents(trained, names, settings)
    async with AsyncExitStack() as stack:
        if grpc_port is not None:
            from orchestrion_remote.rpc_server import serving_grpc

            grpc_port = await stack.enter_async_context(
                serving_grpc(agents, host, grpc_port, settings)
            )
        if http_port is not None:
            from orchestrion_remote.http_server import serving_http

            http_port = await stack.enter_async_context(
                serving_http(agents, host, http_port, settings)
            )
        try:
            yield Serving(agents, grpc_port, http_port)
        finally:
            await agents.drain()
