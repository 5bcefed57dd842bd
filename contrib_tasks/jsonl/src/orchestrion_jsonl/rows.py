"""Reads rows of named values from JSON lines, JSON, CSV or TSV, each with its place for errors."""

from __future__ import annotations

import csv
import gzip
import io
import json
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from orchestrion import UsageError, did_you_mean

Row = Mapping[str, Any]
TABLES = (".csv", ".tsv")
FORMS = (".jsonl", ".ndjson", ".json", *TABLES)


class _RepeatedKey(ValueError):
    """An object has a key twice, and it is undefined which of the values counts."""


class Numeral(str):
    """A number of JSON that is no integer, as it was written: as a float it would lose digits."""


def with_numbers(value: Any, number: Callable[[str], Any]) -> Any:
    """Return a value of a row with what `number` makes of each `Numeral`."""
    if isinstance(value, Numeral):
        return number(str(value))
    if isinstance(value, dict):
        return {name: with_numbers(item, number) for name, item in value.items()}
    if isinstance(value, list):
        return [with_numbers(item, number) for item in value]
    return value


def form_of(file: Path) -> str:
    """Return the suffix that says how a file is written; that of a.csv.gz is .csv."""
    return file.with_suffix("").suffix if file.suffix == ".gz" else file.suffix


def read_rows(file: Path) -> Iterator[tuple[str, Row]]:
    """Yield the rows of a file, each with its place (file and line).

    Raises:
        UsageError: the file cannot be read, or a row is not an object of named values.
    """
    suffix = form_of(file)
    if suffix not in FORMS:
        forms = ", ".join(FORMS)
        raise UsageError(f"{file}: unknown kind of file; use {forms}, each also as .gz")
    if not file.is_file():
        near = did_you_mean(file.name, [path.name for path in file.parent.glob("*")])
        raise UsageError(f"{file}: there is no such file{near}")
    try:
        data = file.read_bytes()
        text = (gzip.decompress(data) if file.suffix == ".gz" else data).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{file}: is not UTF-8 (byte {error.start}); save it as UTF-8") from error
    except (OSError, EOFError, zlib.error) as error:
        raise UsageError(f"{file}: cannot be read: {error}") from error
    if suffix in TABLES:
        header = text.partition("\n")[0]
        semicolons = ";" in header and "," not in header  # as spreadsheets of many countries write
        yield from _table(file, text, "\t" if suffix == ".tsv" else ";" if semicolons else ",")
    elif suffix == ".json":
        yield from _array(file, text)
    else:
        for number, line in enumerate(text.split("\n"), 1):
            if line.strip():
                place = f"{file}:{number}"
                yield place, _row(place, _json(place, line))


def _table(file: Path, text: str, delimiter: str) -> Iterator[tuple[str, Row]]:
    csv.field_size_limit(max(csv.field_size_limit(), len(text)))  # a cell may hold a document
    reader = csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        names = reader.fieldnames or ()
        if len(set(names)) < len(names):
            raise UsageError(f"{file}:1: two columns have the same name")
        for row in reader:
            place = f"{file}:{reader.line_num}"
            if None in row or None in row.values():
                raise UsageError(f"{place}: has not as many values as the header has names")
            yield place, row
    except csv.Error as error:
        raise UsageError(f"{file}:{reader.reader.line_num}: is not CSV: {error}") from error


def _array(file: Path, text: str) -> Iterator[tuple[str, Row]]:
    rows = _json(str(file), text)
    if not isinstance(rows, list):
        raise UsageError(f"{file}: must be a list of objects, and is a {type(rows).__name__}")
    for number, row in enumerate(rows, 1):
        place = f"{file}, element {number}"
        yield place, _row(place, row)


def _json(place: str, text: str) -> Any:
    try:
        value = json.loads(text, parse_float=Numeral, object_pairs_hook=_once)
        if r"\ud" in text.lower():  # half of a pair of surrogates is no character
            json.dumps(value, ensure_ascii=False).encode()
        return value
    except _RepeatedKey as error:
        raise UsageError(f"{place}: {error}") from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{place}: is not JSON: {error}") from error


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data = dict(pairs)
    if len(data) < len(pairs):
        names = [name for name, _ in pairs]
        repeated = next(name for name in names if names.count(name) > 1)
        raise _RepeatedKey(f"an object has the key {repeated!r:.80} twice; keep one of them")
    return data


def _row(place: str, row: Any) -> Row:
    if not isinstance(row, dict):
        raise UsageError(f"{place}: must be an object, and is a {type(row).__name__}")
    return row
