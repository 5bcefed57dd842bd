"""Executors with a fault each, for the checks of the conformance kit to find."""

from __future__ import annotations

import asyncio
from typing import ClassVar

from attrs import frozen

from orchestrion import Executor, Link, LinkLost, work


class Here(Link):
    """One end of a link within this process."""

    def __init__(self, incoming: asyncio.Queue[bytes], outgoing: asyncio.Queue[bytes]) -> None:
        self.incoming, self.outgoing = incoming, outgoing
        self.work: asyncio.Task[None] | None = None

    def send(self, message: bytes) -> None:
        self.outgoing.put_nowait(message)

    async def receive(self) -> bytes:
        message = await self.incoming.get()
        if not message:
            raise LinkLost("closed")
        return message

    async def close(self) -> None:
        self.send(b"")
        if self.work is not None:
            await self.work


class Tampered(Here):
    """Changes what agents said on its way back."""

    async def receive(self) -> bytes:
        return (await super().receive()).replace(b"0.", b"9.")


@frozen
class InThisProcess(Executor):
    """Has no workers that can be lost: they are this process."""

    workers: int = 1
    tampers: bool = False

    async def start(self) -> Link:
        there, back = asyncio.Queue[bytes](), asyncio.Queue[bytes]()
        link = (Tampered if self.tampers else Here)(back, there)
        link.work = asyncio.create_task(work(Here(there, back)))
        return link


@frozen
class Tampering(InThisProcess):
    """Does not carry messages as they are."""

    tampers: bool = True


@frozen
class Unable(Executor):
    """Starts no worker."""

    workers: int = 1

    async def start(self) -> Link:
        raise LinkLost("there is none")


@frozen
class Reluctant(InThisProcess):
    """Starts one worker at once, and another one only when it has been asked so often."""

    workers: int = 2
    refusals: int = 7
    asked: ClassVar[list[bool]] = []

    async def start(self) -> Link:
        self.asked.append(True)
        if 1 < len(self.asked) <= self.refusals:
            raise LinkLost("not now")
        return await super().start()
