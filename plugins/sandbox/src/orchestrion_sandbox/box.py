"""The supervisor of a warm interpreter: it starts runs, watches them and says how they ended."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, Literal

from attrs import asdict

from orchestrion_sandbox.errors import ConversationEnded, SandboxError
from orchestrion_sandbox.interface import NO_LIMIT_GIVEN, Limits, Profile, Program, Result, Status
from orchestrion_sandbox.launching import (
    HARNESS,
    LEVELS,
    START_SECONDS,
    Mode,
    encode_program,
    hello,
    launch,
    processors,
)

__all__ = ["Mode", "Run", "ZygoteBox"]

LATE_SECONDS = 1.0
"""How long after its limit this process kills a run that the supervisor inside did not end."""
GRACE_SECONDS = 5.0
"""How long a run may take to be gone once it was ended, before its interpreter goes too."""


class ZygoteBox:
    """Runs programs as forks of one warm interpreter; a broken one is replaced.

    Open with `opened`. Safe for any number of concurrent runs of one event loop; at most one a
    processor is under way at a time. A judge, which needs conversations, takes a place in `slots`
    for all of a verdict's, so that two verdicts cannot wait for one another.
    """

    def __init__(self, backend: str, mode: Mode, profile: Profile) -> None:
        self.backend, self.level = backend, LEVELS[mode]
        self.mode, self._profile = mode, profile
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._starting = asyncio.Lock()
        self._closed = False
        self._beside: dict[str, ZygoteBox] = {}
        self.slots = asyncio.Semaphore(processors())

    @classmethod
    @contextlib.asynccontextmanager
    async def opened(cls, backend: str, mode: Mode, profile: Profile) -> AsyncIterator[ZygoteBox]:
        """A box that works, or `SandboxError` with the reason."""
        box = cls(backend, mode, profile)
        try:
            await box._start()
            yield box
        finally:
            box._close()

    def beside(self, profile: Profile) -> ZygoteBox:
        """A box of the same kind with another profile, which is closed with this one.

        It starts with its first run, and has the same places: who has one of this box has one of
        that.
        """
        key = repr(profile)
        if key not in self._beside:
            self._beside[key] = ZygoteBox(self.backend, self.mode, profile)
            self._beside[key].slots = self.slots
        return self._beside[key]

    def _close(self) -> None:
        self._closed = True
        self._stop()
        for box in self._beside.values():
            box._close()

    # ------------------------------------------------------------ runs

    async def run(
        self, program: Program, stdin: bytes = b"", limits: Limits = NO_LIMIT_GIVEN
    ) -> Result:
        """Run a program to its end; a sandbox that failed is replaced and the run tried again."""
        payload = self._encoded(program)
        result = await self._once(payload, stdin, limits)
        if result.status == "sandbox_failed":
            result = await self._once(payload, stdin, limits)
        if result.status == "sandbox_failed":
            raise SandboxError(f"the sandbox {self.backend!r} failed twice: {result.reason}")
        return result

    @contextlib.asynccontextmanager
    async def converse(
        self,
        program: Program,
        limits: Limits = NO_LIMIT_GIVEN,
        harness: Mapping[str, Any] | None = None,
    ) -> AsyncIterator[Run]:
        """A run that is asked and answers over a channel of its own."""
        payload = self._encoded(program, {"answers": HARNESS, **(harness or {})})
        run = await self._begin(payload, b"", limits, conversation=True)
        try:
            yield run
        finally:
            run.close()
            await asyncio.shield(run.ended)

    def _encoded(self, program: Program, more: Mapping[str, Any] | None = None) -> bytes:
        if self.mode == "landlock" and program.files:
            raise SandboxError(
                "the sandbox 'landlock' has no folder for files; use one of level 3, e.g. "
                "`sandbox: {use: auto, level: 3}`"
            )
        return encode_program(program, more)

    async def _once(self, payload: bytes, stdin: bytes, limits: Limits) -> Result:
        async with self.slots:
            run = await self._begin(payload, stdin, limits)
            try:
                return await asyncio.shield(run.ended)
            finally:
                run.kill("cancelled")
                run.close()
                await asyncio.shield(run.ended)  # its place is free when it is gone

    async def _begin(
        self, payload: bytes, stdin: bytes, limits: Limits, conversation: bool = False
    ) -> Run:
        run = Run(self, limits)
        try:
            job: dict[str, Any] = {"limits": asdict(limits)}
            if self.mode == "unconfined":
                job["folder"] = run.make_folder()
            message = json.dumps(job).encode()
            fds = run.descriptors(payload, stdin, conversation)
            try:
                run.control = await self._send(message, fds)
            finally:
                for fd in fds:
                    os.close(fd)
        except BaseException:
            run.abandon()
            raise
        run.watch()
        return run

    # ------------------------------------------------------------ the warm interpreter

    async def _send(self, message: bytes, fds: list[int]) -> socket.socket:
        """Ask for a run; the socket of the interpreter that took it."""
        control = await self._start()
        try:
            socket.send_fds(control, [message], fds)
        except OSError:  # it has ended: once more with a new one
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
        self._process, ours = launch(self.mode, self._profile)
        ours.setblocking(False)
        try:
            async with asyncio.timeout(START_SECONDS):
                data = await asyncio.get_running_loop().sock_recv(ours, 1 << 16)
            if not hello(data, self.backend) and self.mode == "namespaces":
                self.level = 2  # no filter of system calls is known for this machine
        except TimeoutError:
            ours.close()
            self._stop()
            raise SandboxError(f"the sandbox {self.backend!r} did not start in time") from None
        except BaseException:
            ours.close()
            self._stop()
            raise
        return ours

    def _stop(self) -> None:
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def broken(self, control: socket.socket | None) -> None:
        """Called by a run that ended without a report: the next one gets a new interpreter."""
        if control is self._control:
            self._stop()


class Run:
    """One run under way: its descriptors, its timers, and what was seen of it."""

    def __init__(self, box: ZygoteBox, limits: Limits) -> None:
        self._box, self._limits = box, limits
        self.control: socket.socket | None = None
        self._loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[Result] = self._loop.create_future()
        self._output: dict[int, bytearray] = {}
        self._streams: list[int] = []
        self._status: socket.socket | None = None
        self._channel: socket.socket | None = None
        self._pidfd: int | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._why: tuple[Status, str] | None = None
        self._seen: dict[str, Any] = {}
        self._truncated = self._cancelled = False
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._began = time.monotonic()
        self._heard = bytearray()

    # ------------------------------------------------------------ setting up

    def make_folder(self) -> str:
        """A folder on the host, for a backend without one of its own."""
        self._folder = tempfile.TemporaryDirectory(
            prefix="orchestrion-run-", ignore_cleanup_errors=True
        )
        return self._folder.name

    def descriptors(self, payload: bytes, stdin: bytes, conversation: bool) -> list[int]:
        """The program's ends, to be sent and then closed here."""
        from orchestrion_sandbox.inside.zygote import sealed

        self._status, status = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._status.setblocking(False)
        fds = [status.detach(), sealed(payload), sealed(stdin)]
        for _ in ("stdout", "stderr"):
            reader, writer = os.pipe()
            os.set_blocking(reader, False)
            self._streams.append(reader)
            self._output[reader] = bytearray()
            fds.append(writer)
        if conversation:
            self._channel, channel = socket.socketpair()
            self._channel.setblocking(False)
            fds.append(channel.detach())
        return fds

    def watch(self) -> None:
        """From now on the run is looked after."""
        assert self._status is not None
        self._open = set(self._streams)
        self._loop.add_reader(self._status, self._hear_status)
        for stream in self._streams:
            self._loop.add_reader(stream, self._hear_output, stream)
        limits = self._limits
        reason = f"it took more than {limits.wall_seconds:g} seconds"
        late = limits.wall_seconds + LATE_SECONDS
        self._timer = self._loop.call_later(late, self.kill, "timeout", reason)

    def abandon(self) -> None:
        """Never started: nothing will be heard of it."""
        for stream in self._streams:
            os.close(stream)
        for connection in (self._status, self._channel):
            if connection is not None:
                connection.close()
        if self._folder is not None:
            self._folder.cleanup()

    # ------------------------------------------------------------ watching

    def kill(self, status: Status | Literal["cancelled"], reason: str = "") -> None:
        """End the run, for a reason that is its status."""
        if self.ended.done():
            return
        self._cancelled |= status == "cancelled"
        if self._why is None:
            self._why = ("timeout" if status == "cancelled" else status, reason)
            self._loop.call_later(GRACE_SECONDS, self._give_up)
        if self._pidfd is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
            if self._box.level < 2 and (pid := self._pid()):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(pid, signal.SIGKILL)

    def _give_up(self) -> None:
        """It should have been gone long ago: all of its interpreter goes."""
        if not self.ended.done():
            self._box.broken(self.control)

    def _pid(self) -> int | None:
        return _pid_of(self._pidfd) if self._pidfd is not None else None

    def _hear_output(self, stream: int) -> bool:
        """Take in what is there; whether there may be more."""
        try:
            data = os.read(stream, 1 << 16)
        except BlockingIOError:
            return False
        kept = self._output[stream]
        room = self._limits.output_bytes - len(kept)
        kept += data[:room]
        if len(data) > room:
            self._truncated = True
            self.kill("flood", f"it wrote more than {self._limits.output_bytes} bytes")
        if not data:
            self._loop.remove_reader(stream)
            self._open.discard(stream)
            self._finish_if_over()
        return bool(data) and not self._truncated

    def _hear_status(self) -> None:
        assert self._status is not None
        try:
            data, fds, _, _ = socket.recv_fds(self._status, 1 << 16, 1)
        except BlockingIOError:
            return
        except OSError:
            data, fds = b"", []
        if fds:
            self._pidfd = fds[0]
            if self._why is not None:  # ended before it could be reached
                self.kill(*self._why)
        if data:
            self._seen |= json.loads(data)
            if self._why is None and self._seen.get("why"):
                self._why = tuple(self._seen["why"])
            return
        self._loop.remove_reader(self._status)
        self._status.close()
        self._status = None
        if "ended" not in self._seen:  # who was to see its end is gone, but perhaps not the run
            self.kill("sandbox_failed", "nobody saw the run end")
            if self._pidfd is None:
                self._box.broken(self.control)
        # With processes of its own left behind, a run without a namespace may hold its output.
        if self._box.level < 2:
            for stream in list(self._open):
                self._loop.remove_reader(stream)
                while self._hear_output(stream):
                    pass
            self._open.clear()
        self._finish_if_over()

    def _finish_if_over(self) -> None:
        if self._status is not None or self._open or self.ended.done():
            return
        if self._timer is not None:
            self._timer.cancel()
        if self._box.level < 2 and (pid := self._seen.get("pid")):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)
        for stream in self._streams:
            os.close(stream)
        if self._pidfd is not None:
            os.close(self._pidfd)
        if self._folder is not None:
            self._folder.cleanup()
        result = self._result()
        stopped_early = self._cancelled and "ended" in self._seen  # by us, which breaks nothing
        if result.status == "sandbox_failed" and not stopped_early:
            self._box.broken(self.control)
        self.ended.set_result(result)

    def _result(self) -> Result:
        ended = self._seen.get("ended", {})
        stdout, stderr = (bytes(self._output[stream]) for stream in self._streams)
        status, reason = self._how(ended)
        return Result(
            status=status,
            exit_code=ended.get("exit") if self._why is None else None,
            signal=ended.get("signal"),
            stdout=stdout,
            stderr=stderr,
            truncated=self._truncated,
            cpu_seconds=ended.get("cpu", 0.0),
            wall_seconds=time.monotonic() - self._began,
            backend=self._box.backend,
            level=self._box.level,
            reason=reason,
        )

    def _how(self, ended: dict[str, Any]) -> tuple[Status, str]:
        """The status, from what was seen alone."""
        if "ready" not in self._seen:
            if self._why is not None and self._why[0] == "timeout" and "failed" not in self._seen:
                return "sandbox_failed", "it was not ready when its time was up"
            return "sandbox_failed", self._seen.get("failed", "it ended before it was ready")
        if not ended:
            return "sandbox_failed", "nobody saw the run end"
        if self._why is not None:
            return self._why
        if ended["signal"] is not None:
            by = ended["signal"]
            most = 0.5 * self._limits.cpu_seconds  # the limit counts ticks, this is exact
            if by in (signal.SIGKILL, signal.SIGXCPU) and ended["cpu"] > most:
                return "cpu", f"it took more than {self._limits.cpu_seconds} CPU seconds"
            return "crashed", f"signal {by}"
        return ("ok" if ended["exit"] == 0 else "error"), ""

    # ------------------------------------------------------------ conversation

    async def ask(self, line: bytes, seconds: float | None = None) -> bytes:
        """Send a line and receive one, without their newlines.

        Raises:
            ConversationEnded: if the run ended, said too much, or did not answer in time.
        """
        assert self._channel is not None
        if self._heard:
            self.kill("protocol", "it spoke without being asked")
            raise ConversationEnded("it spoke without being asked")
        try:
            async with asyncio.timeout(seconds):
                await self._loop.sock_sendall(self._channel, line + b"\n")
                return await self._line()
        except TimeoutError:
            self.kill("timeout", "it did not answer in time")
            raise ConversationEnded("it did not answer in time") from None
        except OSError:
            raise ConversationEnded("it is gone") from None

    async def _line(self) -> bytes:
        assert self._channel is not None
        while True:
            data = await self._loop.sock_recv(self._channel, 1 << 16)
            if not data:
                raise ConversationEnded("it is gone")
            known = len(self._heard)
            self._heard += data
            end = self._heard.find(b"\n", known)
            if end >= 0:
                line = bytes(self._heard[:end])
                del self._heard[: end + 1]
                return line
            if len(self._heard) > self._limits.output_bytes:
                self.kill("flood", "its answer is too long")
                raise ConversationEnded("its answer is too long")

    def said_more(self) -> bool:
        """Whether something came that nobody asked for."""
        assert self._channel is not None
        with contextlib.suppress(OSError):
            self._heard += self._channel.recv(1 << 12)
        return bool(self._heard)

    def close(self) -> None:
        """No more questions; a run that does not end by that is ended."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None
            self._loop.call_later(0.2, self.kill, "protocol", "it did not end when told to")

    async def result(self) -> Result:
        """How it ended."""
        self.close()
        return await asyncio.shield(self.ended)


# ---------------------------------------------------------------- helpers


def _pid_of(pidfd: int) -> int | None:
    text = Path(f"/proc/self/fdinfo/{pidfd}").read_text()
    for line in text.splitlines():
        if line.startswith("Pid:"):
            pid = int(line[4:])
            return pid if pid > 0 else None
    return None
