"""Tables from files: CSV, or JSON lines, plain or gzipped."""

from __future__ import annotations

import csv
import gzip
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping
from math import isfinite
from pathlib import Path
from typing import IO, cast

from attrs import evolve

from orchestrion import JSON, UsageError
from orchestrion_recorded.columns import MEASURES, OPTIONS, Columns, Layout, Measure, lay_out
from orchestrion_recorded.table import MISSING, NONE, RecordedAnswer, Row, Table

PRICES = ("price", "cost", "usd")
"""Names of the column of prices, in a table of prices with more columns than two."""

_REPORTED = 5  # problems of one file named at once
_NOTHING = object()
_NESTED = ("answers", "models", "responses", "scores")
_ANSWER = ("answer", "response", "output", "score")

Line = tuple[int, Mapping[str, str]]


def read_table(path: Path, columns: Columns | None = None, prices: Path | None = None) -> Table:
    """Return a table of recorded answers.

    Args:
        path: CSV with a header, or JSON lines; `.gz` is unpacked.
        columns: what its columns are, where their names do not say so.
        prices: a table of prices, one a model.

    Raises:
        UsageError: something in a file is wrong, with its line; several at once.
    """
    header, lines, first = _read(path)
    layout = lay_out(header, columns or Columns(), f"{path}:{first}")
    problems = _Problems(path)
    rows = [row for line in lines if (row := _row(line, layout, problems)) is not None]
    _check_ids(rows, problems)
    if not rows and not problems.messages:
        problems.add(first, "the table has no questions")
    problems.raise_any()
    listed = {} if prices is None else read_prices(prices, layout.models)
    return Table(str(path), layout.models, tuple(rows), listed, scored=not layout.right)


def models_of(path: Path, columns: Columns | None = None) -> tuple[str, ...]:
    """Return the models of a table."""
    header, _, first = _read(path)
    return lay_out(header, columns or Columns(), f"{path}:{first}").models


def read_prices(path: Path, models: Iterable[str]) -> dict[str, float]:
    """Return prices by model, from CSV with a column of models and one of prices.

    With more than two columns, the first is the models', and prices stand in the column `price`, or
    else `cost`, or else `usd`.

    Raises:
        UsageError: a model has no price or two, or a price is no number of 0 or more.
    """
    header, lines, first = _read(path)
    priced = [column for column in PRICES if column in header[1:]]
    if len(header) < 2 or (len(header) > 2 and not priced):
        raise UsageError(
            f"{path}:{first}: expected two columns, a model and its price, or a column "
            f"{', '.join(PRICES[:-1])} or {PRICES[-1]}; got {', '.join(header)}"
        )
    name, price = header[0], priced[0] if len(header) > 2 else header[1]
    problems = _Problems(path)
    listed: dict[str, float] = {}
    for number, line in lines:
        if line[name] in listed:
            problems.add(number, f"a second price for {line[name]!r}; keep one")
            continue
        listed[line[name]] = problems.number(number, price, line[price]) or 0.0
    lacking = [model for model in models if model not in listed]
    if lacking:
        problems.add(first, f"no price for {', '.join(map(repr, lacking))}; add a line for each")
    problems.raise_any()
    return {model: listed[model] for model in models}


# ---------------------------------------------------------------------------- questions


def _row(line: Line, layout: Layout, problems: _Problems) -> Row | None:
    number, fields = line
    right = fields[layout.right].strip() if layout.right else ""
    name = fields[layout.question].strip()
    before = len(problems.messages)
    if not name:
        problems.add(number, f"the question has no id ({layout.question!r} is empty)")
    if layout.right and right in ("", NONE, MISSING):
        problems.add(number, f"the right answer ({layout.right!r}) is {right!r}; give one")
    options = problems.whole(number, layout.options, fields.get(layout.options, ""))
    measures = _measures(number, fields, layout, problems)
    cells = {model: fields.get(model, "").strip() for model in layout.models}
    cells = {model: text for model, text in cells.items() if text not in ("", MISSING)}
    if layout.right:
        answers = {model: _recorded(text, measures.get(model, {})) for model, text in cells.items()}
    else:
        answers = {
            model: evolve(
                _recorded(NONE if text == NONE else model, measures.get(model, {})),
                score=0.0 if text == NONE else problems.score(number, model, text, layout),
            )
            for model, text in cells.items()
        }
    if len(problems.messages) > before:
        return None
    group = fields[layout.group].strip() if layout.group else ""
    text = fields[layout.text] if layout.text else ""
    return Row(name, group, right, options, answers, text, number)


def _measures(
    number: int, fields: Mapping[str, str], layout: Layout, problems: _Problems
) -> dict[str, dict[Measure, float]]:
    measures: dict[str, dict[Measure, float]] = {}
    for column, (model, measure) in layout.measures.items():
        text = fields.get(column, "").strip()
        answered = fields.get(model, "").strip() not in ("", MISSING)
        if text in ("", MISSING, NONE):
            if answered and measure == "price":
                problems.add(number, f"{model!r} has an answer but no price ({column!r})")
            continue
        value = problems.number(number, column, text)
        if value is not None:
            measures.setdefault(model, {})[measure] = value
    return measures


def _recorded(text: str, measures: Mapping[Measure, float]) -> RecordedAnswer:
    return RecordedAnswer(
        None if text == NONE else text,
        measures.get("price"),
        int(measures.get("input_tokens", 0)),
        int(measures.get("output_tokens", 0)),
        measures.get("latency"),
    )


def _check_ids(rows: Iterable[Row], problems: _Problems) -> None:
    seen: dict[str, int] = {}
    for row in rows:
        first = seen.setdefault(row.id, row.line)
        if first != row.line:
            problems.add(row.line, f"question {row.id!r} is there already, in line {first}")


class _Problems:
    """What is wrong with a file, so that several things are reported at once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.messages: list[str] = []

    def add(self, line: int, text: str) -> None:
        """Note a problem."""
        self.messages.append(f"{self.path}:{line}: {text}")

    def number(self, line: int, column: str, text: str) -> float | None:
        """Return a number of 0 or more; None, and noted, if it is not."""
        value = _number(text)
        if isfinite(value) and value >= 0:
            return value
        self.add(line, f"{column!r} is {text!r}; expected a number of 0 or more")
        return None

    def score(self, line: int, model: str, text: str, layout: Layout) -> float:
        """Return a score from 0 to 1; 0, and noted, if it is not."""
        value = _number(text)
        if not 0 <= value <= 1:
            self.add(
                line,
                f"{model!r} is {text!r}; a table without a column of right answers has scores "
                "from 0 to 1 (name the column of right answers in columns.right)",
            )
            return 0.0
        return value

    def whole(self, line: int, column: str, text: str) -> int:
        """Return a whole number of at least 2; 0 where nothing is given."""
        if not text.strip():
            return 0
        value = int(text) if text.strip().isdecimal() else -1
        if value < 2:
            self.add(line, f"{column!r} is {text!r}; expected a whole number of 2 or more")
        return value

    def raise_any(self) -> None:
        """Raise what was noted."""
        more = len(self.messages) - _REPORTED
        if self.messages:
            tail = [f"... and {more} more problems"] if more > 0 else []
            raise UsageError("\n".join([*self.messages[:_REPORTED], *tail]))


def _number(text: str) -> float:
    """Return a number; -1 for what is none."""
    try:
        return float(text)
    except ValueError:
        return -1.0


# ---------------------------------------------------------------------------- files


def _is_json(path: Path) -> bool:
    return path.name.removesuffix(".gz").endswith((".jsonl", ".json", ".ndjson"))


def _open(path: Path) -> IO[str]:
    open_text = gzip.open if path.suffix == ".gz" else open
    try:
        return cast(IO[str], open_text(path, "rt", encoding="utf-8-sig", newline=""))
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror or error})") from None


def _read(path: Path) -> tuple[list[str], list[Line], int]:
    """Return columns, numbered lines, and the number of the line that names the columns."""
    with _open(path) as file:
        try:
            return _json_lines(file, path) if _is_json(path) else _csv_lines(file, path)
        except UnicodeDecodeError as error:
            raise UsageError(f"{path}: is not UTF-8 text ({error.reason})") from None
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise UsageError(f"{path}: is not a whole gzip file ({error})") from None


def _records(file: Iterable[str], path: Path) -> Iterator[tuple[int, list[str]]]:
    reader = csv.reader(file, strict=True)
    try:
        for fields in reader:
            if fields:
                yield reader.line_num, fields
    except csv.Error as error:
        raise UsageError(f"{path}:{reader.line_num}: is not CSV: {error}") from None


def _csv_lines(file: Iterable[str], path: Path) -> tuple[list[str], list[Line], int]:
    records = _records(file, path)
    first, names = next(records, (1, []))
    if not names:
        raise UsageError(f"{path}:1: the file is empty; expected a line with the columns' names")
    header = [name.strip() for name in names]
    problems = _Problems(path)
    lines: list[Line] = []
    for number, fields in records:
        if len(fields) != len(header):
            problems.add(number, f"{len(fields)} fields; the header has {len(header)}")
            continue
        lines.append((number, dict(zip(header, fields, strict=True))))
    problems.raise_any()
    return header, lines, first


def _json_lines(file: Iterable[str], path: Path) -> tuple[list[str], list[Line], int]:
    problems = _Problems(path)
    lines: list[Line] = []
    header: dict[str, None] = {}
    for number, text in enumerate(file, 1):
        if not text.strip():
            continue
        try:
            record = json.loads(text)
        except (ValueError, RecursionError) as error:
            problems.add(number, f"is not JSON: {error}")
            continue
        if not isinstance(record, dict):
            problems.add(number, f"expected an object, got {type(record).__name__}")
            continue
        try:
            fields = _flat(record)
        except ValueError as error:
            problems.add(number, str(error))
            continue
        header.update(dict.fromkeys(fields))
        lines.append((number, fields))
    problems.raise_any()
    blank = dict.fromkeys(header, "")
    return list(header), [(number, {**blank, **fields}) for number, fields in lines], 1


def _flat(record: Mapping[str, JSON]) -> dict[str, str]:
    """Return a JSON record as fields; unfold `answers: {model: {answer, price, ...}}`."""
    fields: dict[str, str] = {}
    for name, value in record.items():
        if name in _NESTED and isinstance(value, dict):
            for model, answer in value.items():
                if model in record:
                    raise ValueError(f"{model!r} is a model and a column; rename one of them")
                fields |= _record_fields(model, answer)
        else:
            fields[name] = _text(value, name)
    return fields


def _record_fields(model: str, record: JSON) -> dict[str, str]:
    if not isinstance(record, dict):
        return {model: _text(record)}
    answer = next((record[name] for name in _ANSWER if name in record), _NOTHING)
    if answer is _NOTHING:
        raise ValueError(
            f"of {model!r} there is {', '.join(map(repr, record)) or 'nothing'}, and none of "
            f"{', '.join(_ANSWER)}; give one, or null where nothing is recorded"
        )
    rest = {f"{model}_{name}": _text(v) for name, v in record.items() if name in MEASURES}
    return {model: _text(answer), **rest}


def _text(value: JSON, column: str = "") -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and column.lower() in OPTIONS:
        return str(len(value))
    return json.dumps(value)
