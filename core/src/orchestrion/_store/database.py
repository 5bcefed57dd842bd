"""The SQLite file of a run: how it is opened, laid out and written to.

Tables are STRICT where SQLite knows that (3.37). Reports may read the file with any SQLite tool,
also while a run writes to it.

Every row carries a checksum of its other columns in `mark` (`number`, which SQLite gives, is left
out); problems, and texts that calls asked, are named by their own digest. What a disk changed
is an error where it is read. `Database.verify` also finds pages
that are gone or broken; rows that somebody deletes with SQL are not noticed.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final
from zlib import crc32

import msgspec

from orchestrion._errors import StoreError
from orchestrion._store.faults import fault_point
from orchestrion._store.files import explain

NAME: Final = "run.db"
SCHEMA: Final = 6
_APPLICATION: Final = 0x4F524348  # "ORCH"

_TABLES: Final = """
CREATE TABLE state (key TEXT PRIMARY KEY, value TEXT NOT NULL, mark INTEGER) STRICT;

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
    counts TEXT NOT NULL,           -- JSON: episodes by status, turns by agent
    mark INTEGER,
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
    record TEXT NOT NULL,           -- JSON, without the problem
    mark INTEGER
) STRICT;
-- All that lists of episodes filter and sort by, see `pages`.
CREATE INDEX episodes_columns ON episodes
    (seq, source, status, success, problem, category, reward, cost, turns);

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
    answer TEXT,                    -- JSON; NULL once retention has dropped it; of a `cached`
                                    -- call with its cost, as only what was spent stands below
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
    at REAL,                        -- when it began (Unix time), or when the call failed
    attempts INTEGER NOT NULL,
    estimated INTEGER NOT NULL,     -- whether the usage is an estimate
    pieces BLOB,                    -- what was asked: digests of texts, see `engine.pieces`
    mark INTEGER
) STRICT;
CREATE INDEX calls_kept ON calls (seq) WHERE answer IS NOT NULL;

-- JSON of what calls asked, by digest: each message, each long text, once.
CREATE TABLE texts (digest BLOB PRIMARY KEY, text TEXT NOT NULL) STRICT;

CREATE TABLE cache (
    key TEXT PRIMARY KEY, request TEXT NOT NULL, answer TEXT NOT NULL,
    calls INTEGER NOT NULL, input_tokens INTEGER NOT NULL, output_tokens INTEGER NOT NULL,
    usd REAL, cost REAL, mark INTEGER
) STRICT;

CREATE TABLE evaluations (
    name TEXT PRIMARY KEY, seq INTEGER NOT NULL, results TEXT NOT NULL, mark INTEGER
) STRICT;

CREATE TABLE events (
    number INTEGER PRIMARY KEY, at REAL NOT NULL, kind TEXT NOT NULL, data TEXT NOT NULL,
    mark INTEGER
) STRICT;
"""

_MARKED: Final = ("state", "iterations", "episodes", "calls", "cache", "evaluations", "events")
_PAGE: Final = 256
_MOUNTS = Path("/proc/self/mounts")
_NETWORK = ("nfs", "cifs", "smb", "9p", "afs", "lustre", "gpfs", "beegfs", "fuse.sshfs", "ceph")


_pack: Final = msgspec.msgpack.Encoder().encode


def mark(*values: str | float | bytes | None) -> int:
    """Return the checksum of a row's values: CRC-32, which notices every single flipped bit.

    Each value must have the type of its column, as SQLite will give it back: a float where that
    is REAL, and no -0.0.
    """
    return crc32(_pack(values))


def problem_digest(record: bytes) -> str:
    """Return the name of a problem's record in the table of problems."""
    return blake2b(record, digest_size=16).hexdigest()


def text_digest(text: bytes) -> bytes:
    """Return the name of a text in the table of texts."""
    return blake2b(text, digest_size=16).digest()


class Database:
    """One connection, safe to use from several threads, with errors that say what to do.

    `lock` is held by every statement and transaction; who keeps in memory what a transaction
    changes holds it around both.
    """

    def __init__(self, path: Path, *, writable: bool) -> None:
        self.path = path
        self.lock = threading.RLock()
        with self._errors():
            self._connection = self._connect(writable)
            self._place = _identity(path)
        try:
            self._check_schema()
            # Those that a mark covers, in order.
            self.columns = {
                table: tuple(
                    name
                    for _, name, *_ in self.all(f"PRAGMA table_info({table})")
                    if name not in ("mark", "number")
                )
                for table in _MARKED
            }
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
            when = "an earlier" if version < SCHEMA else "a later"
            raise StoreError(
                f"{self.path}: was written by {when} version of orchestrion (its schema is "
                f"{version}, this version reads {SCHEMA}); use the version that wrote it, or start "
                "a new run"
            )
        if self.all(_LAYOUT) != _layout():
            raise self.damage("its tables are not those of a run")

    @classmethod
    def create(cls, path: Path) -> Database:
        """Make a new file with all tables, and open it for writing."""
        try:
            connection = _open(f"{path.absolute().as_uri()}?mode=rwc")
            try:
                connection.executescript(
                    f"BEGIN IMMEDIATE;{_tables()}PRAGMA application_id={_APPLICATION};"
                    f"PRAGMA user_version={SCHEMA};COMMIT;"
                )
            finally:
                connection.close()
        except sqlite3.Error as error:
            raise store_error(error, path) from error
        return cls(path, writable=True)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise store_error(error, self.path) from error
        except UnicodeDecodeError as error:  # in a name: our texts are decoded leniently
            raise self.damage("its names are no text") from error
        except OSError as error:
            raise StoreError(explain(error, self.path)) from error

    @contextmanager
    def transaction(self, point: str, *, durable: bool = True) -> Iterator[sqlite3.Connection]:
        """Commit all that is written inside together, or nothing of it.

        Args:
            point: prefix of the fault points passed.
            durable: on disk when this returns. Otherwise it outlives the process, but the last
                few may be lost with the power.
        """
        with self.lock, self._errors():
            self.check_place()
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

    def version(self) -> tuple[int, int]:
        """Return what differs once others, or this connection, have written."""
        return int(self.one("PRAGMA data_version")[0]), self._connection.total_changes

    def all(self, sql: str, values: Sequence[Any] = ()) -> list[Any]:
        """Return all rows of a query."""
        with self.lock, self._errors():
            return self._connection.execute(sql, values).fetchall()

    def one(self, sql: str, values: Sequence[Any] = ()) -> Any:
        """Return the first row of a query, or None."""
        with self.lock, self._errors():
            return self._connection.execute(sql, values).fetchone()

    def check_place(self) -> None:
        """Refuse to write into a file that nobody will find: SQLite would not notice."""
        if _identity(self.path) != self._place:
            raise StoreError(
                f"{self.path}: was moved, deleted or replaced while the run was writing to it; "
                "nothing more is stored. If it was moved, go on where it is now with "
                "`orchestrion resume`"
            )

    # ------------------------------------------------------------------ checksums

    def insert(
        self,
        connection: sqlite3.Connection,
        table: str,
        rows: Iterable[Mapping[str, Any]],
        conflict: str = "",
    ) -> None:
        """Write rows, given by column, with their marks; `conflict` says what follows VALUES."""
        names = self.columns[table]
        values = ([row[name] for name in names] for row in rows)
        connection.executemany(
            f"INSERT INTO {table} ({', '.join(names)}, mark) VALUES ({'?, ' * len(names)}?) "
            f"{conflict}",
            ((*row, mark(*row)) for row in values),
        )

    def change(self, table: str, **values: str) -> str:
        """Return the UPDATE, without WHERE, that sets columns to SQL expressions, and the mark."""
        sets = "".join(f"{name} = {value}, " for name, value in values.items())
        marked = ", ".join(values.get(name, name) for name in self.columns[table])
        return f"UPDATE {table} SET {sets}mark = mark({marked})"

    def rows(self, table: str, rest: str = "", values: Sequence[Any] = ()) -> list[dict[str, Any]]:
        """Return rows as dictionaries, each checked against its mark."""
        names = self.columns[table]
        read = self.all(f"SELECT {', '.join(names)}, mark FROM {table} {rest}", values)
        for row in read:
            self.check(table, row)
        return [dict(zip(names, row, strict=False)) for row in read]

    def check(self, table: str, row: Sequence[Any]) -> None:
        """Refuse a row, given as its columns and its mark, that is not what was written."""
        if mark(*row[:-1]) != row[-1]:
            raise self.damage(f"a row of {table} is not what was written: {str(row[:2])[:80]}")

    def damage(self, what: str) -> StoreError:
        """Return the error to raise about content that something else changed."""
        return StoreError(
            f"{self.path}: is damaged: {what}; copy the run's folder back from a backup, or "
            "start a new run"
        )

    def verify(self) -> None:
        """Read all of it, and refuse it unless every row is there and is what was written."""
        report = [text for (text,) in self.all("PRAGMA integrity_check")]
        if report != ["ok"]:
            raise self.damage(" ".join(report[0].split())[:200])
        for table in _MARKED:
            for row in self._paged(table, (*self.columns[table], "mark")):
                self.check(table, row)
        for row in self._paged("problems", ("digest", "record")):
            self.check_problem(*row)
        for row in self._paged("texts", ("digest", "text")):
            self.check_text(*row)

    def check_text(self, digest: bytes, text: str | None) -> None:
        """Refuse a text that is gone, or is not what was written."""
        if text is None or text_digest(text.encode()) != digest:
            raise self.damage(f"the text {digest.hex()} is not what was written")

    def check_problem(self, digest: str, record: str | None) -> None:
        """Refuse a problem's record that is gone, or is not what was written."""
        if record is None or problem_digest(record.encode()) != digest:
            raise self.damage(f"the record of problem {digest} is not what was written")

    def _paged(self, table: str, names: Sequence[str]) -> Iterator[Sequence[Any]]:
        query = (
            f"SELECT rowid, {', '.join(names)} FROM {table} WHERE rowid > ? ORDER BY rowid "
            f"LIMIT {_PAGE}"
        )
        last = -(1 << 63)
        while page := self.all(query, (last,)):
            yield from (row[1:] for row in page)
            last = page[-1][0]

    def compact(self) -> None:
        """Give the room of deleted rows back to the disk."""
        with self.lock, self._errors():
            self._connection.execute("VACUUM")

    def close(self) -> None:
        """Close the connection; a second call does nothing."""
        with self.lock, suppress(sqlite3.Error):
            self._connection.close()


def _open(uri: str) -> sqlite3.Connection:
    connection = sqlite3.connect(
        uri, uri=True, timeout=10.0, isolation_level=None, check_same_thread=False
    )
    connection.execute("PRAGMA busy_timeout=10000")
    connection.create_function("mark", -1, mark, deterministic=True)
    # A lone surrogate in a name must not make a run unreadable.
    connection.text_factory = lambda data: data.decode(errors="replace")
    return connection


_LAYOUT: Final = "SELECT name, replace(sql, ') STRICT', ')') FROM sqlite_master ORDER BY name"


def _tables() -> str:
    strict = sqlite3.sqlite_version_info >= (3, 37)
    return _TABLES if strict else _TABLES.replace(") STRICT;", ");")


@cache
def _layout() -> list[tuple[str, str | None]]:
    """Return what `_LAYOUT` selects in a new file."""
    connection = sqlite3.connect(":memory:")
    try:
        connection.executescript(_tables())
        return connection.execute(_LAYOUT).fetchall()
    finally:
        connection.close()


def _identity(path: Path) -> tuple[int, int] | None:
    """Return device and number of the file at a path; None if there is none."""
    try:
        stat = os.stat(path)
    except FileNotFoundError:
        return None
    return stat.st_dev, stat.st_ino


def _with_wal(uri: str) -> sqlite3.Connection | None:
    """Open with write-ahead logging; None where processes cannot share memory for it."""
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
    """Return whether the folder is on a network file system, as far as the system says."""
    with suppress(OSError):
        mounts = [line.split() for line in _MOUNTS.read_text().splitlines()]
        folder = path.resolve().parent
        over = [m for m in mounts if folder.is_relative_to(m[1].replace("\\040", " "))]
        kind = max(over, key=lambda mount: len(mount[1]))[2] if over else ""
        return kind.startswith(_NETWORK)
    return False


def store_error(error: sqlite3.Error, path: Path) -> StoreError:
    """Return the error to raise in place of SQLite's, which says what to do."""
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
