"""The documents of a corpus, and an index of them."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import Any, Protocol

from attrs import frozen

from orchestrion import Turn, UsageError

WORDS = 64
"""The most different words of a query that are used."""


@frozen
class Document:
    """One piece of the corpus."""

    title: str
    text: str


class Index(Protocol):
    """Finds documents; equal queries find the same documents in the same order."""

    def search(self, query: str, results: int) -> tuple[Document, ...]:
        """Return the best documents for a query, best first; none if nothing fits."""
        ...

    def close(self) -> None:
        """Release the resources of the index."""
        ...


class Bm25:
    """Ranks documents by BM25, with the full-text search of Python's SQLite.

    Words are compared without case, accents and English endings. A title counts twice.
    """

    def __init__(self, documents: Sequence[Document]) -> None:
        self._documents = tuple(documents)
        self._lock = Lock()
        self._database = sqlite3.connect(":memory:", check_same_thread=False)
        try:
            self._database.execute(
                "CREATE VIRTUAL TABLE documents USING fts5(title, body, content='', "
                "tokenize='porter unicode61 remove_diacritics 2')"
            )
        except sqlite3.OperationalError as error:
            self._database.close()
            raise UsageError(
                f"task search: this Python's SQLite has no full-text search ({error}); take "
                "another build of Python, or `dense`"
            ) from error
        with self._database:
            self._database.executemany(
                "INSERT INTO documents(rowid, title, body) VALUES (?, ?, ?)",
                ((i, document.title, document.text) for i, document in enumerate(self._documents)),
            )

    def search(self, query: str, results: int) -> tuple[Document, ...]:
        """Return the best documents, ties in the order of the corpus."""
        words = list(dict.fromkeys(re.findall(r"\w+", query.casefold())))[:WORDS]
        if not words:
            return ()
        # In quotes, no word is an operator of the query language.
        wanted = " OR ".join(f'"{word}"' for word in words)
        with self._lock:
            rows = self._database.execute(
                "SELECT rowid FROM documents WHERE documents MATCH ? "
                "ORDER BY bm25(documents, 2.0, 1.0), rowid LIMIT ?",
                (wanted, results),
            ).fetchall()
        return tuple(self._documents[i] for (i,) in rows)

    def close(self) -> None:
        """Close the database."""
        self._database.close()


def read_corpus(path: Path) -> tuple[Document, ...]:
    """Return documents of a file, one {"title", "text"} a line.

    Raises:
        UsageError: with the line that is wrong.
    """
    documents: list[Document] = []
    for number, line in enumerate(read_text(path).split("\n"), 1):
        if line.strip():
            try:
                row = read_json(line)
                documents.append(Document(_text(row, "title"), _text(row, "text")))
            except (ValueError, TypeError, KeyError) as error:
                raise UsageError(
                    f'{path}:{number}: want {{"title": "...", "text": "..."}} ({error})'
                ) from error
    return tuple(documents)


def documents_of(turn: Turn) -> tuple[Document, ...]:
    """Return the documents in the data of a turn; a failed turn has none."""
    data = turn.output.data
    rows = data.get("documents") if isinstance(data, Mapping) else None
    if turn.status != "completed" or not isinstance(rows, (list, tuple)):
        return ()
    documents = []
    for row in rows:
        match row:
            case {"title": str(title), "text": str(text)}:
                documents.append(Document(title, text))
    return tuple(documents)


def _text(row: dict[str, object], name: str) -> str:
    value = row[name]
    if not isinstance(value, str):
        raise TypeError(f"{name!r} is no text")
    return value


def read_json(text: str) -> Any:
    """Return the value of JSON text.

    Raises:
        ValueError: it is no JSON, is nested too deeply, or has half of a pair of surrogates, which
            is no character.
    """
    try:
        value = json.loads(text)
        if r"\ud" in text.lower():
            json.dumps(value, ensure_ascii=False).encode()
    except RecursionError as error:
        raise ValueError(str(error)) from error
    return value


def read_text(path: Path) -> str:
    """Return the text of a file.

    Raises:
        UsageError: it cannot be read.
    """
    try:
        return path.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: cannot be read: {error}") from error
