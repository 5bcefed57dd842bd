"""The requests and answers of calls, as a run keeps them; each text is kept once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any

from attrs import frozen

from orchestrion._engine.recording import joined
from orchestrion._records import JSON, Trajectory, Turn, Usage
from orchestrion._secrets import hidden_bytes
from orchestrion._store.database import Database, text_digest

_DIGEST = 16
_REMEMBERED = 50_000
_MESSAGES = ("messages", "input")  # the names that APIs give their list of messages


@frozen(kw_only=True)
class StoredCall:
    """A call of a model, a tool or a person, as it was recorded.

    `kind` is "answer"; "cached" for the answer of an earlier call; "failed"; or what became of one
    that was given up ("timeout", "cut", "lost", "billed"). `asked` is None if the run does not keep
    it: for a model its messages, tools and settings, in the words of its API; for a tool its name
    and arguments.
    """

    name: str  # as `Output.calls` and `Episode.calls` have it
    service: str
    who: str  # on whose behalf: an agent, "verifier", "reward" or "trainer"
    stage: str  # the part of the run
    kind: str
    asked: JSON
    answer: JSON  # of a failed one the error; None if there is none, or it was dropped
    usage: Usage
    seconds: float | None  # that the attempt which was answered took
    at: float | None  # when that attempt began, or when the call failed (Unix time)
    attempts: int  # 0 for a cached one

    @property
    def tool(self) -> tuple[str, JSON] | None:
        """Return the name and the arguments of a tool that was called; None for other calls."""
        kind, _, name = self.service.partition(":")
        parts = self.asked if isinstance(self.asked, (list, tuple)) else ()
        if kind == "tool":
            return name, parts[1] if len(parts) == 2 else None
        if kind == "mcp" and len(parts) == 3 and parts[0] == "call":
            return str(parts[1]), parts[2]
        return None

    @property
    def messages(self) -> tuple[list[Any], Mapping[str, JSON]] | None:
        """Return the messages of a request to a model, and its settings; None for other calls."""
        for name in _MESSAGES:
            if isinstance(self.asked, Mapping) and isinstance(self.asked.get(name), list):
                others = {key: value for key, value in self.asked.items() if key not in _MESSAGES}
                return list(self.asked[name]), others
        return None


class Texts:
    """Writes pieces of requests, each text once. Not thread-safe: the journal writes in turn."""

    def __init__(self) -> None:
        self._known: dict[bytes, bytes] = {}
        """Digests of what is stored by those of what was asked, which may hold secrets."""

    def put(self, database: Database, requests: Iterable[tuple[bytes, ...]]) -> list[bytes | None]:
        """Write what is new of some requests; return for each what stands for it in its row."""
        if len(self._known) > _REMEMBERED:
            self._known.clear()
        texts: dict[bytes, str] = {}
        rows: list[bytes | None] = []
        for pieces in requests:
            digests = []
            for piece in pieces:
                raw = blake2b(piece, digest_size=_DIGEST).digest()
                if raw not in self._known:
                    text = hidden_bytes(piece)
                    self._known[raw] = text_digest(text)
                    texts[self._known[raw]] = text.decode()
                digests.append(self._known[raw])
            rows.append(b"".join(digests) or None)
        database.execute_many(
            "INSERT OR IGNORE INTO texts (digest, text) VALUES (?, ?)", texts.items()
        )
        return rows


def drop_texts(database: Database) -> None:
    """Drop all that calls asked."""
    database.change("calls", "pieces IS NOT NULL", pieces="NULL")
    database.execute("DELETE FROM texts")


def read_calls(database: Database, names: Sequence[str]) -> list[StoredCall]:
    """Return the calls with these names, in this order, without those that left no record."""
    calls = []
    for name in names:
        # What follows a name says what became of an attempt; a name ends in a digest, so that
        # none is the beginning of another.
        rows = database.rows("calls", "WHERE key >= ? AND key < ? ORDER BY key", (name, f"{name}~"))
        # Without an answer, what came last says what became of it.
        best = next((row for row in rows if row["key"] == name), rows[-1] if rows else None)
        if best is not None:
            calls.append(_call(database, name, best))
    return calls


def read_all_calls(database: Database, who: str | None) -> Iterator[StoredCall]:
    """Yield all calls that were answered or failed, in the order of their records."""
    where = "kind IN ('answer', 'cached', 'failed') AND (? IS NULL OR who = ?)"
    query = f"SELECT rowid FROM calls WHERE {where} ORDER BY rowid"
    # One at a time: answers may be long.
    for (number,) in database.all(query, (who, who)):
        for row in database.rows("calls", "WHERE rowid = ?", (number,)):
            yield _call(database, row["key"].removesuffix("/failed"), row)


def _call(database: Database, name: str, row: dict[str, Any]) -> StoredCall:
    from orchestrion._store.journal import recorded

    call = recorded(row)
    answer = call.answer[0] if row["kind"] == "failed" and call.answer else call.answer
    return StoredCall(
        name=name,
        service=row["service"],
        who=row["who"],
        stage=row["stage"],
        kind=row["kind"],
        asked=_request_of(database, row["pieces"]),
        answer=answer,
        usage=call.usage,
        seconds=row["seconds"],
        at=row["at"],
        attempts=row["attempts"],
    )


def _request_of(database: Database, pieces: bytes | None) -> JSON:
    if not pieces:
        return None
    digests = [pieces[i : i + _DIGEST] for i in range(0, len(pieces), _DIGEST)]
    texts = []
    for digest in digests:
        row = database.one("SELECT text FROM texts WHERE digest = ?", (digest,))
        database.check_text(digest, row[0] if row else None)
        texts.append(row[0])
    return joined(texts)


def turns_with_names(trajectory: Trajectory, before: str = "") -> Iterator[tuple[str, Turn]]:
    """Yield all turns, each with its place (from 1) and agent; a nested team's follow its turn."""
    for turn in trajectory.turns:
        name = f"{before}{turn.index + 1} {turn.agent}"
        yield name, turn
        if turn.output.inner is not None:
            yield from turns_with_names(turn.output.inner, f"{name} > ")
