"""Episodes as rows: what is kept of them, and how they come back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from attrs import frozen

from orchestrion._errors import StoreError
from orchestrion._records import Episode, Usage
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

    `stage` and `iteration` are those that it belongs to, or that came before the evaluation; None
    before the first.
    """

    source: str  # "train", or the name of the evaluation that ran it
    stage: int | None
    iteration: int | None
    episode: Episode  # without turns and decisions, if retention dropped them
    turn_count: int  # also when the turns were dropped, like `usage`
    usage: Usage


def insert_episodes(
    database: Database, episodes: Sequence[Episode], seq: int, source: str, retention: Retention
) -> None:
    """Write episodes; a problem is written once, however many episodes are run on it."""
    if retention == "none":
        return
    # The episodes of a group share their problem: it is encoded once.
    problems: dict[int, tuple[str, str, str]] = {}

    def rows() -> Iterator[dict[str, str | float | None]]:
        for episode in episodes:
            problem = episode.problem
            if id(problem) not in problems:
                text = encode(problem.public())
                problems[id(problem)] = (problem_digest(text), _text(problem.id), text.decode())
            row = {**_row(episode), "seq": seq, "source": source}
            row |= {"public": problems[id(problem)][0], "record": _record(episode, retention)}
            yield row

    database.insert("episodes", rows())
    database.execute_many(
        "INSERT OR IGNORE INTO problems (digest, id, record) VALUES (?, ?, ?)", problems.values()
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


def strip_turns(database: Database) -> None:
    """Drop the turns of the episodes that are already stored."""
    empty = "".join(f", '$.{name}', json('[]')" for name in ("trajectory", "decisions", "calls"))
    database.change("episodes", "TRUE", record=f"json_set(record{empty})")


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


def read_turn_orders(
    database: Database, stage: int | None, iteration: int | None, limit: int, source: str
) -> list[list[tuple[int, str]]]:
    """Return the turns of the first episodes of an iteration; see `RunReader.turn_orders`."""
    filters = {"e.source": source, "i.stage": stage, "i.iteration": iteration}
    wanted = {name: value for name, value in filters.items() if value is not None}
    first = (
        "SELECT e.number FROM episodes e LEFT JOIN iterations i ON i.seq = e.seq"
        f" WHERE {' AND '.join(f'{name} = ?' for name in wanted)} ORDER BY e.number LIMIT ?"
    )
    rows = database.all(
        "SELECT (SELECT json_group_array(json_array("
        "coalesce(json_extract(turn.value, '$.decision'), 0), json_extract(turn.value, '$.agent')))"
        " FROM json_each(record, '$.trajectory') turn)"
        f" FROM episodes WHERE number IN ({first}) ORDER BY number",
        (*wanted.values(), limit),
    )
    return [[(decision, agent) for decision, agent in parse(turns)] for (turns,) in rows]
