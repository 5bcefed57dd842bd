"""Conversations with sandboxed code for a process without an event loop.

For a judge of its own that is a plain loop, e.g. in a worker process. It looks after the wall
clock itself, and its runs have one process each.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import time
from collections.abc import Mapping
from typing import Any

from attrs import asdict, evolve

from orchestrion_sandbox.errors import SandboxError
from orchestrion_sandbox.interface import Limits, Profile, Program
from orchestrion_sandbox.launching import START_SECONDS, Mode, encode_program, is_filtered, launch

__all__ = ["BlockingBox", "BlockingRun"]

_DAYS = 30 * 86400.0


class BlockingBox:
    """Starts conversations as forks of one warm interpreter; a broken one is replaced."""

    def __init__(self, backend: str, mode: Mode, profile: Profile) -> None:
        self.backend = backend
        self._mode, self._profile = mode, profile
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None

    def start(self, more: Mapping[str, Any], limits: Limits) -> BlockingRun:
        """A conversation with what `more["answers"]` names, see `Profile.modules`.

        Raises:
            SandboxError: if the sandbox failed twice.
        """
        payload = encode_program(Program(""), more)
        limits = evolve(limits, processes=1, wall_seconds=_DAYS)
        message = json.dumps({"limits": asdict(limits)}).encode()
        for last in (False, True):
            try:
                return self._start(message, payload)
            except (OSError, SandboxError) as error:
                self.close()
                if last:
                    raise SandboxError(f"the sandbox {self.backend!r} failed: {error}") from error
        raise AssertionError("unreachable")

    def open(self) -> None:
        """Start the interpreter, if it is not there.

        Raises:
            SandboxError: if it cannot be started here.
        """
        if self._control is not None:
            return
        self._process, self._control = launch(self._mode, self._profile)
        self._control.settimeout(START_SECONDS)
        try:
            is_filtered(self._control.recv(1 << 16), self.backend)
        except (OSError, SandboxError) as error:
            self.close()
            raise SandboxError(str(error)) from error

    def close(self) -> None:
        """End the interpreter and all that runs in it."""
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _start(self, message: bytes, payload: bytes) -> BlockingRun:
        from orchestrion_sandbox.inside.zygote import sealed

        self.open()
        assert self._control is not None
        status, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        channel, other = socket.socketpair()
        null = os.open(os.devnull, os.O_RDWR)
        file = sealed(payload)
        try:
            fds = [theirs.fileno(), file, null, null, null, other.fileno()]
            socket.send_fds(self._control, [message], fds)
        except OSError:
            status.close()
            channel.close()
            raise
        finally:
            os.close(null)
            os.close(file)
            theirs.close()
            other.close()
        return BlockingRun(status, channel)


class BlockingRun:
    """One conversation: a socket to its code, and the way to end it."""

    def __init__(self, status: socket.socket, channel: socket.socket) -> None:
        self.channel = channel
        self._status = status
        self._seen: dict[str, Any] = {}
        self._pidfd: int | None = None
        self._lost = False
        # Until it stands behind its limits, nothing is said to it.
        while "ready" not in self._seen:
            if not self._hear(START_SECONDS):
                self._close()
                reason = self._seen.get("failed", "a run ended before it was ready")
                raise SandboxError(str(reason))

    def kill(self) -> None:
        """End it now."""
        if self._pidfd is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    def finish(self, seconds: float) -> int:
        """Close the channel and wait; the exit code, negative for the signal that ended it.

        Raises:
            SandboxError: if nobody saw it end, which is no fault of what ran in it.
        """
        self.channel.close()
        until = time.monotonic() + seconds
        while "ended" not in self._seen:
            left = until - time.monotonic()
            if left <= 0:
                self.kill()
                left = START_SECONDS
            if not self._hear(left) and (self._lost or left == START_SECONDS):
                break
        self._close()
        ended = self._seen.get("ended")
        if ended is None:
            raise SandboxError("the sandbox was gone before a run of it had ended")
        return int(ended["exit"]) if ended["signal"] is None else -int(ended["signal"])

    def _hear(self, seconds: float) -> bool:
        """Take in one message on the status channel; false if none came."""
        if not select.select([self._status], [], [], seconds)[0]:
            return False
        data, fds, _, _ = socket.recv_fds(self._status, 1 << 16, 1)
        if fds:
            self._pidfd = fds[0]
        if not data:
            self._lost = True
            return False
        self._seen |= json.loads(data)
        return "failed" not in self._seen

    def _close(self) -> None:
        self._status.close()
        self.channel.close()
        if self._pidfd is not None:
            os.close(self._pidfd)
            self._pidfd = None
