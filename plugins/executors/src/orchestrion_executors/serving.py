"""What a worker process does."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys

from orchestrion import work
from orchestrion_executors.streams import StreamLink


def main(number: int) -> None:
    """Run episodes for the process at the other end of a socket; never returns.

    Args:
        number: the socket's file descriptor.
    """
    # Ctrl-C in a terminal reaches all processes; the leading one says what is to end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # What a component prints must not get into what the leading process prints.
    os.dup2(sys.stderr.fileno(), 1)
    asyncio.run(_serve(socket.socket(fileno=number)))
    sys.stderr.flush()
    os._exit(0)  # threads of agents that take long would hold it up


async def _serve(end: socket.socket) -> None:
    await work(StreamLink(*await asyncio.open_connection(sock=end)))
