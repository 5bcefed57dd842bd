"""New run folders: made beside their place and renamed into it, so that none is ever half made."""

from __future__ import annotations

import errno
import os
import shutil
import time
from collections.abc import Mapping
from contextlib import closing, suppress
from pathlib import Path

from orchestrion._errors import StoreError, UsageError
from orchestrion._records import JSON
from orchestrion._store.database import NAME, Database
from orchestrion._store.faults import fault_point
from orchestrion._store.files import explain, make_folder, sync_folder, write_atomic
from orchestrion._store.lock import RunLock
from orchestrion._store.serial import dumps

_ABANDONED = 60.0  # seconds after which a draft that nobody holds is one whose maker was killed


def create_folder(directory: Path, config_text: str, state: Mapping[str, JSON]) -> None:
    """Make a run folder, durably."""
    make_folder(directory.parent)
    _remove_drafts(directory.parent)
    draft = directory.with_name(f".{directory.name}.{os.getpid()}.new")
    try:
        _draft(draft, config_text, state)
        # Fails if a folder with files is there: two runs never share one.
        os.rename(draft, directory)
        sync_folder(directory.parent)
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            raise UsageError(
                f"{directory}: already holds files; choose another name or folder, or go on with "
                f"what is there: orchestrion resume {directory.name}"
            ) from error
        raise StoreError(explain(error, directory, stored=False)) from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    fault_point("create.renamed")


def _draft(draft: Path, config_text: str, state: Mapping[str, JSON]) -> None:
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir()
    lock = RunLock(draft)
    try:
        (draft / "checkpoints").mkdir()
        (draft / "exports").mkdir()
        write_atomic(draft / "config.yaml", [config_text.encode()], "config")
        rows = [{"key": key, "value": dumps(value)} for key, value in state.items()]
        with closing(Database.create(draft / NAME)) as database, database.transaction("create"):
            database.insert("state", rows)
        sync_folder(draft)
    finally:
        lock.release()


def _remove_drafts(folder: Path) -> None:
    """Remove the drafts of makers that were killed."""
    for draft in folder.glob(".*.new"):
        with suppress(OSError, StoreError):
            if time.time() - draft.stat().st_mtime > _ABANDONED:
                RunLock(draft).release()
                shutil.rmtree(draft)
