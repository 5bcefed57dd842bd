"""What a sandbox is: a program goes in under limits, and what the supervisor saw comes out.

    async with sandbox.open(Profile()) as box:
        result = await box.run(Program("print(6 * 7)"), limits=Limits(wall_seconds=2))

Nothing in a `Result` is the program's word: the status comes from timers, wait statuses and byte
counts of the supervisor. Everything else that leaves the sandbox is untrusted bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Literal, Protocol

from attrs import Factory, frozen

__all__ = [
    "NO_LIMIT_GIVEN",
    "PLAIN",
    "Box",
    "Conversation",
    "Limits",
    "Profile",
    "Program",
    "Result",
    "Sandbox",
    "Status",
]

Status = Literal[
    "ok", "error", "timeout", "cpu", "memory", "flood", "crashed", "protocol", "sandbox_failed"
]
"""How a run ended, as the supervisor saw it.

`ok`: it ended by itself with exit code 0. `error`: with another exit code. `crashed`: by a signal.
`timeout`, `cpu`, `memory`, `flood` (too much output): ended for reaching that limit. `protocol`:
it said something out of turn in a conversation. `sandbox_failed`: the sandbox broke, which says
nothing about the program.
"""


@frozen
class Limits:
    """How far one run may go.

    Args:
        wall_seconds: from the start to the end, whatever it is doing.
        cpu_seconds: of the whole process tree.
        memory_mb: of the whole process tree; also the address space of each process.
        processes: processes and threads at a time.
        output_bytes: of standard output, and as much again of standard error.
        scratch_mb: size of the only writable folder, which holds the program's files.
        files: how many files and folders that folder may hold.
        open_files: descriptors a process may have open.
    """

    wall_seconds: float = 10.0
    cpu_seconds: int = 5
    memory_mb: int = 512
    processes: int = 16
    output_bytes: int = 1 << 16
    scratch_mb: int = 16
    files: int = 1000
    open_files: int = 64


NO_LIMIT_GIVEN = Limits()


@frozen
class Program:
    """Python to run as `__main__`, in an empty folder of its own.

    Args:
        source: the main module.
        files: further files by their path in that folder, e.g. {"data/input.txt": b"..."}.
        arguments: what `sys.argv` has after the program's name.
    """

    source: str
    files: Mapping[str, bytes] = Factory(dict)
    arguments: tuple[str, ...] = ()


@frozen
class Profile:
    """What a sandbox prepares once, for all runs in it.

    Args:
        preload: modules imported before the first run, so that runs find them loaded.
        packages: folders whose modules can be imported, read-only, e.g. where pytest is.
        modules: source of further modules by name, made before the first run; unlike a folder of
            packages they show nothing else of where they come from.
    """

    preload: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    modules: Mapping[str, str] = Factory(dict)


PLAIN = Profile()


@frozen
class Result:
    """One run, as the supervisor saw it.

    Args:
        status: how it ended.
        exit_code: None if it did not end by itself.
        signal: what ended it, if a signal did.
        stdout: the first `output_bytes` of it.
        stderr: likewise.
        truncated: whether there was more output.
        cpu_seconds: user and system time of the processes it waited for.
        wall_seconds: from start to end.
        backend: which one ran it.
        level: how much that backend holds, see `Sandbox.level`.
        reason: in words, if the sandbox failed or a limit was reached.
    """

    status: Status
    exit_code: int | None = None
    signal: int | None = None
    stdout: bytes = b""
    stderr: bytes = b""
    truncated: bool = False
    cpu_seconds: float = 0.0
    wall_seconds: float = 0.0
    backend: str = ""
    level: int = 0
    reason: str = ""

    @property
    def unsandboxed(self) -> bool:
        """Whether nothing kept the program from the machine; such results carry the mark."""
        return self.level < 2


class Conversation(Protocol):
    """A run that is asked and answers, one line at a time, over channels of its own."""

    async def ask(self, line: bytes, seconds: float | None = None) -> bytes:
        """Send a line and receive one; both without the newline.

        Raises:
            ConversationEnded: if the run ended, said too much, or did not answer in time.
        """
        ...

    async def said_more(self) -> bool:
        """Whether something came that nobody asked for."""
        ...

    async def result(self) -> Result:
        """End the run if it has not ended, and say how it did."""
        ...


class Box(Protocol):
    """An open sandbox. Any number of runs at once; each begins with nothing of another's.

    A judge takes a place in `slots` for as long as it has conversations, so that at most one run
    a processor is under way.
    """

    backend: str
    level: int

    @property
    def slots(self) -> AbstractAsyncContextManager[None]:
        """One place is one run under way."""
        ...

    async def run(
        self, program: Program, stdin: bytes = b"", limits: Limits = NO_LIMIT_GIVEN
    ) -> Result:
        """Run a program to its end.

        Raises:
            SandboxError: if the sandbox itself failed twice in a row.
        """
        ...

    def converse(
        self,
        program: Program,
        limits: Limits = NO_LIMIT_GIVEN,
        harness: Mapping[str, Any] | None = None,
    ) -> AbstractAsyncContextManager[Conversation]:
        """A run that is asked and answers; `harness` tells what answers for the program."""
        ...


class Sandbox(Protocol):
    """A way to keep programs apart from the machine; the kind `sandbox` of components.

    `level` says what it holds: 4 a machine of its own, 3 a view of the machine with nothing in
    it (files, processes, network, other runs), 2 the system calls and files it can reach are
    barred but it can see the machine, 1 nothing.
    """

    def open(self, profile: Profile = PLAIN) -> AbstractAsyncContextManager[Box]:
        """Prepare; raises `SandboxError` where this backend cannot work, and why."""
        ...
