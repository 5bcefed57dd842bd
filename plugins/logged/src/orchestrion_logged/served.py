"""The log of a served team: a folder of decisions, requests and feedback, which grows in use.

    FOLDER/000001.jsonl     lines in the order in which they were written; the oldest files go first
    FOLDER/000002.jsonl
    FOLDER/steps.jsonl      versions and their promotion; kept

A file has lines of three kinds: decisions as in any log (`Logged`), `{"served": ID, ...}` after
the decisions of each request, and `{"feedback": ID, "score": ...}`. Each start of a server begins
a new file, so a line that a crash cut off is the last one of its file, and nothing is ever
rewritten. `reading` joins the three.
"""

from __future__ import annotations

import fcntl
import os
import re
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import msgspec
from msgspec import Meta, Struct

from orchestrion import StoreError, hidden_bytes
from orchestrion.runs import make_folder
from orchestrion_logged.records import Logged, LogWriter, Name, Share, checked

STEPS = "steps.jsonl"
SMALLEST = 1 << 16
"""The least bytes of a file before the next one is begun."""
FILES = 8
"""A full log has about so many files; so much of it goes at once."""
_SEGMENT = re.compile(r"\d{6,}\.jsonl")


class ServedRequest(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A request that was answered; its decisions stand before it, with its id as `episode`."""

    served: Name  # its id
    model: str = ""  # the name it asked for
    version: str = ""
    """What answered: the digest of a checkpoint, or of a config that learned nothing."""
    tenant: str = ""  # whose request it is; "" on a server without keys
    key: str = ""  # of the episode's randomness
    status: str = "completed"  # of the episode; "cancelled" if there was none in the end
    decisions: Annotated[int, Meta(ge=0)] = 0
    """How many stand before it; 0 also if one of them started several agents at once."""
    explored: bool = False
    """Whether one of them differs from what the policy itself would have done."""
    canary: str = ""  # the version that was on trial; "" if none was
    share: Annotated[float, Meta(gt=0, le=1)] = 1.0  # the probability of the version that answered
    time: float | None = None  # in seconds of Unix time, for people


class Feedback(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """How good an answer was."""

    feedback: Name  # the id of the request
    score: Share  # from 0 to 1
    by: Literal["user", "verifier"] = "user"
    """Whose opinion it is; a user's counts more than a verifier's."""
    comment: str = ""  # of the user
    time: float | None = None  # in seconds of Unix time, for people


class ServedStep(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Something that happened to versions: "serving", "canary", "promoted", "rolled back", ..."""

    step: Name  # what happened
    version: str = ""  # to which version
    data: Mapping[str, Any] = {}  # the numbers behind it
    time: float | None = None  # in seconds of Unix time, for people


def segments(folder: Path) -> list[Path]:
    """Return the files of a served log, oldest first; without the steps."""
    return sorted(path for path in folder.iterdir() if _SEGMENT.fullmatch(path.name))


class ServedLog:
    """Writes the log of a served team; use it with `with`. Methods may be called in any thread.

    Args:
        folder: made if it does not exist.
        size: bytes of all files together. Beyond it the oldest file is removed.
        note: called with a sentence when that happens for the first time.
        removed: called with the number of each file that is removed.

    Raises:
        StoreError: another server writes to it, or the folder cannot be used.
    """

    def __init__(
        self,
        folder: Path,
        size: int,
        note: Callable[[str], None] | None = None,
        removed: Callable[[int], None] | None = None,
    ) -> None:
        self.folder, self._size, self._note = make_folder(folder), size, note
        self._removed = removed
        self._most = max(size // FILES, SMALLEST)
        self._mutex = threading.Lock()
        self._torn = False
        """Whether the last line may be cut off, as the disk was full."""
        try:
            taken = f"{folder}: another server writes to this log; give each its own folder"
            self._lock: int | None = locked(folder / "lock", taken)
            last = int(files[-1].stem) if (files := segments(folder)) else 0
            self._steps = LogWriter(folder / STEPS)
            self._begin(last + 1)
        except OSError as error:
            raise StoreError(f"{folder}: cannot be written to: {error}") from error

    def append(self, *records: Logged | ServedRequest | Feedback) -> int:
        """Add records together, and return the number of their file.

        They are on disk after the next `sync`.

        Raises:
            UsageError: a decision contradicts itself.
            StoreError: the log is closed, or the disk is full.
        """
        where = self._writer.path
        lines = [
            checked(record, where) if isinstance(record, Logged) else _line(record)
            for record in records
        ]
        with self._mutex:
            if self._lock is None:
                raise StoreError(f"{self.folder}: is closed")
            try:
                if self._torn:
                    os.ftruncate(self._writer.fileno(), self._written)
                    self._torn = False
                if self._written >= self._most:
                    self._rotate()
            except OSError as error:
                raise StoreError(f"{self.folder}: cannot be written to: {error}") from error
            text, number = hidden_bytes(b"".join(lines)), self.number
            self._torn = True
            self._writer.write(text)
            self._torn = False
            self._written += len(text)
            return number

    def sync(self) -> None:
        """Return when all that was appended is on disk.

        Raises:
            StoreError: the disk is broken.
        """
        with self._mutex:
            if self._lock is None:  # closing made it durable
                return
            descriptor = os.dup(self._writer.fileno())
        # Not under the mutex: whoever appends must not wait for the disk.
        try:
            os.fsync(descriptor)
        except OSError as error:
            raise StoreError(f"{self.folder}: cannot be written to: {error}") from error
        finally:
            os.close(descriptor)

    def step(self, step: ServedStep) -> None:
        """Add a step, durably."""
        with self._mutex:
            self._steps.write(_line(step))
            os.fsync(self._steps.fileno())

    def close(self) -> None:
        """Close the files; a second call does nothing."""
        with self._mutex:
            if self._lock is not None:
                os.fsync(self._writer.fileno())
                self._writer.close()
                self._steps.close()
                os.close(self._lock)
                self._lock = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _begin(self, number: int) -> None:
        self.number, self._written = number, 0
        self._writer = LogWriter(self.folder / f"{number:06}.jsonl")
        _sync_folder(self.folder)

    def _rotate(self) -> None:
        """Begin a new file, and remove the oldest ones beyond the size."""
        # Feedback in the next file may be about requests in this one.
        before = self._writer
        os.fsync(before.fileno())
        self._begin(self.number + 1)
        before.close()
        files = segments(self.folder)
        total = sum(path.stat().st_size for path in files)
        while total + self._most > self._size and len(files) > 2:
            oldest = files.pop(0)
            total -= oldest.stat().st_size
            oldest.unlink()
            if self._removed is not None:
                self._removed(int(oldest.stem))
            if self._note is not None:
                self._note(
                    f"{self.folder}: the log is full; the oldest requests are removed from now on"
                )
                self._note = None


def _line(record: ServedRequest | Feedback | ServedStep) -> bytes:
    return msgspec.json.encode(record) + b"\n"


def locked(path: Path, taken: str) -> int:
    """Lock a file, made if it does not exist; return its descriptor, which holds the lock.

    Raises:
        StoreError: another server has locked it; says `taken`.
        OSError: the file cannot be opened.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise StoreError(taken) from None
    return descriptor


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
