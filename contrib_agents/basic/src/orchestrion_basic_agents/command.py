"""A program as an agent."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

from attrs import Factory, frozen

from orchestrion import Agent, Calls, Key, Meta, Output, Usage, View
from orchestrion_basic_agents.agents import last_text

if TYPE_CHECKING:
    import asyncio


@frozen
class Command(Agent):
    """Runs a program, gives it the latest text on standard input, and says what it prints.

    A program that exits with another code than 0, prints too much or takes too long fails the
    turn. It runs with your rights: this is no sandbox.

    Args:
        argv: program and arguments; no shell reads them.
        seconds: time limit.
        max_bytes: of standard output.
        environment: names of variables that the program gets, beside PATH, HOME and LANG. It gets
            no others, so that it sees no keys.
        cost: what a turn costs.
    """

    argv: Annotated[list[str], Meta(min_length=1)]
    seconds: Annotated[float, Meta(gt=0)] = 60.0
    max_bytes: Annotated[int, Meta(ge=1)] = 1_000_000
    environment: list[str] = Factory(list)
    cost: Annotated[float, Meta(ge=0)] = 1.0

    def ceiling(self, tokens: int) -> Usage:
        return Usage(cost=self.cost)

    async def act(self, view: View, key: Key, calls: Calls) -> Output:
        import asyncio

        names = ("PATH", "HOME", "LANG", *self.environment)
        process = await asyncio.create_subprocess_exec(
            *self.argv,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={name: os.environ[name] for name in names if name in os.environ},
            start_new_session=True,
        )
        try:
            async with asyncio.timeout(self.seconds):
                out, err = await self._talk(process, last_text(view).encode())
                code = await process.wait()
        except TimeoutError:
            raise RuntimeError(f"{self.argv[0]}: no end within {self.seconds:g} s") from None
        finally:
            # The whole process group, also when the turn is cancelled: no orphan stays.
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            await _reap(process)
        if code != 0:
            reason = err.decode(errors="replace").strip()[-500:]
            raise RuntimeError(f"{self.argv[0]}: exit code {code}: {reason}")
        return Output(out.decode(errors="replace"), usage=Usage(cost=self.cost))

    async def _talk(self, process: asyncio.subprocess.Process, text: bytes) -> tuple[bytes, bytes]:
        import asyncio

        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            # It awaits them also when one fails: a stream that is drained has no other reader.
            async with asyncio.TaskGroup() as group:
                group.create_task(_feed(process.stdin, text))
                out = group.create_task(self._read(process.stdout))
                err = group.create_task(self._read(process.stderr))
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None
        return out.result(), err.result()

    async def _read(self, stream: asyncio.StreamReader) -> bytes:
        out = bytearray()
        while chunk := await stream.read(65536):
            out += chunk
            if len(out) > self.max_bytes:
                raise RuntimeError(f"{self.argv[0]}: more than {self.max_bytes} bytes of output")
        return bytes(out)


async def _feed(stream: asyncio.StreamWriter, text: bytes) -> None:
    # A program that does not read its input is no error.
    with suppress(BrokenPipeError, ConnectionResetError):
        stream.write(text)
        await stream.drain()
        stream.close()


async def _reap(process: asyncio.subprocess.Process) -> None:
    """Wait for a killed process; its pipes must be read to their end for that.

    A grandchild that left the process group may hold them open: it is not waited for.
    """
    import asyncio

    async def drain(stream: asyncio.StreamReader | None) -> None:
        while stream is not None and await stream.read(1 << 16):
            pass

    with suppress(TimeoutError):
        async with asyncio.timeout(5):
            await asyncio.gather(drain(process.stdout), drain(process.stderr))
            await process.wait()
