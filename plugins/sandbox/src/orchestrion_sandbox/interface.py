"""The records of a sandbox: a program and limits go in, a result comes out.

    async with sandbox.open(Profile()) as box:
        result = await box.run(Program("print(6 * 7)"), limits=Limits(wall_seconds=2))

A `Result` never depends on what the program claims: the status comes from the supervisor's timers,
wait statuses and byte counts. Everything else that leaves the sandbox is untrusted bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from attrs import Factory, frozen

from orchestrion import RunError

Status = Literal[
    "ok", "error", "timeout", "cpu", "memory", "flood", "crashed", "protocol", "sandbox_failed"
]
"""How a run ended, as the supervisor saw it.

`ok`: it ended by itself with exit code 0. `error`: with another exit code. `crashed`: by a signal.
`timeout`, `cpu`, `memory`, `flood` (too much output): killed at that limit. `protocol`: it went on
after its conversation was over. `sandbox_failed`: the sandbox failed, which says nothing about the
program.
"""


@frozen
class Limits:
    """The limits of one run.

    Args:
        wall_seconds: from start to end, whether it works or waits.
        cpu_seconds: of the whole process tree.
        memory_mb: of the whole process tree; also the address space of each process.
        processes: processes and threads at the same time.
        output_bytes: of standard output, and the same of standard error.
        scratch_mb: size of the only writable folder, which holds the program's files.
        files: files and folders in that folder.
        open_files: open descriptors of each process.
    """

    wall_seconds: float = 10.0
    cpu_seconds: int = 5
    memory_mb: int = 512
    processes: int = 16
    output_bytes: int = 1 << 16
    scratch_mb: int = 16
    files: int = 1000
    open_files: int = 64


DEFAULT_LIMITS = Limits()


@frozen
class Program:
    """Python to run as `__main__`, in an empty folder of its own.

    Args:
        source: the main module.
        files: further files by their path in that folder, e.g. {"data/input.txt": b"..."}.
        arguments: `sys.argv` after the program's name.
    """

    source: str
    files: Mapping[str, bytes] = Factory(dict)
    arguments: tuple[str, ...] = ()


@frozen
class Profile:
    """What a sandbox prepares once for all runs in it.

    Args:
        preload: modules imported before the first run, so that a run need not load them.
        packages: folders whose modules can be imported, read-only.
        modules: source of further modules by name, executed before the first run; nothing else of
            their folder is visible.
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
        signal: the signal that ended it, if one did.
        stdout: its first `output_bytes`.
        stderr: likewise.
        truncated: whether there was more output.
        cpu_seconds: user and system time of its processes.
        wall_seconds: from start to end.
        backend: the backend that ran it.
        level: the protection level of that backend, see `Sandbox`.
        reason: why the sandbox failed or which limit was reached; else "".
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
        """Whether the program could reach the machine."""
        return self.level < 2


class SandboxError(RunError):
    """The sandbox cannot work here, or failed; this says nothing about any program."""


class ConversationEnded(Exception):
    """The run ended, sent too much, or did not answer in time."""
