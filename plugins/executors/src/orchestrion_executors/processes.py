"""Workers as processes of this machine, each at the other end of a pair of sockets.

They are new interpreters, and no forks: threads and libraries of this process stay out of them.
Nor are they started by `multiprocessing`, which would import the user's script again.
"""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from asyncio.subprocess import DEVNULL, Process
from contextlib import suppress
from typing import Annotated

from attrs import frozen
from msgspec import Meta

from orchestrion import Executor, LinkLost
from orchestrion_executors.streams import StreamLink

PATIENCE = 10.0
"""Seconds that a worker has to close its components before it is killed."""


@frozen
class Processes(Executor):
    """Runs episodes in processes of this machine.

    Args:
        workers: how many processes.
    """

    workers: Annotated[int, Meta(ge=1)] = 2

    async def start(self) -> WorkerProcess:
        """See `Executor.start`."""
        ours, theirs = socket.socketpair()
        # Modules are found as here; not by PYTHONPATH, which what components start would inherit.
        code = (
            f"import sys; sys.path[:] = {sys.path!r}\n"
            f"from orchestrion_executors.serving import main; main({theirs.fileno()})"
        )
        with theirs:
            try:
                process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-c", code),
                    stdin=DEVNULL,
                    pass_fds=[theirs.fileno()],
                )
            except OSError as error:
                ours.close()
                raise LinkLost(f"it cannot be started: {error}") from error
        return WorkerProcess(*await asyncio.open_connection(sock=ours), process)


class WorkerProcess(StreamLink):
    """The leading end of a link to a process."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, process: Process
    ) -> None:
        super().__init__(reader, writer)
        self.process = process

    async def why(self) -> str:
        """Return how the process ended."""
        code = await self.process.wait()
        if code >= 0:
            return f"it ended with exit code {code}"
        return f"it was killed by signal {signal.Signals(-code).name}"

    async def close(self) -> None:
        """Close the link, and wait for the end of the process."""
        await super().close()
        try:
            async with asyncio.timeout(PATIENCE):
                await self.process.wait()
        except TimeoutError:
            with suppress(ProcessLookupError):
                self.process.kill()
            await self.process.wait()
