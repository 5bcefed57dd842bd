"""What the supervisors of all backends share: a box, and one run in it.

A run ends once, for the first reason that its supervisor saw. A backend adds how a run is started,
watched and killed: `warm.py` as forks of a warm interpreter, `cold.py` by a command for each run.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from orchestrion_sandbox.interface import (
    DEFAULT_LIMITS,
    PLAIN,
    ConversationEnded,
    Limits,
    Profile,
    Program,
    Result,
    SandboxError,
    Status,
)

_HARNESS = "orchestrion_sandbox.inside.harness:answer"
_END_SECONDS = 2.0
"""Seconds that a run gets to end after its conversation."""


class Box(ABC):
    """An open sandbox: runs programs, at most one per processor at a time.

    Runs never see each other's state. `run` takes a place of `slots` itself; whoever uses
    `converse` has to hold one. A judge, which needs several conversations, holds one place for all
    of a verdict's, so that two verdicts cannot wait for each other.
    """

    def __init__(self, backend: str, level: int) -> None:
        self.backend, self.level = backend, level
        affinity = getattr(os, "sched_getaffinity", None)
        self.slots = asyncio.Semaphore(len(affinity(0)) if affinity else os.cpu_count() or 1)

    @abstractmethod
    async def _begin(
        self, program: Program, limits: Limits, stdin: bytes, harness: Mapping[str, Any] | None
    ) -> SupervisedRun:
        """Start a run; one with a `harness` is a conversation."""

    async def run(
        self, program: Program, stdin: bytes = b"", limits: Limits = DEFAULT_LIMITS
    ) -> Result:
        """Run a program to its end, once more if the sandbox failed.

        Raises:
            SandboxError: if it failed again.
        """
        for _ in range(2):
            async with self.slots:
                run = await self._begin(program, limits, stdin, None)
                try:
                    result = await asyncio.shield(run.ended)
                finally:
                    await run.end()  # the slot is free when the run is gone
            if result.status != "sandbox_failed":
                return result
        raise SandboxError(f"the sandbox {self.backend!r} failed twice: {result.reason}")

    @contextlib.asynccontextmanager
    async def converse(
        self,
        program: Program,
        limits: Limits = DEFAULT_LIMITS,
        harness: Mapping[str, Any] | None = None,
    ) -> AsyncIterator[SupervisedRun]:
        """Start a run that answers requests; `harness` is added to its payload.

        `harness["answers"]` names the function that answers, as MODULE:FUNCTION of a preloaded
        module; by default the one that judges use.
        """
        run = await self._begin(program, limits, b"", {"answers": _HARNESS, **(harness or {})})
        try:
            yield run
        finally:
            await run.end()


class SupervisedRun(ABC):
    """One run: its output, its conversation, and how it ended."""

    _reader: asyncio.StreamReader
    _writer: asyncio.StreamWriter | None = None

    def __init__(self, box: Box, limits: Limits) -> None:
        self._box, self._limits = box, limits
        self._stdout, self._stderr = bytearray(), bytearray()
        self._why: tuple[Status, str] | None = None
        self._truncated = self._cancelled = False
        self._began = time.monotonic()
        self._loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[Result] = self._loop.create_future()

    # ------------------------------------------------------------ how it ends

    @abstractmethod
    def _kill(self) -> None:
        """End its processes, if there are any."""

    def kill(self, status: Status, reason: str) -> None:
        """End the run; the first reason given is its status."""
        if not self.ended.done():
            self._why = self._why or (status, reason)
            self._kill()

    async def end(self) -> None:
        """End the run if it has not ended, and wait until it is gone."""
        self._close()
        self._cancelled = True
        self.kill("timeout", "it was cancelled")
        await asyncio.shield(self.ended)

    async def result(self) -> Result:
        """Let the run end, and return its result."""
        if self._writer is not None:
            self._close()
            why = "it did not end when told to"
            self._loop.call_later(_END_SECONDS, self.kill, "protocol", why)
        return await asyncio.shield(self.ended)

    def _close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _keep(self, output: bytearray, data: bytes) -> None:
        """Append to an output up to the limit; end a run that writes more."""
        room = self._limits.output_bytes - len(output)
        output += data[:room]
        if len(data) > room:
            self._truncated = True
            self.kill("flood", f"it wrote more than {self._limits.output_bytes} bytes")

    def _set_result(
        self,
        exit_code: int | None = None,
        by_signal: int | None = None,
        cpu_seconds: float = 0.0,
        failed: str = "",
    ) -> Result:
        """Set and return the result; `failed` says how the sandbox itself failed, if it did."""
        status, reason = self._why or ("ok" if exit_code == 0 else "error", "")
        if failed:
            status, reason = "sandbox_failed", failed
        elif self._why is None and by_signal is not None:
            status, reason = "crashed", f"signal {by_signal}"
            # The kernel's limit counts ticks, `cpu_seconds` is exact.
            by_limit = by_signal in (9, getattr(signal, "SIGXCPU", 24))
            if by_limit and cpu_seconds > 0.5 * self._limits.cpu_seconds:
                status = "cpu"
                reason = f"it took more than {self._limits.cpu_seconds} CPU seconds"
        result = Result(
            status,
            exit_code if self._why is None else None,
            by_signal,
            bytes(self._stdout),
            bytes(self._stderr),
            self._truncated,
            cpu_seconds,
            time.monotonic() - self._began,
            self._box.backend,
            self._box.level,
            reason,
        )
        self.ended.set_result(result)
        return result

    # ------------------------------------------------------------ conversation

    async def ask(self, line: bytes, seconds: float | None = None) -> bytes:
        """Send a line and return the one that comes back, both without their newlines.

        Raises:
            ConversationEnded: if the run ended, said too much, or did not answer in time.
        """
        if self._writer is None:
            raise ConversationEnded("it is gone")
        try:
            async with asyncio.timeout(seconds):
                self._writer.write(line + b"\n")
                await self._writer.drain()
                answer = await self._reader.readline()
        except TimeoutError:
            raise self._ended_for("timeout", "it did not answer in time") from None
        except ValueError:
            raise self._ended_for("flood", "its answer is too long") from None
        except OSError:
            answer = b""
        if not answer.endswith(b"\n"):
            raise ConversationEnded("it is gone")
        return answer[:-1]

    def _ended_for(self, status: Status, reason: str) -> ConversationEnded:
        self.kill(status, reason)
        return ConversationEnded(reason)

    async def said_more(self) -> bool:
        """Return whether a run that was told to end sends anything before it closes its side."""
        with contextlib.suppress(TimeoutError, OSError):
            async with asyncio.timeout(_END_SECONDS):
                return bool(await self._reader.read(1))
        return False


class Sandbox(Protocol):
    """A way to run programs apart from the machine; the kind `sandbox` of components.

    Levels: 4 a kernel of its own; 3 an empty view of the machine, without its files, processes,
    network and other runs; 2 most system calls and files are blocked, but the machine can be seen;
    1 no protection.
    """

    def open(self, profile: Profile = PLAIN) -> AbstractAsyncContextManager[Box]:
        """Prepare a box.

        Raises:
            SandboxError: if this backend cannot work here, with the reason.
        """
        ...
