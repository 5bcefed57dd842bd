"""Calls to the outside, recorded before their answers are used; and answers to be used again."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from orchestrion.errors import StoreError
from orchestrion.records import Usage
from orchestrion.store.database import Database
from orchestrion.store.serial import dumps, loads

if TYPE_CHECKING:
    from orchestrion.engine.calls import Recorded

__all__ = ["AnswerStore", "CallJournal", "usage_columns", "usage_of"]

_USAGE = "calls, input_tokens, output_tokens, usd, cost"


def usage_columns(usage: Usage) -> tuple[int, int, int, float | None, float | None]:
    """A usage as database columns; a price that is not known (NaN) is NULL."""
    return (
        usage.calls,
        usage.input_tokens,
        usage.output_tokens,
        None if math.isnan(usage.usd) else usage.usd,
        None if math.isnan(usage.cost) else usage.cost,
    )


def usage_of(row: Sequence[float | None]) -> Usage:
    """The inverse of `usage_columns`."""
    calls, input_tokens, output_tokens, usd, cost = row
    return Usage(
        int(calls or 0),
        int(input_tokens or 0),
        int(output_tokens or 0),
        math.nan if usd is None else usd,
        math.nan if cost is None else cost,
    )


def _recorded(key: str, row: Sequence[object]) -> Recorded:
    from orchestrion.engine.calls import Recorded

    request, answer, *usage = row
    return Recorded(key, str(request), loads(str(answer)), usage_of(usage))  # type: ignore[arg-type]


class CallJournal:
    """Every call of a run under its own name.

    Reading has a connection of its own, so that it never waits for a commit.

    Args:
        reader: where it is read from.
        writer: where it is written to; None in a store that is open for reading.
        seq: the number of the iteration in progress.
    """

    def __init__(
        self,
        reader: Database,
        writer: Database | None = None,
        seq: Callable[[], int] = lambda: 0,
    ) -> None:
        self._reader, self._writer, self._seq = reader, writer, seq

    def get(self, key: str) -> Recorded | None:
        """The call recorded under a key, if its answer is still kept."""
        row = self._reader.one(
            f"SELECT request, answer, {_USAGE} FROM calls WHERE key = ? AND answer IS NOT NULL",
            (key,),
        )
        return None if row is None else _recorded(key, row)

    def put_many(self, rows: Sequence[Recorded]) -> None:
        """Record calls; they are on disk when this returns.

        A key that is recorded again keeps what was spent before: both were paid.
        """
        if self._writer is None:
            raise StoreError("this run is open for reading only")
        seq = self._seq()
        values = [
            (row.key, row.request, dumps(row.answer), *usage_columns(row.usage), seq)
            for row in rows
        ]
        with self._writer.transaction("journal") as connection:
            connection.executemany(
                f"INSERT INTO calls (key, request, answer, {_USAGE}, seq)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (key) DO UPDATE SET"
                " request = excluded.request, answer = excluded.answer, seq = excluded.seq,"
                " calls = calls + excluded.calls,"
                " input_tokens = input_tokens + excluded.input_tokens,"
                " output_tokens = output_tokens + excluded.output_tokens,"
                " usd = coalesce(usd, 0) + coalesce(excluded.usd, 0),"
                " cost = coalesce(cost, 0) + coalesce(excluded.cost, 0)",
                values,
            )

    def spend(self) -> Usage:
        """What all recorded calls took; calls with no known price count as free."""
        row = self._reader.one(
            "SELECT coalesce(sum(calls), 0), coalesce(sum(input_tokens), 0),"
            " coalesce(sum(output_tokens), 0), coalesce(sum(usd), 0.0), coalesce(sum(cost), 0.0)"
            " FROM calls"
        )
        return usage_of(row)

    def __len__(self) -> int:
        (count,) = self._reader.one("SELECT count(*) FROM calls")
        return int(count)


class AnswerStore:
    """Answers by the digest of their request, for requests that allow to be answered again."""

    def __init__(self, reader: Database, writer: Database | None = None) -> None:
        self._reader, self._writer = reader, writer

    def get(self, key: str) -> Recorded | None:
        """The answer kept for a request."""
        row = self._reader.one(f"SELECT request, answer, {_USAGE} FROM cache WHERE key = ?", (key,))
        return None if row is None else _recorded(key, row)

    def put(self, row: Recorded) -> None:
        """Keep an answer; a lost one costs another call and nothing else."""
        if self._writer is None:
            raise StoreError("this run is open for reading only")
        with self._writer.transaction("cache", durable=False) as connection:
            connection.execute(
                f"INSERT OR REPLACE INTO cache (key, request, answer, {_USAGE})"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (row.key, row.request, dumps(row.answer), *usage_columns(row.usage)),
            )
