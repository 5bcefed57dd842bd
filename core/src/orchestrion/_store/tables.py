"""A run as tables: one definition of columns for data frames, rewards.csv and Parquet files.

Nested data (what a turn read, its `data`, a nested team) is JSON text. `calls`, `input_tokens` and
`output_tokens` are counts, `usd` is US dollars, `cost` is in the unit of the agents, `seconds` is
wall time. Missing values are None. These are the tables, with their columns.

`metrics`
    An iteration a row: `stage`, `iteration`, `seconds`, `reward` (mean of its episodes), then every
    metric of the engine and the trainer under its name.

`evaluations`
    A problem of a contender a row: `contender`, `problem`, then `solved`, `limit` and `failed`
    (shares of its episodes), `cost`, `usd`, `tokens`, `calls`, `turns` and `reward` (means over
    them), `missing` (how many have no reward).

`episodes`
    `source` ("train" or a contender), `stage`, `iteration`, `episode`, `problem`, `category`,
    `status`, `success`, `score` (0 to 1), `reward`, a `score.NAME` and a `reward.NAME` for each
    part, `turns` (a count), then the usage.

`turns`
    `source`, `stage`, `iteration`, `episode`, `problem`, `turn` (its index, from 0), `decision`,
    `agent`, `option`, `status`, `error`, `content`, `data`, `final`, `reads`, `inner`, `reward`
    (its own, where one is given by turn), then the usage.

`calls`
    The fields of `StoredCall`, with the usage in columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from importlib.util import find_spec
from tempfile import TemporaryFile
from typing import Any, Literal, NamedTuple, Unpack

import msgspec

from orchestrion._errors import UsageError
from orchestrion._store.journal import USAGE, usage_columns
from orchestrion._store.reader import RunReader, Where
from orchestrion._store.serial import encode

Form = Literal["pandas", "polars", "dicts"]
"""What a table comes as: a data frame of a library, or a list of dictionaries."""

_GROUP_ROWS, _GROUP_CHARACTERS = 5_000, 16_000_000
"""Limits of a row group of a Parquet file, which is what is in memory at once."""
_USAGE = dict(zip(USAGE, (int, int, int, float, float), strict=True))


class Table(NamedTuple):
    """Rows with the names and types of their columns; the rows can be read once."""

    columns: Mapping[str, type]
    rows: Iterator[tuple[Any, ...]]


def metrics(store: RunReader) -> Table:
    """Return the table `metrics`."""
    iterations = store.iterations()
    columns = {"stage": int, "iteration": int, "seconds": float, "reward": float}
    names = dict.fromkeys(name for i in iterations for name in i.metrics if name not in columns)
    rows = (
        (i.stage, i.iteration, i.seconds, i.reward, *(i.metrics.get(name) for name in names))
        for i in iterations
    )
    return Table({**columns, **dict.fromkeys(names, float)}, rows)


def evaluations(store: RunReader) -> Table:
    """Return the table `evaluations`."""
    fields = "solved reward cost turns limit failed missing usd tokens calls".split()
    rows = (
        (contender, problem, *(row.get(name) for name in fields))
        for contender, results in store.load_evaluations().items()
        for problem, row in results.get("outcomes", {}).items()
    )
    return Table({"contender": str, "problem": str, **dict.fromkeys(fields, float)}, rows)


_PLACE = {"source": str, "stage": int, "iteration": int, "episode": str, "problem": str}


def episodes(store: RunReader, **where: Unpack[Where]) -> Table:
    """Return the table `episodes`; `where` narrows the episodes."""
    scores, rewards = store.part_names("scores"), store.part_names("reward")
    head = {"category": str, "status": str, "success": bool, "score": float, "reward": float}
    parts = [*(f"score.{name}" for name in scores), *(f"reward.{name}" for name in rewards)]

    def rows() -> Iterator[tuple[Any, ...]]:
        for row in store.episode_rows(**where):
            outcome = [part or {} for part in msgspec.json.decode(row["outcome"])]
            yield (
                *(row[name] for name in ("source", "stage", "iteration", "id", "problem")),
                *(row["category"], row["status"], bool(row["success"])),
                *(row["score"], row["reward"]),
                *(outcome[0].get(name) for name in scores),
                *(outcome[1].get(name) for name in rewards),
                row["turns"],
                *(row[name] for name in USAGE),
            )

    return Table({**_PLACE, **head, **dict.fromkeys(parts, float), "turns": int, **_USAGE}, rows())


def turns(store: RunReader, **where: Unpack[Where]) -> Table:
    """Return the table `turns`; `where` narrows the episodes."""
    texts = dict.fromkeys("agent option status error content data".split(), str)
    columns = {**_PLACE, "turn": int, "decision": int, **texts, "final": bool}

    def rows() -> Iterator[tuple[Any, ...]]:
        for stored in store.episodes(**where):
            episode = stored.episode
            place = stored.source, stored.stage, stored.iteration, episode.id, episode.problem.id
            rewards = episode.reward and episode.reward.turns
            for number, turn in enumerate(episode.turns):
                out = turn.output
                yield (
                    *map(_text, place),
                    *(turn.index, turn.decision, turn.agent, turn.option, turn.status),
                    *(_text(turn.error), _text(out.content), _json(out.data), out.final),
                    *(_json(turn.reads), _json(out.inner), rewards[number] if rewards else None),
                    *usage_columns(out.usage),
                )

    return Table({**columns, "reads": str, "inner": str, "reward": float, **_USAGE}, rows())


def _text(value: Any) -> Any:
    """Replace lone surrogates, which models produce, and which have no place in a table."""
    return value.encode(errors="replace").decode() if isinstance(value, str) else value


def _json(value: Any) -> str | None:
    return None if value is None else encode(value).decode()


def calls(store: RunReader, who: str | None = None) -> Table:
    """Return the table `calls`; `who` as the argument of `RunReader.all_calls`."""
    texts = dict.fromkeys("name service who stage kind asked answer".split(), str)
    rows = (
        (
            *(call.name, call.service, call.who, call.stage, call.kind),
            *(_json(call.asked), _json(call.answer)),
            *usage_columns(call.usage),
            *(call.seconds, call.attempts),
        )
        for call in store.all_calls(who)
    )
    return Table({**texts, **_USAGE, "seconds": float, "attempts": int}, rows)


def in_form(table: Table, form: Form | None = None) -> Any:
    """Return a table as a data frame, or as a list of dictionaries."""
    libraries: tuple[Form, ...] = ("pandas", "polars")
    if form not in (None, "dicts", *libraries):
        raise UsageError(f"as_={form!r}: a table comes as 'pandas', 'polars' or 'dicts'")
    if form is None:
        form = next((name for name in libraries if find_spec(name)), "dicts")
    names, rows = [*table.columns], table.rows
    if form == "dicts":
        return [dict(zip(names, row, strict=True)) for row in rows]
    frame = _library(str(form), "choose as_='dicts', or install it").DataFrame
    if form == "pandas":
        return frame.from_records(list(rows), columns=names)
    return frame(list(rows), schema=dict(table.columns), orient="row")


def _library(name: str, advice: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise UsageError(f"{name} is not installed or broken ({error}); {advice}") from None


def parquet(table: Table) -> Iterator[bytes]:
    """Return the bytes of a Parquet file, written row group by row group."""
    advice = "Parquet files need it: pip install 'orchestrion[parquet]'"
    return _parquet(table, _library("pyarrow", advice), _library("pyarrow.parquet", advice))


def _parquet(table: Table, pa: Any, pq: Any) -> Iterator[bytes]:
    types = {int: pa.int64(), float: pa.float64(), str: pa.string(), bool: pa.bool_()}
    schema = pa.schema([(name, types[kind]) for name, kind in table.columns.items()])
    with TemporaryFile() as file:
        with pq.ParquetWriter(file, schema) as writer:
            for group in _groups(table.rows):
                columns = [
                    pa.array(column, field.type)
                    for column, field in zip(zip(*group, strict=True), schema, strict=True)
                ]
                writer.write_table(pa.Table.from_arrays(columns, schema=schema))
        file.seek(0)
        while chunk := file.read(1 << 20):
            yield chunk


def _groups(rows: Iterator[tuple[Any, ...]]) -> Iterator[list[tuple[Any, ...]]]:
    group: list[tuple[Any, ...]] = []
    size = 0
    for row in rows:
        group.append(row)
        size += sum(len(value) for value in row if isinstance(value, str))
        if len(group) == _GROUP_ROWS or size > _GROUP_CHARACTERS:
            yield group
            group, size = [], 0
    if group:
        yield group
