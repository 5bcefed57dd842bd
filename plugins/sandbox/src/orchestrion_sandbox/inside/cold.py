"""The first code of an interpreter that another program (bubblewrap, an engine) put in a sandbox.

It has standard files and nothing else. What it is to do comes first on standard input: a length,
and JSON with the limits, the payload and a token. The token goes to standard error when all limits
stand, and before any of the program's code runs; what follows there is the program's.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import sys
from typing import Any, NoReturn

from . import linux, program, root, seccomp
from .zygote import limit, sealed

__all__ = ["main"]

_FAILED = 70
_AGAIN = linux.MS_REMOUNT | linux.MS_NOSUID | linux.MS_NODEV


def main(job: dict[str, Any]) -> NoReturn:
    """Set limits, say so, run the program."""
    try:
        for name in set(os.environ) - set(program.ENVIRONMENT):
            del os.environ[name]
        payload = sealed(json.dumps(job["payload"]).encode())
        sys.path += job["path"]
        for name in job["preload"]:
            __import__(name)
        channel = _channel() if job["conversation"] else None
        if job["own_folder"]:
            linux.mount("scratch", root.SCRATCH, "", _AGAIN, root.scratch_options(job["limits"]))
        linux.drop_capabilities()
        linux.no_new_privileges()
        limit(job["limits"], "cold")
        filters = seccomp.build(linux.MACHINE)
        if filters is not None:
            linux.set_filter(filters)
        os.write(2, job["token"].encode() + b"\n")
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.write(2, f"{type(error).__name__}: {error}\n".encode())
        os._exit(_FAILED)
    program.run(payload, channel)


def _channel() -> int:
    """A conversation goes over standard files, which a process of its own carries.

    The program's own output goes to standard error.
    """
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid:
        theirs.close()
        _carry(ours)
        _, status = os.waitpid(pid, 0)
        code = os.waitstatus_to_exitcode(status)
        os._exit(code if code >= 0 else 128 - code)
    ours.close()
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(2, 1)
    return theirs.detach()


def _carry(connection: socket.socket) -> None:
    """Until either side has closed."""
    asked = True
    while True:
        sources: list[Any] = [connection, *([0] if asked else [])]
        for ready in select.select(sources, [], [])[0]:
            if ready == 0:
                data = os.read(0, 1 << 16)
                asked = bool(data)
                if data:
                    connection.sendall(data)
                else:
                    connection.shutdown(socket.SHUT_WR)
                continue
            data = connection.recv(1 << 16)
            if not data:
                sys.stdout.flush()
                return
            view = memoryview(data)
            while view:
                view = view[os.write(1, view) :]
