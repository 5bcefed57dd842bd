"""Files that are either whole or absent, whatever happens while they are written."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from orchestrion._errors import StoreError
from orchestrion._store.faults import fault_point

_ADVICE = {
    errno.ENOSPC: "the disk is full; make room",
    errno.EDQUOT: "your disk quota is used up; make room",
    errno.EFBIG: "the file would be larger than this system allows; raise the limit",
    errno.EROFS: "the file system is read-only; choose a run folder elsewhere",
    errno.EACCES: "permission denied; choose a run folder you may write to",
    errno.EPERM: "permission denied; choose a run folder you may write to",
    errno.EIO: "the disk reports an error; check it",
}


def explain(error: OSError, path: Path, stored: bool = True) -> str:
    """Return what went wrong with a file, and what to do about it; `stored`: a run was there."""
    advice = _ADVICE.get(error.errno or 0, (error.strerror or str(error)).lower())
    rest = ". What was stored before is intact; the run can be resumed" if stored else ""
    return f"{path}: {advice}{rest}"


def write_atomic(path: Path, chunks: Iterable[bytes], point: str = "file") -> None:
    """Write a file under a temporary name, make it durable, and rename it into place.

    The order matters: data before name, name before the folder's own entry. After a crash the
    old file or the new one is there, never a part of one. `chunks` is its content, in parts;
    `point` is the prefix of the fault points passed.

    Raises:
        StoreError: the disk is full, read-only or broken; `path` is as it was before.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            parts = iter(chunks)
            first = next(parts, b"")
            half = len(first) // 2
            file.write(first[:half])
            file.flush()
            fault_point(f"{point}.half")
            file.write(first[half:])
            file.writelines(parts)
            file.flush()
            fault_point(f"{point}.unsynced")
            os.fsync(file.fileno())
        fault_point(f"{point}.written")
        os.replace(temporary, path)
        fault_point(f"{point}.renamed")
        sync_folder(path.parent)
        fault_point(f"{point}.synced")
    except BaseException as error:  # whatever the chunks raise, too
        with suppress(OSError):
            temporary.unlink()
        if isinstance(error, OSError):
            raise StoreError(explain(error, path)) from error
        raise


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some network folders cannot sync a directory; they have no such order to keep.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


def make_folder(folder: Path) -> Path:
    """Create a folder, with those above it, durably; return it."""
    if not folder.is_dir():
        make_folder(folder.parent)
        try:
            folder.mkdir(exist_ok=True)
            sync_folder(folder.parent)
        except OSError as error:
            raise StoreError(explain(error, folder, stored=False)) from error
    return folder


def remove_stale(folder: Path) -> None:
    """Remove what interrupted writes left behind; only for the one writer of a folder."""
    for path in folder.glob(".*.tmp"):
        with suppress(OSError):
            path.unlink()
