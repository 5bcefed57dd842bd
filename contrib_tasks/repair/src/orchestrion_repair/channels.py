"""Conversations with the processes that run candidates, and two ways to start such processes."""

from __future__ import annotations

import contextlib
import inspect
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from typing import IO, Any, Protocol

from orchestrion_sandbox import BlockingBox, Mode, Profile
from orchestrion_sandbox import Limits as SandboxLimits

from orchestrion_repair import child, instrument

__all__ = ["Channel", "FreshInterpreters", "Gone", "Sandboxed", "Starter"]

JSON = Any
_HOURS = 36_000
"""CPU seconds: one child may run thousands of programs, each with a limit of its own."""


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


class Sandboxed:
    """Starts children behind a wall, as forks of a warm interpreter that has seen no job."""

    def __init__(self, mode: Mode) -> None:
        modules = {module.__name__: inspect.getsource(module) for module in (instrument, child)}
        self._box = BlockingBox(mode, mode, Profile(tuple(child.PRELOAD.split()), (), modules))

    def open(self, limits: Mapping[str, Any]) -> Channel:
        """A conversation with a new child, which sets its own limits below these."""
        wide = SandboxLimits(cpu_seconds=_HOURS, memory_mb=limits["memory_mb"], scratch_mb=1)
        run = self._box.start({"answers": f"{child.__name__}:answer"}, wide)
        seconds = limits["wall_seconds"]
        run.channel.settimeout(seconds)
        reader, writer = run.channel.makefile("rb"), run.channel.makefile("wb")
        return Channel(reader, writer, lambda: run.finish(seconds), run.kill, limits["reply_bytes"])

    def close(self) -> None:
        """End the interpreter."""
        self._box.close()


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
