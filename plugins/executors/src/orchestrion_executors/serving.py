"""The main function of a worker process.

Its event loop has the guards of a command: a component that blocks it for longer than `run.timeout`
ends the worker, and no component may stop the loop or fork.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import socket
import sys

from orchestrion import work
from orchestrion.cli import in_loop
from orchestrion_executors.streams import StreamLink

_PR_SET_PDEATHSIG = 1


def main(number: int, leader: int) -> None:
    """Run episodes for the process at the other end of a socket; never returns.

    Args:
        number: the socket's file descriptor.
        leader: process id of the leading process.
    """
    _end_with(leader)
    # Programs that agents start must not hold it open: its end tells that this process has ended.
    os.set_inheritable(number, False)
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - for as long as the process lives
        os.dup2(sys.stderr.fileno(), 2)
    # Output of components must not mix with the output of the leading process.
    os.dup2(2, 1)
    code = 0
    try:
        in_loop(_serve(socket.socket(fileno=number)))
    except BaseException as error:
        print(f"a worker ends: {type(error).__name__}: {error}", file=sys.stderr)
        code = 1
    sys.stderr.flush()
    os._exit(code)  # do not wait for threads of agents


def _end_with(leader: int) -> None:
    """Let the system kill this process when the leading one ends, even if a component blocks."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != leader:  # it has ended already
        os._exit(0)


async def _serve(end: socket.socket) -> None:
    await work(StreamLink(*await asyncio.open_connection(sock=end)))
