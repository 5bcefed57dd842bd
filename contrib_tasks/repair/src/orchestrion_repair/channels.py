"""Conversations with the processes that run candidates, and two ways to start such processes."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from typing import IO, Any, Protocol

from orchestrion_repair.child import NUMBER, serve

__all__ = ["Channel", "ForkServer", "FreshInterpreters", "Gone", "Starter"]

JSON = Any


class Gone(Exception):
    """The child ended, fell silent or answered what it was not asked."""


class Channel:
    """A conversation with one child: a JSON line each way, capped in size and time."""

    def __init__(
        self,
        reader: IO[bytes],
        writer: IO[bytes],
        finish: Callable[[], int],
        kill: Callable[[], None],
        reply_bytes: int,
    ) -> None:
        self._reader, self._writer, self._finish, self._kill = reader, writer, finish, kill
        self._cap = reply_bytes
        self.uses = 0

    def send(self, *requests: JSON) -> None:
        """Requests, one a line; raises `Gone` if nobody listens."""
        self.uses += 1
        try:
            self._writer.write(b"".join(json.dumps(r).encode() + b"\n" for r in requests))
            self._writer.flush()
        except OSError as error:
            raise Gone("closed") from error

    def receive(self) -> JSON:
        """One reply. Anything that is not a JSON object in one line within the limits: `Gone`."""
        try:
            line = self._reader.readline(self._cap + 1)
            reply = json.loads(line) if line.endswith(b"\n") else None
        except TimeoutError as error:
            self._kill()
            raise Gone("OutOfTime") from error
        except Exception as error:  # hostile bytes may raise anything; all of it is a failure
            raise Gone("BadReply") from error
        if isinstance(reply, dict):
            return reply
        raise Gone("closed" if not line else "BadReply")

    def close(self) -> int:
        """End the conversation; the child's exit code, negative for a signal."""
        for file in (self._writer, self._reader):
            with contextlib.suppress(OSError):
                file.close()
        return self._finish()


class Starter(Protocol):
    """Starts processes for candidates."""

    def open(self, limits: Mapping[str, Any]) -> Channel:
        """A conversation with a new child."""
        ...

    def close(self) -> None:
        """End what it keeps."""
        ...


class ForkServer:
    """Starts children by forking a small process that has seen no job."""

    def __init__(self) -> None:
        self._start()

    def _start(self) -> None:
        self._control, other = socket.socketpair()
        self._pid = os.fork()
        if self._pid == 0:
            self._control.close()
            serve(other)
        other.close()

    def open(self, limits: Mapping[str, Any]) -> Channel:
        """A conversation with a new child."""
        mine, theirs = socket.socketpair()
        try:
            pid = self._fork(theirs)
        except (OSError, EOFError):  # a candidate killed the server: start another, once
            self._restart()
            pid = self._fork(theirs)
        theirs.close()
        mine.settimeout(limits["wall_seconds"])

        def kill() -> None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

        def finish() -> int:
            mine.close()
            return self._wait(pid, limits["wall_seconds"], kill)

        reader, writer = mine.makefile("rb"), mine.makefile("wb")
        return Channel(reader, writer, finish, kill, limits["reply_bytes"])

    def _fork(self, theirs: socket.socket) -> int:
        socket.send_fds(self._control, [NUMBER.pack(0)], [theirs.fileno()])
        return self._number()

    def _wait(self, pid: int, seconds: float, kill: Callable[[], None]) -> int:
        """The child's exit code; a child that does not end once its socket is closed is killed."""
        try:
            self._control.settimeout(seconds)
            self._control.sendall(NUMBER.pack(pid))
            try:
                return self._number()
            except TimeoutError:
                kill()
                return self._number()
            finally:
                self._control.settimeout(None)
        except (OSError, EOFError):
            self._restart()
            return -signal.SIGKILL

    def _number(self) -> int:
        data = self._control.recv(NUMBER.size, socket.MSG_WAITALL)
        if len(data) < NUMBER.size:
            raise EOFError
        return int(NUMBER.unpack(data)[0])

    def _restart(self) -> None:
        """A server that was started late may have seen a job: exec, do not fork."""
        self.close()
        self._control, other = socket.socketpair()
        code = (
            "import socket, sys; from orchestrion_repair.child import serve; "
            "serve(socket.socket(fileno=int(sys.argv[1])))"
        )
        self._pid = subprocess.Popen(
            [sys.executable, "-c", code, str(other.fileno())],
            pass_fds=[other.fileno()],
            stdin=subprocess.DEVNULL,
        ).pid
        other.close()

    def close(self) -> None:
        """End the server."""
        self._control.close()
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self._pid, 0)


class FreshInterpreters:
    """Starts each child as an interpreter of its own: for systems that cannot fork."""

    def open(self, limits: Mapping[str, Any]) -> Channel:
        """A conversation with a new child; the wall clock ends it."""
        process = subprocess.Popen(
            [sys.executable, "-m", "orchestrion_repair.worker", "child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        clock = threading.Timer(limits["wall_seconds"], process.kill)
        clock.start()

        def finish() -> int:
            code = process.wait()
            clock.cancel()
            return code

        assert process.stdin is not None
        assert process.stdout is not None
        return Channel(process.stdout, process.stdin, finish, process.kill, limits["reply_bytes"])

    def close(self) -> None:
        """Nothing is kept."""
