"""Memory and CPU time of a tree of processes, from /proc; used in and outside of sandboxes."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from typing import NamedTuple

_BUFFER = 208 << 10
"""The most that the kernel holds for a descriptor (a socket with a full buffer); it is in no
process's memory."""
_FEW = 8
"""Number of descriptors of each process that are not counted."""
_SHOWN = ("RssAnon:", "RssShmem:", "VmSwap:", "VmPTE:")


class TreeUsage(NamedTuple):
    """Memory that only the live processes of a tree hold, and their CPU time."""

    bytes: int
    cpu_seconds: float
    processes: int


def tree_usage(roots: Iterable[int], open_files: int, proc: int | None = None) -> TreeUsage:
    """Return memory and CPU time of processes and all their descendants.

    Memory is anonymous and shared memory, swap and page tables included, and the most that the
    kernel can hold for open descriptors; pages of files do not count. Memory that a forked process
    still shares with its parent counts for both. A process that ends meanwhile is left out.

    Args:
        roots: the processes.
        open_files: the count for a process that hides its descriptors.
        proc: a descriptor of /proc; None if /proc is mounted.
    """
    memory, ticks, seen, waiting = 0, 0, 0, list(roots)
    while waiting:
        pid = waiting.pop()
        try:
            status = _status(pid, proc)
            stat = _text(f"{pid}/stat", proc)
            waiting += children(pid, proc)
            tables = [
                _descriptors(f"{pid}/task/{t}/fd", open_files, proc) for t in _tasks(pid, proc)
            ]
        except (OSError, ValueError):
            continue  # it has just ended
        memory += sum(int(x.split()[1]) << 10 for x in status.splitlines() if x.startswith(_SHOWN))
        memory += sum(max(0, table - _FEW) for table in tables) * _BUFFER
        # user and system time of the process itself, then of children it has waited for
        ticks += sum(map(int, stat.rpartition(")")[2].split()[11:15]))
        seen += 1
    return TreeUsage(memory, ticks / os.sysconf("SC_CLK_TCK"), seen)


def children(pid: int | str, proc: int | None = None) -> list[int]:
    """Return the processes that a process has started and not waited for, as /proc numbers them."""
    texts = (_text(f"{pid}/task/{task}/children", proc) for task in _tasks(pid, proc))
    return [int(child) for text in texts for child in text.split()]


def exceeded(usage: TreeUsage, seconds: float, limits: dict[str, float]) -> tuple[str, str] | None:
    """Return the status and reason of a run that has passed a limit; None for any other."""
    if usage.bytes > int(limits["memory_mb"]) << 20:
        return "memory", f"it took more than {limits['memory_mb']} MiB"
    if usage.cpu_seconds > limits["cpu_seconds"]:
        return "cpu", f"it took more than {limits['cpu_seconds']} CPU seconds"
    if seconds > limits["wall_seconds"]:
        return "timeout", f"it took more than {limits['wall_seconds']:g} seconds"
    return None


def _text(path: str, proc: int | None) -> str:
    fd = _opened(path, proc)
    with open(fd, "rb", buffering=0) as file:
        return file.readall().decode(errors="replace")


def _opened(path: str, proc: int | None) -> int:
    if proc is None:
        return os.open(f"/proc/{path}", os.O_RDONLY)
    return os.open(path, os.O_RDONLY, dir_fd=proc)


def _listed(path: str, proc: int | None) -> list[str]:
    fd = _opened(path, proc)
    try:
        return os.listdir(fd)
    finally:
        os.close(fd)


def _tasks(pid: int | str, proc: int | None) -> list[str]:
    return _listed(f"{pid}/task", proc)


def _descriptors(path: str, open_files: int, proc: int | None) -> int:
    """Count the descriptors of one thread, which may have a table of its own."""
    try:
        return len(_listed(path, proc))
    except PermissionError:
        return open_files
    except OSError:
        return 0


def _status(pid: int, proc: int | None) -> str:
    """Return a status that has the memory; a first thread that has ended no longer shows it."""
    text = _text(f"{pid}/status", proc)
    if "RssAnon:" in text:
        return text
    for task in _tasks(pid, proc):
        with contextlib.suppress(OSError):
            of_thread = _text(f"{pid}/task/{task}/status", proc)
            if "RssAnon:" in of_thread:
                return of_thread
    return text
