"""Workers that are processes of this machine, each linked by a pair of sockets.

They are new interpreters, not forks, so they have no threads or libraries of this process.
`multiprocessing` does not start them, because it would import the user's script again.
"""

from __future__ import annotations

import asyncio
import os
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

PATIENCE = 5.0
"""Seconds that a worker has to close its components before it is killed."""
MOST = 1024
"""Maximum number of workers."""
REST = 0.5
"""Seconds to read what a process sent before it ended."""
_NAMES = {number.value: number.name for number in signal.Signals}


@frozen
class Processes(Executor):
    """Runs episodes in processes of this machine.

    Args:
        workers: how many processes.
    """

    workers: Annotated[int, Meta(ge=1, le=MOST)] = 2

    async def start(self) -> WorkerProcess:
        ours, theirs = socket.socketpair()
        # The same path as here. Not by PYTHONPATH: programs that components start would inherit it.
        code = (
            f"import sys; sys.path[:] = {sys.path!r}\n"
            "from orchestrion_executors.serving import main\n"
            f"main({theirs.fileno()}, {os.getpid()})"
        )
        with theirs:
            try:
                process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-c", code),
                    stdin=DEVNULL,
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,  # Ctrl-C is for the leading process
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
        self._watching = asyncio.create_task(self._watch())

    async def _watch(self) -> None:
        """End the stream when the process ends; programs that it started may hold its end open."""
        await self.process.wait()
        await asyncio.sleep(REST)
        self._writer.transport.abort()

    async def why(self) -> str:
        """Return how the process ended."""
        code = await self.process.wait()
        if code >= 0:
            return f"it ended with exit code {code}"
        return f"it was killed by signal {_NAMES.get(-code, -code)}"

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
        finally:
            self._watching.cancel()
