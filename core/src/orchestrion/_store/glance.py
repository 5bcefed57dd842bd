"""How runs stand, for lists of many: a few columns of each, read quickly and not checked."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from attrs import frozen

from orchestrion._errors import StoreError
from orchestrion._records import NO_USAGE, Usage
from orchestrion._store.database import NAME
from orchestrion._store.lock import lock_holder
from orchestrion._store.names import is_run
from orchestrion._store.reader import RunReader

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
    inside: list[Path] = []
    with suppress(OSError):  # a folder may be gone, or not ours to read: the others are listed
        inside = [folder] if is_run(folder) else sorted(filter(_is_searched, folder.iterdir()))
    for path in inside:
        if path == folder:
            yield folder
        else:
            yield from run_folders(path)


def _is_searched(path: Path) -> bool:
    return not path.name.startswith(".") and not path.is_symlink() and path.is_dir()


def run_identity(directory: Path) -> tuple[Any, ...]:
    """Return what differs once a run was written to, or its writer began or ended."""
    parts: list[Any] = []
    for name in _WRITTEN:
        parts.append(None)
        with suppress(OSError):
            facts = (directory / name).stat()
            if facts.st_size:  # readers leave an empty file beside the database, writers a lock
                parts[-1] = (facts.st_ino, facts.st_size, facts.st_mtime_ns)
    return (*parts, parts[-1] is not None and lock_holder(directory) is not None)


def glance(directory: Path) -> Glance:
    """Return how a run stands, also if it cannot be read."""
    try:
        with RunReader(directory) as run:
            return _read(directory, run)
    except StoreError as error:
        return Glance(directory, "unreadable", str(error))
    except (ValueError, TypeError, LookupError) as error:
        problem = f"{directory}: is damaged ({type(error).__name__}: {error})"
        return Glance(directory, "unreadable", problem)


def _read(directory: Path, run: RunReader) -> Glance:
    # Not as `RunReader.iterations`, which takes twenty times as long.
    rows = run._reader.all(
        "SELECT episodes, successes, reward, seconds FROM iterations ORDER BY seq"
    )
    planned, last = run.planned, [seconds for *_, seconds in rows[-10:]]
    return Glance(
        directory,
        run.status,
        run.detail,
        run.created,
        run.finished,
        run.seconds,
        len(rows),
        sum(planned.values()) if planned else None,
        sum(row[0] for row in rows),
        rows[-1][1] / rows[-1][0] if rows and rows[-1][0] else None,
        tuple(row[2] for row in rows),
        sum(last) / len(last) if last else None,
        run.spend(),
    )
