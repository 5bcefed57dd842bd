"""The SQLite file of a run: how it is opened, read and written to.

Reports may read the file with any SQLite tool, also while a run writes to it. What a disk changed
is an error where it is read, by the checksums and digests of the tables (see `schema`).
`Database.verify` also finds pages that are gone or broken; rows that somebody deletes with SQL are
not noticed.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final
from zlib import crc32

import msgspec

from orchestrion._errors import StoreError
from orchestrion._store.faults import fault_point
from orchestrion._store.files import explain
from orchestrion._store.schema import APPLICATION, LAYOUT, MARKED, SCHEMA, layout, tables

NAME: Final = "run.db"
_PAGE: Final = 256
_MOUNTS = Path("/proc/self/mounts")
_NETWORK = ("nfs", "cifs", "smb", "9p", "afs", "lustre", "gpfs", "beegfs", "fuse.sshfs", "ceph")
_INTACT = "What was stored before is intact; the run can be resumed"
_DENIED = f"cannot be written to; check the folder's permissions. {_INTACT}"
_LOCKED = "another program keeps it locked; close it and try again"
_DAMAGED = "is damaged, or not a run's database"
_ADVICE: Final = {
    "SQLITE_FULL": f"the disk is full; make room. {_INTACT}",
    "SQLITE_READONLY": _DENIED,
    "SQLITE_PERM": _DENIED,
    "SQLITE_IOERR": f"the disk is full or broken ({{}}); make room. {_INTACT}",
    "SQLITE_BUSY": _LOCKED,
    "SQLITE_LOCKED": _LOCKED,
    "SQLITE_CANTOPEN": "cannot be opened; does it exist, and may you read it?",
    "SQLITE_CORRUPT": _DAMAGED,
    "SQLITE_NOTADB": _DAMAGED,
}
"""What to do about an error, by the beginning of SQLite's name for it."""
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
            uri = path.absolute().as_uri()
            connect = self._connect_writer if writable else self._connect_reader
            self._connection = connect(uri)
            self._place = _identity(path)
        self._layout, self.columns = layout()
        """By table the columns that a mark covers, in order."""
        try:
            self._check_schema()
        except StoreError:
            self._connection.close()
            raise

    def _connect_writer(self, uri: str) -> sqlite3.Connection:
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
        if application != APPLICATION:
            raise StoreError(f"{self.path}: not the database of a run")
        if version != SCHEMA:
            when = "an earlier" if version < SCHEMA else "a later"
            raise StoreError(
                f"{self.path}: was written by {when} version of orchestrion (its schema is "
                f"{version}, this version reads {SCHEMA}); use the version that wrote it, or start "
                "a new run"
            )
        if self.all(LAYOUT) != self._layout:
            raise self.damage("its tables are not those of a run")

    @classmethod
    def create(cls, path: Path) -> Database:
        """Make a new file with all tables, and open it for writing."""
        try:
            with closing(_open(f"{path.absolute().as_uri()}?mode=rwc")) as connection:
                connection.executescript(
                    f"BEGIN IMMEDIATE;{tables()}PRAGMA application_id={APPLICATION};"
                    f"PRAGMA user_version={SCHEMA};COMMIT;"
                )
        except sqlite3.Error as error:
            raise _store_error(error, path) from error
        return cls(path, writable=True)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise _store_error(error, self.path) from error
        except UnicodeDecodeError as error:  # in a name: our texts are decoded leniently
            raise self.damage("its names are no text") from error
        except OSError as error:
            raise StoreError(explain(error, self.path)) from error

    @contextmanager
    def transaction(self, point: str, *, durable: bool = True) -> Iterator[None]:
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
                yield
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

    def execute(self, sql: str, values: Sequence[Any] = ()) -> None:
        """Execute a statement of a transaction."""
        self.execute_many(sql, [values])

    def execute_many(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        """Execute a statement of a transaction for each row of values."""
        with self.lock, self._errors():
            self._connection.executemany(sql, rows)

    def check_place(self) -> None:
        """Refuse to write into a file that nobody will find: SQLite would not notice."""
        if _identity(self.path) != self._place:
            raise StoreError(
                f"{self.path}: was moved, deleted or replaced while the run was writing to it; "
                "nothing more is stored. If it was moved, go on where it is now with "
                "`orchestrion resume`"
            )

    # ------------------------------------------------------------------ checksums

    def insert(self, table: str, rows: Iterable[Mapping[str, Any]], conflict: str = "") -> None:
        """Write rows, given by column, with their marks; `conflict` says what follows VALUES."""
        names = self.columns[table]
        values = ([row[name] for name in names] for row in rows)
        self.execute_many(
            f"INSERT INTO {table} ({', '.join(names)}, mark) VALUES ({'?, ' * len(names)}?) "
            f"{conflict}",
            ((*row, mark(*row)) for row in values),
        )

    def change(
        self, table: str, where: str, keys: Iterable[Sequence[Any]] = ((),), **values: str
    ) -> None:
        """Set columns to SQL expressions, and the marks, in rows that `where` selects.

        That is done once for each of `keys`, the values of the parameters in `where`.
        """
        sets = "".join(f"{name} = {value}, " for name, value in values.items())
        marked = ", ".join(values.get(name, name) for name in self.columns[table])
        self.execute_many(f"UPDATE {table} SET {sets}mark = mark({marked}) WHERE {where}", keys)

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
        for table in MARKED:
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

    connection.create_function("mark", -1, mark, deterministic=True)
    # A lone surrogate in a name must not make a run unreadable.
    connection.text_factory = lambda data: data.decode(errors="replace")
    return connection


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


def _store_error(error: sqlite3.Error, path: Path) -> StoreError:
    """Return the error to raise in place of SQLite's, which says what to do."""
    name = getattr(error, "sqlite_errorname", "") or ""
    texts = [text.format(name) for kind, text in _ADVICE.items() if name.startswith(kind)]
    return StoreError(f"{path}: {texts[0] if texts else error}")
