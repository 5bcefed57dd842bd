"""A link over a stream of bytes: each message after its length."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from orchestrion import Link, LinkLost

_LENGTH = 8
"""Number of bytes that hold the length of a message."""


class StreamLink(Link):
    """One end of a link.

    Args:
        reader, writer: of the stream.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    def send(self, message: bytes) -> None:
        if not self._writer.is_closing():
            self._writer.writelines((len(message).to_bytes(_LENGTH, "little"), message))

    async def receive(self) -> bytes:
        try:
            length = await self._reader.readexactly(_LENGTH)
            return await self._reader.readexactly(int.from_bytes(length, "little"))
        except (asyncio.IncompleteReadError, OSError):
            raise LinkLost(await self.why()) from None

    async def why(self) -> str:
        """Return why the other end is gone."""
        return "the stream has ended"

    async def close(self) -> None:
        self._writer.close()
        with suppress(OSError):
            await self._writer.wait_closed()
