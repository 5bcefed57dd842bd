"""How runs stand, for lists of many: a few columns of each, read quickly and not checked."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from attrs import frozen

from orchestrion._errors import StoreError
from orchestrion._records import JSON, NO_USAGE, Usage
from orchestrion._store.database import NAME, store_error
from orchestrion._store.journal import USAGE_SUMS, usage_columns, usage_of
from orchestrion._store.lock import lock_holder
from orchestrion._store.names import is_run
from orchestrion._store.schema import SCHEMA
from orchestrion._store.serial import loads

_WRITTEN = (NAME, f"{NAME}-wal", "run.lock")


@frozen
class Glance:
    """How a run stands."""

    directory: Path
    status: str  # see `RunStatus`; "unreadable" where `detail` says why
    detail: str = ""  # the sentence given with the status
    created: float = 0.0  # Unix time
    finished: float | None = None  # when it ended last (Unix time)
    seconds: float = 0.0  # how long it worked, in all its parts together
    iterations: int = 0  # committed ones
    planned: int | None = None  # iterations of the stages begun so far; None if not known
    episodes: int = 0  # of training
    solved: float | None = None  # share of the last iteration's episodes
    rewards: tuple[float | None, ...] = ()  # mean of each iteration
    pace: float | None = None  # mean seconds of the last iterations
    spend: Usage = NO_USAGE  # what was paid


def run_folders(folder: Path) -> Iterator[Path]:
    """Yield all runs below a folder, nested ones too, in order of their names.

    What is within a run is not looked at, nor are hidden folders and those behind links.
    """
    if is_run(folder):
        yield folder
    else:
        yield from map(Path, _below(str(folder)))


def _below(folder: str) -> Iterator[str]:
    try:
        with os.scandir(folder) as entries:
            names = sorted(
                entry.name
                for entry in entries
                if not entry.name.startswith(".") and entry.is_dir(follow_symlinks=False)
            )
    except OSError:
        return
    for name in names:
        path = f"{folder}/{name}"
        if os.path.isfile(f"{path}/{NAME}"):
            yield path
        else:
            yield from _below(path)


def run_identity(directory: Path) -> tuple[Any, ...]:
    """Return what differs once a run was written to, or its writer began or ended."""
    parts: list[Any] = []
    for name in _WRITTEN:
        try:
            facts = os.stat(f"{directory}/{name}")
        except OSError:
            parts.append(None)
        else:  # readers leave an empty file beside the database, and writers an empty lock
            state = (facts.st_ino, facts.st_size, facts.st_mtime_ns)
            parts.append(state if facts.st_size else None)
    return (*parts, parts[-1] is not None and lock_holder(directory) is not None)


def glance(directory: Path) -> Glance:
    """Return how a run stands, also if it cannot be read."""
    try:
        return _read(directory)
    except sqlite3.Error as error:
        return Glance(directory, "unreadable", str(store_error(error, directory / NAME)))
    except StoreError as error:
        return Glance(directory, "unreadable", f"{directory}: {error}")
    except (ValueError, TypeError, LookupError) as error:
        problem = f"{directory}: is damaged ({type(error).__name__}: {error})"
        return Glance(directory, "unreadable", problem)


def _read(directory: Path) -> Glance:
    address = f"{(directory / NAME).absolute().as_uri()}?mode=ro"
    with closing(sqlite3.connect(address, uri=True, timeout=1.0)) as connection:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version != SCHEMA:
            raise StoreError(f"its schema is {version}, this version reads {SCHEMA}")
        state: dict[str, JSON] = {
            key: loads(value)
            for key, value in connection.execute(
                "SELECT key, value FROM state WHERE key <> 'config'"
            )
        }
        rows = connection.execute(
            "SELECT episodes, successes, reward, seconds FROM iterations ORDER BY seq"
        ).fetchall()
        spend = connection.execute(f"SELECT {USAGE_SUMS} FROM calls").fetchone()
    status = state.get("status", "running")
    if status == "running" and lock_holder(directory) is None:
        status = "interrupted"
    last = [seconds for *_, seconds in rows[-10:]]
    planned = state.get("planned")
    return Glance(
        directory,
        status,
        state.get("detail", ""),
        state.get("created", 0.0),
        state.get("finished"),
        state.get("seconds", 0.0),
        len(rows),
        sum(planned.values()) if planned else None,
        sum(row[0] for row in rows),
        rows[-1][1] / rows[-1][0] if rows and rows[-1][0] else None,
        tuple(row[2] for row in rows),
        sum(last) / len(last) if last else None,
        usage_of(spend) + usage_of(state.get("stated", usage_columns(NO_USAGE))),
    )
