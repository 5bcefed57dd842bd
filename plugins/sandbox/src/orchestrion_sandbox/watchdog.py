"""What a tree of processes takes, from /proc."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import NamedTuple

__all__ = ["TreeUsage", "tree_usage"]

_TICK = 1 / os.sysconf("SC_CLK_TCK")


class TreeUsage(NamedTuple):
    """Of all live processes of a tree: memory that only they hold, and CPU time."""

    bytes: int
    cpu_seconds: float
    processes: int


def tree_usage(root: int) -> TreeUsage:
    """Memory and CPU time of a process and all its descendants.

    Memory is anonymous and shared memory, swap included; pages of files do not count. What a
    forked process still shares with its parent counts for both, which errs on the safe side.
    """
    memory, ticks, seen, waiting = 0, 0, 0, [root]
    while waiting:
        folder = Path(f"/proc/{waiting.pop()}")
        try:
            status = _status(folder)
            stat = (folder / "stat").read_text(errors="replace")
            children = [
                int(pid)
                for task in (folder / "task").iterdir()
                for pid in (task / "children").read_text().split()
            ]
        except (OSError, ValueError):
            continue  # it has just ended
        for line in status.splitlines():
            if line.startswith(("RssAnon:", "RssShmem:", "VmSwap:")):
                memory += int(line.split()[1]) * 1024
        # user and system time of the process itself, then of children it has waited for
        ticks += sum(map(int, stat.rpartition(")")[2].split()[11:15]))
        seen += 1
        waiting += children
    return TreeUsage(memory, ticks * _TICK, seen)


def _status(folder: Path) -> str:
    """The status with the memory in it, which the first thread, once ended, no longer tells."""
    text = (folder / "status").read_text(errors="replace")
    if "RssAnon:" in text:
        return text
    for task in (folder / "task").iterdir():
        with contextlib.suppress(OSError):
            of_thread = (task / "status").read_text(errors="replace")
            if "RssAnon:" in of_thread:
                return of_thread
    return text
