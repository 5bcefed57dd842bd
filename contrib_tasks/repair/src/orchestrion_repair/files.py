"""Rows of problems in files and folders; the README says where they may stand.

A row that is malformed, and a folder without a program, is noted with its place.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from attrs import Factory, define

from orchestrion import JSON, UsageError
from orchestrion_repair.rows import Malformed, kind_of

Rows = Iterator[tuple[str, Mapping[str, JSON]]]
"""Rows, each with its place."""
T = TypeVar("T")


@define
class Notes:
    """What was left out, and what is malformed: one line each, with place and reason."""

    skipped: list[str] = Factory(list)
    malformed: list[str] = Factory(list)

    def row(self, place: str, parse: Callable[[T], Mapping[str, JSON]], given: T) -> Rows:
        """Yield the row at a place; note it if it is malformed."""
        try:
            yield place, parse(given)
        except Malformed as error:
            self.malformed.append(f"{place}: {error}")


@define
class RawRows(Notes):
    """The rows of a path before anything is made of them, each with its place."""

    rows: tuple[tuple[str, Mapping[str, JSON]], ...] = ()


def raw_rows(path: str | Path) -> RawRows:
    """Return what stands in a folder or a file, for tasks that make other problems of it.

    Raises:
        UsageError: there is no such file or folder, or it cannot be read.
    """
    raw = RawRows()
    raw.rows = tuple(rows_in(Path(path), raw))
    return raw


def rows_in(path: Path, notes: Notes) -> Rows:
    """Return every problem as a row, with its place."""
    if not path.exists():
        raise UsageError(f"{path}: no such file or folder")
    if path.is_dir():
        yield from _folder(path, notes)
    elif path.suffix == ".py":
        yield from notes.row(str(path), _problem, path)
    elif path.suffix == ".json":
        try:
            rows = _json(read_text(path))
        except Malformed as error:
            raise UsageError(f"{path}: {error}") from None
        if not isinstance(rows, list):
            raise UsageError(f"{path}: is {kind_of(rows)}; expected a list of rows")
        for number, row in enumerate(rows, start=1):
            yield from notes.row(f"{path}, row {number}", _object, row)
    else:
        for number, line in enumerate(read_text(path).split("\n"), start=1):
            if line.strip():
                yield from notes.row(f"{path}, line {number}", json_object, line)


def _folder(path: Path, notes: Notes) -> Rows:
    if (path / "buggy.py").exists():
        yield from rows_in(path / "buggy.py", notes)
        return
    try:
        entries = sorted(path.iterdir())
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from None
    for entry in entries:
        if entry.name.startswith((".", "_")):
            continue
        program = entry / "buggy.py" if entry.is_dir() else entry
        if entry.is_dir() and not program.exists():
            notes.skipped.append(f"{entry}: it has no buggy.py")
        elif program.suffix == ".jsonl" or (program.suffix == ".py" and not _is_test_file(program)):
            yield from rows_in(program, notes)


def _problem(program: Path) -> dict[str, JSON]:
    """Return a problem of a folder as a row."""
    folder, pair = program.parent, program.name != "buggy.py"
    name = program.stem if pair else folder.resolve().name
    more = folder / (f"{name}.problem.json" if pair else "problem.json")
    row: dict[str, JSON] = {"name": name}
    if more.exists():
        with _naming(more.name):
            row |= json_object(read_text(more))
    row["code"] = read_text(program)
    if not pair and (folder / "correct.py").exists():
        row["solution"] = read_text(folder / "correct.py")
    files = tests_beside(program)
    if not files:
        expected = f"{name}.json or test_{name}.py" if pair else "tests.json or test_*.py"
        raise Malformed(f"has no tests; expected {expected} beside it")
    if files[0].suffix == ".json":
        with _naming(files[0].name):
            return row | _case_file(read_text(files[0]))
    return row | {"files": [[file.name, read_text(file)] for file in files]}


def tests_beside(program: Path) -> list[Path]:
    """Return the file of cases that belongs to a program, or its test files."""
    folder, name, pair = program.parent, program.stem, program.name != "buggy.py"
    cases = folder / (f"{name}.json" if pair else "tests.json")
    if cases.exists():
        return [cases]
    names = [f"test_{name}.py", f"{name}_test.py"]
    files = [folder / name for name in names] if pair else sorted(folder.glob("*.py"))
    return [file for file in files if _is_test_file(file) and file.exists()]


def _is_test_file(path: Path) -> bool:
    return path.name.startswith("test_") or path.stem.endswith("_test")


@contextmanager
def _naming(place: str) -> Iterator[None]:
    """Put a place before what is said of something malformed."""
    try:
        yield
    except Malformed as error:
        raise Malformed(f"{place} {error}") from None


def _case_file(text: str) -> dict[str, JSON]:
    """Return the cases of tests.json: one value, or one case a line."""
    lines = [(n, line) for n, line in enumerate(text.split("\n"), start=1) if line.strip()]
    try:
        data = _json(text)
        if _is_one_case(data):
            data = [data]
    except Malformed:
        if len(lines) < 2 or not lines[0][1].rstrip().endswith("]"):
            raise
        data = []
        for number, line in lines:
            with _naming(f"line {number}"):
                data.append(_json(line))
    if isinstance(data, dict) and {"visible", "hidden"} <= data.keys():
        return {"visible": data["visible"], "hidden": data["hidden"]}
    if not isinstance(data, list):
        raise Malformed(f"is {kind_of(data)}; expected a list of cases, or visible and hidden")
    return {"cases": data}


def _is_one_case(data: JSON) -> bool:
    """Return whether data is a case, like `[[1, 2], 3]`, not a list of them, `[[[1, 2], 3]]`."""
    if not isinstance(data, list) or len(data) != 2 or not isinstance(data[0], list):
        return False
    return not (isinstance(data[1], list) and len(data[0]) == len(data[1]) == 2)


def read_text(path: Path) -> str:
    try:
        return path.read_text("utf-8-sig")
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: is not UTF-8 text (byte {error.start})") from None


def _json(text: str) -> JSON:
    try:
        return json.loads(text)
    except RecursionError:
        raise Malformed("is nested too deeply") from None
    except ValueError as error:
        raise Malformed(f"is not JSON: {error}") from None


def _object(row: JSON) -> dict[str, JSON]:
    if not isinstance(row, dict):
        raise Malformed(f"is {kind_of(row)}; expected an object")
    return row


def json_object(text: str) -> dict[str, JSON]:
    return _object(_json(text))
