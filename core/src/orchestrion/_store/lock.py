"""One writer a run folder: a lock that the operating system drops when its holder dies."""

from __future__ import annotations

import errno
import json
import os
import socket
from contextlib import suppress
from pathlib import Path
from typing import Any

from attrs import asdict, frozen

from orchestrion._errors import StoreError
from orchestrion._store.files import explain

try:
    import fcntl
except ImportError:  # pragma: no cover - systems without flock fall back on process ids
    fcntl = None  # type: ignore[assignment]

NAME = "run.lock"
_held: set[int] = set()


@frozen
class Holder:
    """Which process holds a lock. Process ids repeat; start time and boot tell them apart."""

    pid: int
    started: str
    boot: str
    host: str

    @classmethod
    def this(cls) -> Holder:
        """Return the current process."""
        return cls(os.getpid(), _started(os.getpid()), _boot(), socket.gethostname())

    def alive(self) -> bool:
        """Return whether that process still runs; one on another host is taken to."""
        if self.host != socket.gethostname():
            return True
        if self.boot != _boot():
            return False
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            pass
        return self.started == _started(self.pid)


def _boot() -> str:
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return ""


def _started(pid: int) -> str:
    """Return when a process started, in a unit of the system; empty if it ended or is unknown."""
    with suppress(OSError, IndexError):
        # The 3rd to the last field; the second is a name in brackets that may hold anything.
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        # One that was killed keeps its number (Z) until its parent asks how it ended.
        return "" if state in "ZX" else fields[18]
    return ""


def lock_holder(directory: Path) -> Holder | None:
    """Return who holds the lock of a run folder, without touching it; None if nobody does."""
    holder = _read(directory / NAME)
    return holder if holder is not None and holder.alive() else None


def _read(path: Path) -> Holder | None:
    try:
        data: dict[str, Any] = json.loads(path.read_text())
        return Holder(**data)
    except (OSError, ValueError, TypeError):
        return None


class RunLock:
    """The lock of a run folder, held until `release` or the end of this process.

    Raises:
        StoreError: another process holds it; names the process.
    """

    def __init__(self, directory: Path) -> None:
        self._path = directory / NAME
        try:
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                self._acquire()
                # Rewritten whole: what a holder that died left in it is gone.
                os.ftruncate(self._descriptor, 0)
                os.pwrite(self._descriptor, json.dumps(asdict(Holder.this())).encode(), 0)
            except BaseException:
                os.close(self._descriptor)
                raise
        except OSError as error:
            raise StoreError(explain(error, self._path)) from error
        _held.add(self._descriptor)

    def _acquire(self) -> None:
        taken = False
        if fcntl is not None:
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                taken = True
            except OSError as error:
                if error.errno not in (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS):
                    raise
        # Without such locks (some network folders), go by what the file says.
        holder = _read(self._path) if taken else lock_holder(self._path.parent)
        if taken or holder is not None:
            who = f"process {holder.pid} on {holder.host}" if holder else "another process"
            raise StoreError(
                f"{self._path.parent}: in use by {who}; wait until it ends or stop it, then try "
                "again"
            )

    def release(self) -> None:
        """Give the lock up; a second call does nothing."""
        if self._descriptor in _held:
            _held.discard(self._descriptor)
            with suppress(OSError):
                os.ftruncate(self._descriptor, 0)
                if fcntl is not None:
                    # Closing alone would leave it to children that are just being forked.
                    fcntl.flock(self._descriptor, fcntl.LOCK_UN)
            os.close(self._descriptor)


def _close_inherited() -> None:
    """Give the lock up in a forked child: it must not outlive its holder there."""
    for descriptor in _held:
        with suppress(OSError):
            os.close(descriptor)
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_inherited)
