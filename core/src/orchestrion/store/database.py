"""The SQLite file of a run: how it is opened, laid out and written to.

Tables are STRICT where SQLite knows that (3.37). Reports may read the file with any SQLite tool,
also while a run writes to it.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from orchestrion.errors import StoreError
from orchestrion.store.faults import fault_point
from orchestrion.store.files import explain

__all__ = ["NAME", "SCHEMA", "Database"]

NAME: Final = "run.db"
SCHEMA: Final = 2
_APPLICATION: Final = 0x4F524348  # "ORCH"

_TABLES: Final = """
CREATE TABLE state (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;

-- One row a committed iteration; `seq` counts them over all stages.
CREATE TABLE iterations (
    seq INTEGER PRIMARY KEY,
    stage INTEGER NOT NULL,
    iteration INTEGER NOT NULL,
    metrics TEXT NOT NULL,          -- JSON
    episodes INTEGER NOT NULL,
    successes INTEGER NOT NULL,
    unrewarded INTEGER NOT NULL,    -- episodes whose reward is missing
    reward REAL,                    -- mean of the others
    checkpoint TEXT,                -- file name; NULL when none was written or it was pruned
    digest TEXT,                    -- its SHA-256
    seconds REAL NOT NULL,
    UNIQUE (stage, iteration)
) STRICT;

CREATE TABLE problems (digest TEXT PRIMARY KEY, id TEXT NOT NULL, record TEXT NOT NULL) STRICT;

CREATE TABLE episodes (
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    seq INTEGER NOT NULL,           -- of the iteration, or of the one that came next
    source TEXT NOT NULL,           -- 'train', or the name of an evaluation
    problem TEXT NOT NULL,          -- id
    category TEXT NOT NULL,
    status TEXT NOT NULL,
    success INTEGER NOT NULL,
    score REAL,
    reward REAL,
    turns INTEGER NOT NULL,
    calls INTEGER NOT NULL,
    input_tokens INTEGER NOT NULL,
    output_tokens INTEGER NOT NULL,
    usd REAL,
    cost REAL,
    public TEXT NOT NULL,           -- digest of the problem's record
    record TEXT NOT NULL            -- JSON, without the problem
) STRICT;
CREATE INDEX episodes_seq ON episodes (seq);

CREATE VIEW turns AS
    SELECT e.id AS episode,
           json_extract(t.value, '$.index') AS number,
           json_extract(t.value, '$.agent') AS agent,
           json_extract(t.value, '$.option') AS option,
           json_extract(t.value, '$.status') AS status,
           json_extract(t.value, '$.output.content') AS content,
           json_extract(t.value, '$.output.usage.cost') AS cost,
           json_extract(t.value, '$.error') AS error
    FROM episodes e, json_each(e.record, '$.trajectory') t;

-- The journal: what was asked of the outside, and what it answered.
-- `kind` says what a row is, see `engine.recording.Kind`; no result depends on what follows `seq`.
CREATE TABLE calls (
    key TEXT PRIMARY KEY,
    request TEXT NOT NULL,          -- digest
    kind TEXT NOT NULL,
    answer TEXT,                    -- JSON; NULL once retention has dropped it
    calls INTEGER NOT NULL,
    input_tokens INTEGER NOT NULL,
    output_tokens INTEGER NOT NULL,
    usd REAL,                       -- NULL: the price is not known
    cost REAL,
    seq INTEGER NOT NULL,           -- of the iteration in progress
    service TEXT NOT NULL,
    who TEXT NOT NULL,              -- an agent's name, 'verifier', 'reward', 'trainer'
    stage TEXT NOT NULL,
    seconds REAL,                   -- what the attempt that was answered took
    attempts INTEGER NOT NULL,
    estimated INTEGER NOT NULL      -- whether the usage is an estimate
) STRICT;
CREATE INDEX calls_kept ON calls (seq) WHERE answer IS NOT NULL;

CREATE TABLE cache (
    key TEXT PRIMARY KEY, request TEXT NOT NULL, answer TEXT NOT NULL,
    calls INTEGER NOT NULL, input_tokens INTEGER NOT NULL, output_tokens INTEGER NOT NULL,
    usd REAL, cost REAL
) STRICT;

CREATE TABLE evaluations (
    name TEXT PRIMARY KEY, seq INTEGER NOT NULL, results TEXT NOT NULL
) STRICT;

CREATE TABLE events (
    number INTEGER PRIMARY KEY, at REAL NOT NULL, kind TEXT NOT NULL, data TEXT NOT NULL
) STRICT;
"""

_MOUNTS = Path("/proc/self/mounts")
_NETWORK = ("nfs", "cifs", "smb", "9p", "afs", "lustre", "gpfs", "beegfs", "fuse.sshfs", "ceph")


class Database:
    """One connection, safe to use from several threads, with errors that say what to do.

    Args:
        path: the file.
        writable: whether to write; a reader never creates anything.
    """

    def __init__(self, path: Path, *, writable: bool) -> None:
        self.path = path
        self._lock = threading.RLock()
        with self._errors():
            self._connection = self._connect(writable)
        try:
            self._check_schema()
        except StoreError:
            self._connection.close()
            raise

    def _connect(self, writable: bool) -> sqlite3.Connection:
        uri = self.path.absolute().as_uri()
        if not writable:
            return self._connect_reader(uri)
        connection = None if _on_network(self.path) else _with_wal(uri)
        if connection is None:
            connection = _open(f"{uri}?mode=rw")
            # The way back from WAL is open only to one that needs no readers beside it.
            connection.execute("PRAGMA locking_mode=EXCLUSIVE")
            connection.execute("PRAGMA journal_mode=DELETE")
            connection.execute("PRAGMA locking_mode=NORMAL")
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        connection.execute("PRAGMA synchronous=FULL")
        return connection

    def _connect_reader(self, uri: str) -> sqlite3.Connection:
        connection = _open(f"{uri}?mode=ro")
        try:
            connection.execute("PRAGMA user_version").fetchone()
        except sqlite3.OperationalError:
            # A folder that cannot be written to has no room for shared memory. Nobody else
            # writes there either, so that the file may be read as it is.
            connection.close()
            if self.path.with_name(f"{self.path.name}-wal").exists():
                raise
            connection = _open(f"{uri}?immutable=1")
        return connection

    def _check_schema(self) -> None:
        (application,) = self.one("PRAGMA application_id")
        (version,) = self.one("PRAGMA user_version")
        if application != _APPLICATION:
            raise StoreError(f"{self.path}: not the database of a run")
        if version != SCHEMA:
            raise StoreError(
                f"{self.path}: has schema {version}, this version of orchestrion reads {SCHEMA}; "
                "use the version that wrote it"
            )

    @classmethod
    def create(cls, path: Path) -> Database:
        """A new file with all tables, opened for writing."""
        try:
            connection = _open(f"{path.absolute().as_uri()}?mode=rwc")
            try:
                strict = sqlite3.sqlite_version_info >= (3, 37)
                tables = _TABLES if strict else _TABLES.replace(") STRICT;", ");")
                connection.executescript(
                    f"BEGIN IMMEDIATE;{tables}PRAGMA application_id={_APPLICATION};"
                    f"PRAGMA user_version={SCHEMA};COMMIT;"
                )
            finally:
                connection.close()
        except sqlite3.Error as error:
            raise _store_error(error, path) from error
        return cls(path, writable=True)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise _store_error(error, self.path) from error
        except OSError as error:
            raise StoreError(explain(error, self.path)) from error

    @contextmanager
    def transaction(self, point: str, *, durable: bool = True) -> Iterator[sqlite3.Connection]:
        """All that is written inside is committed together, or not at all.

        Args:
            point: prefix of the fault points passed.
            durable: on disk when this returns. Otherwise it outlives the process, but the last
                few may be lost with the power.
        """
        with self._lock, self._errors():
            self._connection.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                fault_point(f"{point}.written")
                self._connection.execute("COMMIT")
            except BaseException:
                # A full disk makes SQLite roll back by itself.
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise
            fault_point(f"{point}.committed")

    def all(self, sql: str, values: Sequence[Any] = ()) -> list[Any]:
        """All rows of a query."""
        with self._lock, self._errors():
            return self._connection.execute(sql, values).fetchall()

    def one(self, sql: str, values: Sequence[Any] = ()) -> Any:
        """The first row of a query, or None."""
        with self._lock, self._errors():
            return self._connection.execute(sql, values).fetchone()

    def compact(self) -> None:
        """Give the room of deleted rows back to the disk."""
        with self._lock, self._errors():
            self._connection.execute("VACUUM")

    def close(self) -> None:
        """Close the connection; a second call does nothing."""
        with self._lock, suppress(sqlite3.Error):
            self._connection.close()


def _open(uri: str) -> sqlite3.Connection:
    connection = sqlite3.connect(
        uri, uri=True, timeout=10.0, isolation_level=None, check_same_thread=False
    )
    connection.execute("PRAGMA busy_timeout=10000")
    # A lone surrogate in a name must not make a run unreadable.
    connection.text_factory = lambda data: data.decode(errors="replace")
    return connection


def _with_wal(uri: str) -> sqlite3.Connection | None:
    """A connection with write-ahead logging, or None where there is no memory to share for it."""
    connection = _open(f"{uri}?mode=rw")
    try:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("ROLLBACK")
        return connection
    except sqlite3.OperationalError as error:
        connection.close()
        if error.sqlite_errorname.startswith(("SQLITE_BUSY", "SQLITE_FULL")):
            raise
        return None


def _on_network(path: Path) -> bool:
    """Whether the folder is on a network file system, as far as the system tells."""
    with suppress(OSError):
        mounts = [line.split() for line in _MOUNTS.read_text().splitlines()]
        folder = path.resolve().parent
        over = [m for m in mounts if folder.is_relative_to(m[1].replace("\\040", " "))]
        kind = max(over, key=lambda mount: len(mount[1]))[2] if over else ""
        return kind.startswith(_NETWORK)
    return False


def _store_error(error: sqlite3.Error, path: Path) -> StoreError:
    name = getattr(error, "sqlite_errorname", "") or ""
    intact = "What was stored before is intact; the run can be resumed"
    if name.startswith("SQLITE_FULL"):
        return StoreError(f"{path}: the disk is full; make room. {intact}")
    if name.startswith(("SQLITE_READONLY", "SQLITE_PERM")):
        return StoreError(f"{path}: cannot be written to; check the folder's permissions. {intact}")
    if name.startswith("SQLITE_IOERR"):
        return StoreError(f"{path}: the disk is full or broken ({name}); make room. {intact}")
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return StoreError(f"{path}: another program keeps it locked; close it and try again")
    if name.startswith("SQLITE_CANTOPEN"):
        return StoreError(f"{path}: cannot be opened; does it exist, and may you read it?")
    if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
        return StoreError(f"{path}: is damaged, or not a run's database")
    return StoreError(f"{path}: {error}")
