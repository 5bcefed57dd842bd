"""The supervisor of a warm interpreter: each run is a fork of it, see `inside/zygote.py`."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import tempfile
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

from attrs import asdict

from orchestrion_sandbox.interface import Limits, Profile, Program, SandboxError
from orchestrion_sandbox.launching import (
    LEVELS,
    START_SECONDS,
    Mode,
    encode_program,
    is_filtered,
    launch,
)
from orchestrion_sandbox.supervising import Box, SupervisedRun

LATE_SECONDS = 1.0
"""Seconds after its time limit until this process kills a run that the sandbox did not end."""
GRACE_SECONDS = 5.0
"""Seconds that a killed run gets to end before its interpreter is ended too."""


class WarmBox(Box):
    """Runs programs as forks of one warm interpreter; a broken one is replaced."""

    def __init__(self, backend: str, mode: Mode, profile: Profile) -> None:
        super().__init__(backend, LEVELS[mode])
        self.mode, self._profile = mode, profile
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._starting = asyncio.Lock()
        self._closed = False

    @classmethod
    @contextlib.asynccontextmanager
    async def opened(cls, backend: str, mode: Mode, profile: Profile) -> AsyncIterator[WarmBox]:
        """Start the interpreter.

        Raises:
            SandboxError: if it cannot work here, with the reason.
        """
        box = cls(backend, mode, profile)
        try:
            await box._start()
            yield box
        finally:
            box._closed = True
            box._stop()

    async def _begin(
        self, program: Program, limits: Limits, stdin: bytes, harness: Mapping[str, Any] | None
    ) -> WarmRun:
        if self.mode == "landlock" and program.files:
            raise SandboxError(
                "the sandbox 'landlock' has no folder for files; use one of level 3, e.g. "
                "`sandbox: {use: auto, level: 3}`"
            )
        payload = encode_program(program, harness)
        run = WarmRun(self, limits)
        try:
            await run.start(payload, stdin, harness is not None)
        except BaseException:
            run.abandon()
            raise
        return run

    async def send(self, message: bytes, fds: list[int]) -> socket.socket:
        """Send the job of a run to the interpreter; return the socket that took it."""
        control = await self._start()
        try:
            socket.send_fds(control, [message], fds)
        except OSError:  # the interpreter has ended: once more with a new one
            self._stop()
            control = await self._start()
            socket.send_fds(control, [message], fds)
        return control

    async def _start(self) -> socket.socket:
        async with self._starting:
            if self._closed:
                raise SandboxError(f"the sandbox {self.backend!r} has been closed")
            if self._control is None:
                self._control = await self._launch()
            return self._control

    async def _launch(self) -> socket.socket:
        # Quick, and on this thread: the interpreter ends with the thread that started it.
        self._process, control = launch(self.mode, self._profile)
        control.setblocking(False)
        try:
            async with asyncio.timeout(START_SECONDS):
                data = await asyncio.get_running_loop().sock_recv(control, 1 << 16)
            if not is_filtered(data, self.backend) and self.mode == "namespaces":
                self.level = 2  # no filter of system calls is known for this machine
        except BaseException as error:
            control.close()
            self._stop()
            if isinstance(error, TimeoutError):
                late = f"the sandbox {self.backend!r} did not start in {START_SECONDS:g} seconds"
                raise SandboxError(late) from None
            raise
        return control

    def _stop(self) -> None:
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def broken(self, control: socket.socket | None) -> None:
        """Replace the interpreter for the next run, after a run without a report."""
        if control is self._control:
            self._stop()


class WarmRun(SupervisedRun):
    """One fork, seen through its status channel and the pipes of its output."""

    def __init__(self, box: WarmBox, limits: Limits) -> None:
        super().__init__(box, limits)
        self._warm = box
        self._control: socket.socket | None = None
        self._status: socket.socket | None = None
        self._pipes: dict[int, bytearray] = {}
        self._open: set[int] = set()
        self._pidfd: int | None = None
        self._seen: dict[str, Any] = {}
        self._resources = contextlib.ExitStack()
        """What is released when the run is over: pipes, timers, its folder."""

    async def start(self, payload: bytes, stdin: bytes, conversation: bool) -> None:
        """Start the run and watch it from then on."""
        job: dict[str, Any] = {"limits": asdict(self._limits)}
        if self._warm.mode == "unconfined":  # no folder of its own but one of the host's
            job["folder"] = self._resources.enter_context(
                tempfile.TemporaryDirectory(prefix="orchestrion-run-", ignore_cleanup_errors=True)
            )
        fds = self._descriptors(payload, stdin)
        try:
            if conversation:
                ours, theirs = socket.socketpair()
                fds.append(theirs.detach())
                limit = self._limits.output_bytes
                self._reader, self._writer = await asyncio.open_connection(sock=ours, limit=limit)
            self._control = await self._warm.send(json.dumps(job).encode(), fds)
        finally:
            for fd in fds:
                os.close(fd)
        assert self._status is not None
        self._open = set(self._pipes)
        self._loop.add_reader(self._status, self._on_status)
        for pipe in self._pipes:
            self._loop.add_reader(pipe, self._on_output, pipe)
        reason = f"it took more than {self._limits.wall_seconds:g} seconds"
        late = self._limits.wall_seconds + LATE_SECONDS
        timer = self._loop.call_later(late, self.kill, "timeout", reason)
        self._resources.callback(timer.cancel)

    def _descriptors(self, payload: bytes, stdin: bytes) -> list[int]:
        """Return the program's ends: status, payload, standard input, output and error."""
        from orchestrion_sandbox.inside.zygote import sealed

        self._status, status = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._status.setblocking(False)
        fds = [status.detach(), sealed(payload), sealed(stdin)]
        for output in (self._stdout, self._stderr):
            reader, writer = os.pipe()
            os.set_blocking(reader, False)
            self._resources.callback(os.close, reader)
            self._pipes[reader] = output
            fds.append(writer)
        return fds

    def abandon(self) -> None:
        """Release the resources of a run that could not be started."""
        self._close()
        if self._status is not None:
            self._status.close()
        self._resources.close()

    def _kill(self) -> None:
        self._resources.callback(self._loop.call_later(GRACE_SECONDS, self._give_up).cancel)
        if self._pidfd is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
            self._kill_group(_pid_of(self._pidfd))

    def _kill_group(self, pid: int | None) -> None:
        if self._box.level < 2 and pid:  # no namespace that ends with its first process
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)

    def _give_up(self) -> None:
        self._warm.broken(self._control)

    def _on_output(self, pipe: int) -> bool:
        """Read available output; return whether there may be more."""
        try:
            data = os.read(pipe, 1 << 16)
        except BlockingIOError:
            return False
        self._keep(self._pipes[pipe], data)
        if not data:
            self._loop.remove_reader(pipe)
            self._open.discard(pipe)
            self._finish_if_over()
        return bool(data) and not self._truncated

    def _on_status(self) -> None:
        assert self._status is not None
        try:
            data, fds, _, _ = socket.recv_fds(self._status, 1 << 16, 1)
        except BlockingIOError:
            return
        except OSError:
            data, fds = b"", []
        if fds:
            self._pidfd = fds[0]
            self._resources.callback(os.close, self._pidfd)
            if self._why is not None:  # killed before it could be reached
                self._kill()
        if data:
            self._seen |= json.loads(data)
            if self._why is None and self._seen.get("why"):
                self._why = tuple(self._seen["why"])
            return
        self._loop.remove_reader(self._status)
        self._status.close()
        self._status = None
        if "ended" not in self._seen:  # its stage is gone, but perhaps not the run
            self.kill("sandbox_failed", "nobody saw the run end")
            if self._pidfd is None:
                self._warm.broken(self._control)
        if self._box.level < 2:  # processes that it left behind may hold its output open
            for pipe in list(self._open):
                self._loop.remove_reader(pipe)
                while self._on_output(pipe):
                    pass
            self._open.clear()
        self._finish_if_over()

    def _finish_if_over(self) -> None:
        if self._status is not None or self._open or self.ended.done():
            return
        self._kill_group(self._seen.get("pid"))
        self._resources.close()
        ended, failed = self._seen.get("ended"), ""
        if "ready" not in self._seen:
            failed = self._seen.get("failed", "it ended before it was ready")
            if self._why is not None and self._why[0] == "timeout" and "failed" not in self._seen:
                failed = "it was not ready when its time was up"
        elif not ended:
            failed = "nobody saw the run end"
        ended = ended or {"exit": None, "signal": None, "cpu": 0.0}
        result = self._set_result(ended["exit"], ended["signal"], ended["cpu"], failed)
        stopped_early = self._cancelled and "ended" in self._seen  # by us, which breaks nothing
        if result.status == "sandbox_failed" and not stopped_early:
            self._warm.broken(self._control)


def _pid_of(pidfd: int) -> int | None:
    for line in Path(f"/proc/self/fdinfo/{pidfd}").read_text().splitlines():
        if line.startswith("Pid:"):
            return max(0, int(line[4:]))
    return None
