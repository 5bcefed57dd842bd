"""Episodes as rows: what is kept of them, and how they come back."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal

import msgspec
from attrs import frozen

from orchestrion._errors import StoreError
from orchestrion._records import Episode, Problem, Usage
from orchestrion._secrets import hidden
from orchestrion._store.database import Database, problem_digest
from orchestrion._store.journal import USAGE, real, usage_columns, usage_of
from orchestrion._store.serial import encode, episode_fields, parse, structure

Retention = Literal["all", "turns", "episodes", "none"]
"""What a run keeps besides metrics, checkpoints and evaluations:

- `all`: episodes, their turns, and what every call asked and was answered, so that the run can be
  replayed and its conversations read;
- `turns`: episodes and their turns; answers only as long as a resume may need them;
- `episodes`: outcome, scores, reward and usage of each episode;
- `none`: no episodes.
"""

_PAGE = 256


@frozen
class StoredEpisode:
    """An episode as it was stored.

    Args:
        source: "train", or the name of the evaluation that ran it.
        stage: of the iteration that it belongs to, or that came before the evaluation; None
            before the first.
        iteration: likewise.
        episode: without turns and decisions, if retention dropped them.
        turn_count: how many turns it had.
        usage: its cost, also when the turns were dropped.
    """

    source: str
    stage: int | None
    iteration: int | None
    episode: Episode
    turn_count: int
    usage: Usage


def insert_episodes(
    database: Database,
    connection: sqlite3.Connection,
    episodes: Iterable[Episode],
    seq: int,
    source: str,
    retention: Retention,
) -> None:
    """Write episodes; a problem is written once, however many episodes are run on it."""
    if retention == "none":
        return
    problems: dict[str, tuple[str, str, str]] = {}
    digests: dict[int, tuple[Problem, str]] = {}

    def digest_of(problem: Problem) -> str:
        # The episodes of a group share their problem: it is encoded once.
        digest_ = digests.get(id(problem))
        if digest_ is None:
            text = encode(problem.public())
            digest_ = digests[id(problem)] = problem, problem_digest(text)
            problems[digest_[1]] = (digest_[1], _text(problem.id), text.decode())
        return digest_[1]

    database.insert(
        connection,
        "episodes",
        (
            {
                **_row(episode),
                "seq": seq,
                "source": source,
                "public": digest_of(episode.problem),
                "record": _record(episode, retention),
            }
            for episode in episodes
        ),
    )
    connection.executemany(
        "INSERT OR IGNORE INTO problems (digest, id, record) VALUES (?, ?, ?)",
        problems.values(),
    )


def _row(episode: Episode) -> dict[str, str | float | None]:
    return {
        "id": _text(episode.id),
        "problem": _text(episode.problem.id),
        "category": _text(episode.problem.category),
        "status": str(episode.status),
        "success": int(episode.success),
        "score": None if episode.scores is None else real(episode.scores.value),
        "reward": None if episode.reward is None else real(episode.reward.total),
        "turns": len(episode.trajectory),
        **dict(zip(USAGE, usage_columns(episode.usage), strict=True)),
    }


def _text(value: str) -> str:
    """Replace lone surrogates, which no database column takes; the record keeps them."""
    value = hidden(value)
    return value if value.isascii() else value.encode(errors="replace").decode()


def _record(episode: Episode, retention: Retention) -> str:
    fields = episode_fields(episode)
    del fields["problem"]
    if retention == "episodes":
        fields["trajectory"] = fields["decisions"] = fields["calls"] = ()
    return encode(fields).decode()


def strip_turns(database: Database, connection: sqlite3.Connection) -> None:
    """Drop the turns of the episodes that are already stored."""
    connection.execute(
        database.change(
            "episodes",
            record="json_set(record, '$.trajectory', json('[]'), '$.decisions', json('[]'),"
            " '$.calls', json('[]'))",
        )
    )


def read_episodes(database: Database, filters: Mapping[str, Any]) -> Iterator[StoredEpisode]:
    """Yield stored episodes in the order they were written, a page in memory at a time."""
    for row in read_rows(database, filters):
        try:
            fields = {**parse(row["record"]), "problem": parse(row["public"])}
            episode = structure(fields, Episode)
        except (StoreError, ValueError, TypeError, RecursionError) as error:
            place = f"{database.path}: is damaged: episode {row['id']!r}"
            raise StoreError(f"{place} cannot be read ({error})") from error
        yield StoredEpisode(
            row["source"],
            row["stage"],
            row["iteration"],
            episode,
            row["turns"],
            usage_of([row[name] for name in USAGE]),
        )


_BESIDE = (
    *("i.stage", "i.iteration", "p.record AS public"),
    "json_array(json_extract(e.record, '$.scores.parts'), json_extract(e.record, '$.reward.parts'))"
    " AS outcome",
)


def read_rows(
    database: Database, filters: Mapping[str, Any] | None = None
) -> Iterator[dict[str, Any]]:
    """Yield stored episodes as rows of the database, in the order they were written."""
    wanted = {name: value for name, value in (filters or {}).items() if value is not None}
    columns = (*database.columns["episodes"], "mark")
    names = (*columns, "stage", "iteration", "public", "outcome", "number")
    query = (
        f"SELECT {', '.join(f'e.{name}' for name in columns)}, {', '.join(_BESIDE)}, e.number"
        " FROM episodes e LEFT JOIN problems p ON p.digest = e.public"
        " LEFT JOIN iterations i ON i.seq = e.seq"
        f" WHERE {' AND '.join(['e.number > ?', *(f'{name} = ?' for name in wanted)])}"
        f" ORDER BY e.number LIMIT {_PAGE}"
    )
    # Page by page, with no cursor left open: an open one would hold up the writer.
    number, checked = 0, ""
    while page := database.all(query, (number, *wanted.values())):
        for row in page:
            database.check("episodes", row[: len(columns)])
            digest, record = row[columns.index("public")], row[-3]
            if digest != checked:
                database.check_problem(digest, record)
                checked = digest
            yield {name: v for name, v in zip(names, row, strict=True) if name != "mark"}
        number = page[-1][-1]


_LONG = 4_000_000
"""Characters of records after which no further ones are read for the order of turns."""


class _TurnName(msgspec.Struct):
    agent: str
    decision: int = 0


class _TurnNames(msgspec.Struct):
    trajectory: list[_TurnName]


def read_turn_orders(
    database: Database, stage: int | None, iteration: int | None, limit: int, source: str
) -> list[list[tuple[int, str]]]:
    """Return the turns of the first episodes of an iteration; see `RunReader.turn_orders`."""
    within = "" if stage is None else " JOIN iterations i ON i.seq = e.seq"
    within += " WHERE e.source = ? AND e.number > ?"
    place = () if stage is None else (stage, iteration)
    within += "" if stage is None else " AND i.stage = ? AND i.iteration = ?"
    query = f"SELECT e.number, e.record FROM episodes e{within} ORDER BY e.number LIMIT 4"
    orders: list[list[tuple[int, str]]] = []
    number = size = 0
    while len(orders) < limit and size < _LONG:
        rows = database.all(query, (source, number, *place))
        if not rows:
            break
        number = rows[-1][0]
        size += sum(len(record) for _, record in rows)
        for _, record in rows:
            try:
                turns = msgspec.json.decode(record, type=_TurnNames).trajectory
            except msgspec.MsgspecError:
                continue
            orders.append([(turn.decision, turn.agent) for turn in turns])
    return orders[:limit]
