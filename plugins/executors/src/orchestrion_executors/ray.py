"""Workers that are actors on the nodes of a Ray cluster.

Ray places them and carries messages. It restarts nothing: core runs the episodes of a lost worker
again, as it does for all executors.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from importlib.util import find_spec
from logging import ERROR
from typing import Annotated, Any

from attrs import frozen
from msgspec import Meta

from orchestrion import Executor, Link, LinkLost, OpenContext, UsageError, work

START = 120.0
"""Seconds in which an actor must be placed and answer."""


@frozen
class Ray(Executor):
    """Runs episodes in actors of a Ray cluster.

    The nodes need the same versions of Orchestrion and its plugins. What the config holds, secrets
    too, goes to them through Ray.

    Args:
        workers: how many actors.
        address: of the cluster; "local" begins one on this machine and ends it with the run; null
            means that of RAY_ADDRESS, or "local" where that is not set.
        cpus: how many processors an actor asks for.
        gpus: how many GPUs an actor asks for.
    """

    workers: Annotated[int, Meta(ge=1)] = 2
    address: Annotated[str, Meta(min_length=1)] | None = None
    cpus: Annotated[float, Meta(ge=0)] = 1.0
    gpus: Annotated[float, Meta(ge=0)] = 0.0

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[Executor]:
        """Connect to the cluster."""
        if find_spec("ray") is None:
            raise UsageError(
                f"{ctx.path}: ray is not installed; pip install 'orchestrion-executors[ray]'"
            )
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        import ray

        begun = not ray.is_initialized()
        if begun:
            address = self.address or ctx.environment.get("RAY_ADDRESS") or "local"
            own: dict[str, Any] = {"include_dashboard": False} if address == "local" else {}
            try:
                ray.init(address, log_to_driver=False, logging_level=ERROR, **own)
            except Exception as error:  # of a node that did not start in time, no class says more
                raise UsageError(f"{ctx.path}.address: {address}: {error}") from error
        try:
            yield self
        finally:
            if begun:
                ray.shutdown()

    async def start(self) -> ActorLink:
        import ray

        options: dict[str, Any] = {
            "num_cpus": self.cpus,
            "num_gpus": self.gpus,
            "scheduling_strategy": "SPREAD",
        }
        # One call always waits for messages to send, while other calls bring messages.
        options |= {"max_concurrency": 100, "max_restarts": 0}
        actor: Any = ray.remote(Actor)
        handle = actor.options(**options).remote(list(sys.path))
        link = ActorLink(handle)
        try:
            async with asyncio.timeout(START):
                await handle.begin.remote()
        except TimeoutError:
            await link.close()
            raise LinkLost(
                f"no node of the cluster had {self.cpus:g} processors and {self.gpus:g} GPUs for "
                f"it in {START:g} s"
            ) from None
        except ray.exceptions.RayError as error:
            await link.close()
            raise LinkLost(_in_short(error)) from error
        return link


class ActorLink(Link):
    """The leading end of a link to an actor.

    Args:
        handle: of the actor.
    """

    def __init__(self, handle: Any) -> None:
        self._handle = handle
        self._sent = 0
        self._waiting: list[bytes] = []

    def send(self, message: bytes) -> None:
        self._handle.put.remote(self._sent, message)
        self._sent += 1

    async def receive(self) -> bytes:
        import ray

        if not self._waiting:
            try:
                self._waiting = (await self._handle.take.remote())[::-1]
            except ray.exceptions.RayError as error:
                raise LinkLost(_in_short(error)) from None
            if not self._waiting:
                raise LinkLost("it has ended")
        return self._waiting.pop()

    async def close(self) -> None:
        import ray

        with suppress(ray.exceptions.RayError, TimeoutError):
            async with asyncio.timeout(10):
                await self._handle.end.remote()
        ray.kill(self._handle)


class Actor:
    """A worker, and its end of the link.

    Args:
        path: `sys.path` of the leading process.
    """

    def __init__(self, path: list[str]) -> None:
        sys.path.extend(entry for entry in path if entry not in sys.path)
        self._link = _Mailbox()
        self._work: asyncio.Task[None] | None = None
        self._early: dict[int, bytes] = {}
        self._next = 0

    async def begin(self) -> None:
        """Begin to work."""
        self._work = asyncio.create_task(work(self._link))

    async def put(self, number: int, message: bytes) -> None:
        """Receive a message; messages are numbered, because calls may overtake each other."""
        self._early[number] = message
        while self._next in self._early:
            self._link.incoming.put_nowait(self._early.pop(self._next))
            self._next += 1

    async def take(self) -> list[bytes]:
        """Wait for messages and return them; return none after the last."""
        return await self._link.outgoing()

    async def end(self) -> None:
        """Close the components."""
        self._link.incoming.put_nowait(None)
        if self._work is not None:
            await self._work


class _Mailbox(Link):
    """A link whose other end reads and writes by calls of the actor."""

    def __init__(self) -> None:
        self.incoming: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._outgoing: list[bytes] = []
        self._wake = asyncio.Event()
        self._closed = False

    def send(self, message: bytes) -> None:
        self._outgoing.append(message)
        self._wake.set()

    async def receive(self) -> bytes:
        message = await self.incoming.get()
        if message is None:
            raise LinkLost("closed")
        return message

    async def outgoing(self) -> list[bytes]:
        """Wait for sent messages and return them; return none once it is closed."""
        await self._wake.wait()
        messages, self._outgoing = self._outgoing, []
        if not self._closed:
            self._wake.clear()
        return messages

    async def close(self) -> None:
        self._closed = True
        self._wake.set()


def _in_short(error: Exception) -> str:
    return " ".join(str(error).split())[:300]
