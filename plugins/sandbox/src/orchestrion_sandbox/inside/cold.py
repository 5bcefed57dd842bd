"""The first code of an interpreter that another program (bubblewrap, an engine) put in a sandbox.

It has only standard files. Standard input begins with its job: a length, and JSON with the limits,
the payload and a token. It writes the token to standard error when all limits are set, before any
code of the program runs; what follows there is the program's.
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
from .zygote import limit, make_module, sealed

_FAILED = 70
_AGAIN = linux.MS_REMOUNT | linux.MS_NOSUID | linux.MS_NODEV


def main(job: dict[str, Any]) -> NoReturn:
    """Set limits, report it, run the program."""
    try:
        for name in set(os.environ) - set(program.ENVIRONMENT):
            del os.environ[name]
        payload = sealed(json.dumps(job["payload"]).encode())
        sys.path += job["path"]
        for name in job["preload"]:
            __import__(name)
        for name, source in job["modules"].items():
            make_module(name, source)
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
    """Fork a process that copies a conversation to and from standard files; return its channel.

    The program's own output goes to standard error.
    """
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid:
        theirs.close()
        _copy(ours)
        _, status = os.waitpid(pid, 0)
        code = os.waitstatus_to_exitcode(status)
        os._exit(code if code >= 0 else 128 - code)
    ours.close()
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(2, 1)
    return theirs.detach()


def _copy(connection: socket.socket) -> None:
    """Copy until the program closes its side."""
    is_open = True
    while True:
        sources: list[Any] = [connection, *([0] if is_open else [])]
        for ready in select.select(sources, [], [])[0]:
            if ready == 0:
                data = os.read(0, 1 << 16)
                is_open = bool(data)
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
