"""Answers that runs share: a file of answers by the digest of the request, in a folder by choice.

Any number of processes may use it at once. It holds no request, and of answers only what a run's
own record has: no secrets. An entry that is not what was written counts as none. Deleting the
folder empties it.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Self

from orchestrion._engine.recording import Recorded
from orchestrion._errors import UsageError
from orchestrion._store.database import mark
from orchestrion._store.journal import recorded, usage_columns
from orchestrion._store.serial import dumps

_NAME = "answers-1.db"  # with the version of what it holds: another one begins anew, beside it
_COLUMNS = "key, request, answer, calls, input_tokens, output_tokens, usd, cost, estimated"
_TABLE = """
CREATE TABLE IF NOT EXISTS answers (
    key TEXT PRIMARY KEY, request TEXT NOT NULL, answer TEXT NOT NULL,
    calls INTEGER NOT NULL, input_tokens INTEGER NOT NULL, output_tokens INTEGER NOT NULL,
    usd REAL, cost REAL, estimated INTEGER NOT NULL, mark INTEGER NOT NULL
) WITHOUT ROWID
"""


def cache_folder(name: str, environment: Mapping[str, str] = os.environ) -> Path:
    """Return the folder that `run.cache` names; "shared" is the platform's own for caches."""
    if name != "shared":
        return Path(name).expanduser()
    home = Path("~").expanduser()
    if sys.platform == "win32":
        base = Path(environment.get("LOCALAPPDATA") or home / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = home / "Library" / "Caches"
    else:
        base = Path(environment.get("XDG_CACHE_HOME") or home / ".cache")
    return base / "orchestrion"


class SharedAnswers:
    """The answers in a folder, while they are used as a context manager."""

    def __init__(self, name: str) -> None:
        self._name = name
        # One is read from in the event loop, the other written to in a thread, as in a run.
        self._reader: sqlite3.Connection | None = None
        self._writer: sqlite3.Connection | None = None

    def __enter__(self) -> Self:
        """Open the file; it is made if there is none."""
        try:
            folder = cache_folder(self._name)
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._writer = _connect(folder / _NAME)
            self._writer.execute(_TABLE)
            self._reader = _connect(folder / _NAME)
            self._reader.execute(f"SELECT {_COLUMNS}, mark FROM answers LIMIT 0")
        except (OSError, RuntimeError, ValueError, sqlite3.Error) as error:
            self.close()
            raise UsageError(
                f"run.cache: {self._name:.80} cannot be used as a folder of answers ({error}); "
                "name another, or delete it if it was one"
            ) from error
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; from then on it holds nothing. A second call does nothing."""
        for connection in (self._reader, self._writer):
            if connection is not None:
                with suppress(sqlite3.Error):
                    connection.close()
        self._reader = self._writer = None

    def get(self, key: str) -> Recorded | None:
        """Return the answer to a request, by its digest."""
        reader = self._reader
        if reader is None:
            return None
        try:
            row = reader.execute(
                f"SELECT {_COLUMNS}, mark FROM answers WHERE key = ?", (key,)
            ).fetchone()
        except sqlite3.Error as error:
            self._give_up(error)
            return None
        if row is None or mark(*row[:-1]) != row[-1]:
            return None
        return recorded(dict(zip(_COLUMNS.split(", "), row, strict=False)))

    def put_many(self, rows: list[Recorded]) -> None:
        """Keep answers for later runs; one that is lost costs another call and nothing else."""
        writer = self._writer
        if writer is None:
            return
        values = []
        for row in rows:
            usage, estimated = usage_columns(row.usage), int(row.facts.estimated)
            values.append((row.key, row.request, dumps(row.answer), *usage, estimated))
        try:
            writer.execute("BEGIN IMMEDIATE")
            writer.executemany(
                f"INSERT OR REPLACE INTO answers ({_COLUMNS}, mark) VALUES ({'?, ' * 9}?)",
                [(*row, mark(*row)) for row in values],
            )
            writer.execute("COMMIT")
        except sqlite3.Error as error:
            with suppress(sqlite3.Error):
                writer.execute("ROLLBACK")
            self._give_up(error)

    def _give_up(self, error: sqlite3.Error) -> None:
        """Stop using the cache, with a warning: a run does not end because its cache does."""
        logging.getLogger(__name__).warning(
            "run.cache: %s is not used any more: %s", self._name, error
        )
        self._reader = self._writer = None


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=30.0, isolation_level=None, check_same_thread=False)
    try:
        # Refused while another process does the same: one that succeeds is enough.
        with suppress(sqlite3.OperationalError):
            connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=NORMAL")
    except sqlite3.Error:
        connection.close()
        raise
    return connection
