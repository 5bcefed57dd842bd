"""Calls to the outside, recorded before their answers are used; and answers to be used again."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from orchestrion._engine.recording import Facts, Recorded
from orchestrion._errors import StoreError
from orchestrion._records import NO_USAGE, Usage
from orchestrion._store.conversations import Texts
from orchestrion._store.database import Database
from orchestrion._store.serial import dumps, loads

USAGE = ("calls", "input_tokens", "output_tokens", "usd", "cost")
"""The columns of a usage, in the order of `usage_columns`."""
USAGE_SUMS = (
    "coalesce(sum(calls), 0), coalesce(sum(input_tokens), 0), coalesce(sum(output_tokens), 0),"
    " total(usd), total(cost)"
)
"""Their sums over rows; an unknown price counts as 0."""


def real(value: float) -> float | None:
    """Return a number as a column of floats gives it back: NaN is NULL."""
    return None if math.isnan(value) else float(value) + 0.0


def usage_columns(usage: Usage) -> tuple[int, int, int, float | None, float | None]:
    """Return a usage as database columns; a price that is not known (NaN) is NULL."""
    calls, tokens = int(usage.calls), (int(usage.input_tokens), int(usage.output_tokens))
    return (calls, *tokens, real(usage.usd), real(usage.cost))


def usage_of(row: Sequence[float | None]) -> Usage:
    """Return the usage in database columns."""
    calls, input_tokens, output_tokens, usd, cost = row
    return Usage(
        int(calls or 0),
        int(input_tokens or 0),
        int(output_tokens or 0),
        math.nan if usd is None else usd,
        math.nan if cost is None else cost,
    )


class CallRow(NamedTuple):
    """What the journal says of a call, or of an attempt without an answer; not what it answered."""

    service: str
    who: str
    stage: str
    kind: str  # see `engine.recording.Kind`
    seconds: float | None
    attempts: int
    estimated: int  # whether the usage is: 0 or 1
    billed: Mapping[str, float]  # beside tokens, see `Model`
    usage: Usage


class CallSum(NamedTuple):
    """Sums over calls, or over attempts without an answer, of one kind in one iteration."""

    seq: int  # of the iteration in progress, over all stages and from 1, or of the next one
    kind: str  # see `engine.recording.Kind`
    fault: str  # of calls that failed; "" where it was dropped with their answers
    number: int  # how many
    retried: int  # attempts that came on top of the first
    usage: Usage  # what they took; an unknown price counts as 0


def recorded(row: Mapping[str, Any]) -> Recorded:
    """Return the call in a row of the journal; its answer is None if it was dropped."""
    usage = usage_of([row[name] for name in USAGE])
    facts = Facts(estimated=bool(row.get("estimated")))
    answer = None if row["answer"] is None else loads(row["answer"])
    if row.get("kind") == "cached" and answer is not None:
        answer, cost = answer
        usage = usage_of(cost)
    return Recorded(row["key"], row["request"], answer, usage, facts=facts)


class CallJournal:
    """Every call of a run under its own name, and every attempt that is under way.

    Reading has a connection of its own, so that it never waits for a commit.
    """

    def __init__(
        self,
        reader: Database,
        writer: Database | None = None,
        seq: Callable[[], int] = lambda: 0,
    ) -> None:
        self.keeps_requests = False
        self._texts = Texts()
        self._reader, self._writer, self._seq = reader, writer, seq

    keeps_attempts = True

    def get(self, key: str) -> Recorded | None:
        """Return the call recorded under a key, if its answer is still kept."""
        for row in self._reader.rows("calls", "WHERE key = ? AND answer IS NOT NULL", (key,)):
            return recorded(row)
        return None

    def put_many(self, rows: Sequence[Recorded]) -> None:
        """Record calls; they are on disk when this returns.

        A key that is recorded again keeps what was spent before: both were paid. What is computed
        again keeps the usage of once, which a replay gives; the rest is booked beside the calls.
        Attempts that begin need only outlive the process.
        """
        writer = _writable(self._writer)
        durable = any(row.kind != "started" for row in rows)
        try:
            with writer.transaction("journal", durable=durable):
                self._put(writer, rows)
        except BaseException:
            self._texts = Texts()  # what it knows may not have been stored
            raise

    def _put(self, writer: Database, rows: Sequence[Recorded]) -> None:
        seq = self._seq()
        written = self._once([row for row in rows if row.key])
        pieces = self._texts.put(
            writer, (() if row.kind == "started" else row.pieces for row in written)
        )
        writer.insert(
            "calls",
            [_row(call, seq, request) for call, request in zip(written, pieces, strict=True)],
            conflict="ON CONFLICT (key) DO UPDATE SET mark = NULL,"
            " request = excluded.request, kind = excluded.kind, answer = excluded.answer,"
            " seq = excluded.seq, service = excluded.service, who = excluded.who,"
            " stage = excluded.stage, seconds = excluded.seconds, at = excluded.at,"
            " pieces = excluded.pieces, attempts = attempts + excluded.attempts,"
            " estimated = max(estimated, excluded.estimated),"
            " calls = calls + excluded.calls,"
            " input_tokens = input_tokens + excluded.input_tokens,"
            " output_tokens = output_tokens + excluded.output_tokens,"
            " usd = coalesce(usd, 0) + coalesce(excluded.usd, 0),"
            " cost = coalesce(cost, 0) + coalesce(excluded.cost, 0)",
        )
        writer.change("calls", "key = ? AND mark IS NULL", [(call.key,) for call in written])
        # After them: an attempt may have begun and ended since the last commit.
        over = [(row.ends,) for row in rows if row.ends]
        writer.execute_many("DELETE FROM calls WHERE key = ?", over)

    def _once(self, rows: list[Recorded]) -> list[Recorded]:
        """Return rows in which calls that were computed before have no usage but beside them."""
        result, new = [], set[str]()
        for row in rows:
            if row.computed:
                if row.key in new or self.get(row.key) is not None:
                    key = f"stated:{row.facts.stage}:{row.facts.who}"
                    facts = Facts(who=row.facts.who, stage=row.facts.stage)
                    result.append(Recorded(key, "stated", None, row.usage, "stated", facts))
                    row = row._replace(usage=NO_USAGE)
                new.add(row.key)
            result.append(row)
        return result

    def settle_lost(self) -> None:
        """Keep booked what was under way when the last writer was killed: it may have been paid."""
        writer = _writable(self._writer)
        if self._reader.one("SELECT 1 FROM calls WHERE kind = 'started' LIMIT 1") is None:
            return
        changes = {"kind": "'lost'", "estimated": "1", "key": "key || '!lost' || rowid"}
        with writer.transaction("lost"):
            # These go on at the service, see `Request.lasting`.
            writer.execute("DELETE FROM calls WHERE kind = 'started' AND calls = 0")
            writer.change("calls", "kind = 'started'", **changes)

    def forgotten(self) -> int:
        """Return how many calls have no answer any more."""
        (count,) = self._reader.one(
            "SELECT count(*) FROM calls WHERE answer IS NULL"
            " AND kind IN ('answer', 'cached', 'failed', 'arrival', 'late')"
        )
        return int(count)

    def spend(self, kind: str | None = None) -> Usage:
        """Return what all rows took, or those of one kind; an unknown price counts as 0."""
        query = f"SELECT {USAGE_SUMS} FROM calls WHERE ? IS NULL OR kind = ?"
        return usage_of(self._reader.one(query, (kind, kind)))

    def usd_by_stage(self) -> dict[str, float]:
        """Return the US dollars by stage; an unknown price counts as 0."""
        return dict(self._reader.all("SELECT stage, total(usd) FROM calls GROUP BY stage"))

    def rows(self) -> list[CallRow]:
        """Return all calls and attempts, in the order of their first record."""
        rows = self._reader.all(
            "SELECT service, who, stage, kind, seconds, attempts, estimated,"
            " CASE WHEN kind = 'answer' AND instr(answer, '\"billed\"')"
            " THEN json_extract(answer, '$.billed') END,"
            " calls, input_tokens, output_tokens, usd, cost"
            " FROM calls WHERE kind NOT IN ('arrival', 'late', 'stated') ORDER BY rowid"
        )
        return [CallRow._make((*row[:7], _numbers(row[7]), usage_of(row[8:]))) for row in rows]

    def sums(self) -> list[CallSum]:
        """Return what was done in each iteration, in order; its usage adds up to `spend`."""
        rows = self._reader.all(
            "SELECT seq, kind,"
            " CASE WHEN kind = 'failed' THEN coalesce(json_extract(answer, '$[1]'), '') ELSE '' END"
            f" AS fault, count(*), sum(max(attempts - 1, 0)), {USAGE_SUMS}"
            " FROM calls WHERE kind NOT IN ('arrival', 'late') GROUP BY seq, kind, fault"
        )
        return [
            CallSum(seq, kind, fault, number, retried, usage_of(usage))
            for seq, kind, fault, number, retried, *usage in rows
        ]


def _numbers(text: str | None) -> Mapping[str, float]:
    """Return the numbers by name in a JSON object; other values are left out."""
    data = loads(text) if text else None
    if not isinstance(data, dict):
        return {}
    return {name: amount for name, amount in data.items() if type(amount) in (int, float)}


def _writable(writer: Database | None) -> Database:
    if writer is None:
        raise StoreError("this run is open for reading only")
    return writer


def _row(call: Recorded, seq: int, pieces: bytes | None) -> dict[str, str | float | bytes | None]:
    facts, spent = call.facts, usage_columns(call.usage)
    answer = None if call.kind == "started" else call.text or dumps(call.answer)
    if call.kind == "cached":
        answer, spent = dumps([call.answer, spent]), usage_columns(NO_USAGE)
    return {
        "key": call.key,
        "request": call.request,
        "kind": call.kind,
        "answer": answer,
        "seq": seq,
        "service": facts.service,
        "who": facts.who,
        "stage": facts.stage,
        "seconds": None if facts.seconds is None else real(facts.seconds),
        "at": None if facts.at is None else real(facts.at),
        "attempts": facts.attempts,
        "estimated": int(facts.estimated),
        "pieces": pieces,
        **dict(zip(USAGE, spent, strict=True)),
    }


class AnswerStore:
    """Answers by the digest of their request, for requests that allow to be answered again."""

    def __init__(self, reader: Database, writer: Database | None = None) -> None:
        self._reader, self._writer = reader, writer

    def get(self, key: str) -> Recorded | None:
        """Return the answer kept for a request."""
        for row in self._reader.rows("cache", "WHERE key = ?", (key,)):
            return recorded(row)
        return None

    def put(self, row: Recorded) -> None:
        """Keep an answer; a lost one costs another call and nothing else."""
        writer = _writable(self._writer)
        entry: dict[str, Any] = {
            "key": row.key,
            "request": row.request,
            "answer": dumps(row.answer),
            **dict(zip(USAGE, usage_columns(row.usage), strict=True)),
        }
        with writer.transaction("cache", durable=False):
            writer.execute("DELETE FROM cache WHERE key = ?", (row.key,))
            writer.insert("cache", [entry])
