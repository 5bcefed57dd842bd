"""What happens to a run after its training, e.g. that it is served: lines of `notes.jsonl`.

They stand beside the database, so that several programs can add some while a run goes on.
"""

from __future__ import annotations

import time
from pathlib import Path

import msgspec
from attrs import frozen

from orchestrion._errors import StoreError
from orchestrion._records import JSON
from orchestrion._store.files import explain

_FILE = "notes.jsonl"


@frozen
class Event:
    """Something worth telling: a resume, a refused checkpoint, a warning. `at` is Unix time."""

    at: float
    kind: str
    data: JSON


_LINE = msgspec.json.Decoder(tuple[float, str, JSON])


def add_note(directory: Path, kind: str, data: JSON = None) -> None:
    """Note on a run what `orchestrion runs show` is to tell.

    Raises:
        StoreError: the folder cannot be written to.
    """
    path = directory / _FILE
    # A line that was cut off is ended by the next one.
    line = b"\n" + msgspec.json.encode((round(time.time(), 3), kind, data))
    try:
        with path.open("ab", buffering=0) as file:
            file.write(line)
    except OSError as error:
        raise StoreError(explain(error, path)) from error


def read_notes(directory: Path) -> list[Event]:
    """Return the notes on a run, oldest first; lines that were cut off are left out."""
    notes = []
    try:
        lines = (directory / _FILE).read_bytes().splitlines()
    except OSError:
        return []
    for line in lines:
        try:
            notes.append(Event(*_LINE.decode(line)))
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue
    return notes
