"""Problems from files: a user's folder, or JSON lines in our own or a public form.

The README says where files stand in a folder, which forms a row may have, and how tests are divided
into visible and hidden ones (`checking.py` sees to it that a failing one is visible).

What is malformed is an error that names the place. What is well formed but cannot be used here is
left out, and said in `Collection.skipped`.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import TypeVar, get_args

from attrs import Factory, define, evolve, frozen

from orchestrion import JSON, Split, UsageError
from orchestrion_repair.bug import Bug, Case
from orchestrion_repair.rows import (
    SPLITS,
    Malformed,
    Unusable,
    doctests,
    entry_point,
    kind_of,
    listed,
    name_of,
    parsed,
    read_row,
    unused,
)
from orchestrion_repair.statements import from_module

_EXPECTED = (
    "expected sub-folders with buggy.py and tests.json or test_*.py, pairs NAME.py and NAME.json, "
    "or files of JSON lines (*.jsonl)"
)


@frozen
class Collection:
    """What was loaded, and what was left out: one line each, with place and reason.

    `divided` has the ids of the bugs whose tests were divided here, not by their author.
    """

    bugs: tuple[Bug, ...]
    skipped: tuple[str, ...] = ()
    divided: frozenset[str] = frozenset()


def load_path(path: str | Path, fractions: Mapping[Split, float] | None = None) -> Collection:
    """Return all problems of a folder or a file.

    Args:
        path: a folder, a program, a file of JSON lines, or a JSON list of rows (`.json`).
        fractions: shares of the splits for problems that name none; together 1.

    Raises:
        UsageError: with everything that is malformed, each with its place.
    """
    _check(fractions or {})
    loaded = _Found()
    for place, row in _rows(Path(path), loaded):
        loaded.take(place, row)
    if loaded.malformed:
        raise UsageError(f"{path}: {len(loaded.malformed)} malformed{listed(loaded.malformed)}")
    if not loaded.bugs:
        reasons = listed(loaded.skipped) if loaded.skipped else f"; {_EXPECTED}"
        raise UsageError(f"{path}: no problem could be loaded{reasons}")
    bugs = tuple(loaded.in_splits(fractions))
    return Collection(bugs, tuple(loaded.skipped), frozenset(loaded.divided))


@frozen
class RawRows:
    """The rows of a path before anything is made of them, each with its place."""

    rows: tuple[tuple[str, Mapping[str, JSON]], ...]
    skipped: tuple[str, ...]
    malformed: tuple[str, ...]


def raw_rows(path: str | Path) -> RawRows:
    """Return what stands in a folder or a file, for tasks that make other problems of it.

    Raises:
        UsageError: there is no such file or folder, or it cannot be read.
    """
    loaded = _Found()
    rows = tuple(_rows(Path(path), loaded))
    return RawRows(rows, tuple(loaded.skipped), tuple(loaded.malformed))


def bug_from_text(text: str) -> Bug:
    """Return one problem from a path, a row of JSON, or a source with its tests in it.

    Raises:
        UsageError: if it is none of these, or has more than one problem.
    """
    line = text.strip()
    try:
        if line.startswith("{"):
            row = _json_object(line)
            return read_row(name_of(row) or "input", row).bug
        if "\n" in line or not _is_path(line):
            return from_source(text)
    except (Malformed, Unusable) as error:
        raise UsageError(f"the input {error}") from None
    path = Path(line)
    if path.suffix == ".py" and not _tests_beside(path):
        return bug_from_text(f"{_read(path)}\n\n")
    bugs = load_path(path).bugs
    if len(bugs) > 1:
        raise UsageError(f"{path}: has {len(bugs)} problems; expected one, e.g. {bugs[0].id}")
    return bugs[0]


def _is_path(line: str) -> bool:
    return Path(line).suffix in (".py", ".json", ".jsonl") or Path(line).exists()


def _check(fractions: Mapping[Split, float]) -> None:
    if unknown := [name for name in fractions if name not in get_args(Split)]:
        raise UsageError(f"fractions: {unknown[0]!r} is no split; expected {SPLITS}")
    shares = fractions.values()
    if fractions and (min(shares) < 0 or abs(sum(shares) - 1) > 1e-9):
        raise UsageError(f"fractions: {dict(fractions)} are not shares that make 1 together")


_Rows = Iterator[tuple[str, Mapping[str, JSON]]]
T = TypeVar("T")


@define
class _Found:
    """What was found so far."""

    bugs: list[Bug] = Factory(list)
    skipped: list[str] = Factory(list)
    malformed: list[str] = Factory(list)
    ids: set[str] = Factory(set)
    labels: dict[str, str] = Factory(dict)
    splits: dict[str, tuple[Split, str]] = Factory(dict)
    divided: set[str] = Factory(set)

    def row(self, place: str, parse: Callable[[T], Mapping[str, JSON]], given: T) -> _Rows:
        """Yield the row at a place; note it if it is malformed."""
        try:
            yield place, parse(given)
        except Malformed as error:
            self.malformed.append(f"{place}: {error}")

    def take(self, place: str, row: Mapping[str, JSON]) -> None:
        """Keep the bug of a row, or the reason to leave it out, or what is malformed."""
        name = name_of(row)
        where = f"{place}, {name}" if name else place
        try:
            read = read_row(name or "problem", row)
            new = unused(read.bug.id, self.ids)
            self.ids.add(new)
            bug = evolve(read.bug, id=new, group=self._group(read.bug))
            if read.placed:
                self._place(bug, where)
        except Unusable as error:
            self.skipped.append(f"{where}: {error}")
        except Malformed as error:
            self.malformed.append(f"{where}: {error}")
        else:
            self.bugs.append(bug)
            if not read.divided:
                self.divided.add(bug.id)
            self.skipped += [f"{where}: left out {note}" for note in read.notes]

    def _group(self, bug: Bug) -> str:
        """Return the row's own, or the name of the first problem with the same tests."""
        tests = sorted(json.dumps(case.to_json()) for case in bug.visible + bug.hidden)
        text = "\n".join([bug.entry_point, bug.prelude, *tests])
        key = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
        label = self.labels.setdefault(key, bug.group or bug.name)
        return bug.group or label

    def _place(self, bug: Bug, where: str) -> None:
        split, first = self.splits.setdefault(bug.group, (bug.split, where))
        if split != bug.split:
            raise Malformed(
                f"is in the split {bug.split}, but {first}, of the same group "
                f"{bug.group!r}, is in {split}; one function must not be in two splits"
            )

    def in_splits(self, fractions: Mapping[Split, float] | None) -> Iterator[Bug]:
        """Yield the bugs, each in its group's split."""
        free = {bug.group for bug in self.bugs} - self.splits.keys()
        split_of = _draw_splits(free, fractions or {"test": 1.0})
        for bug in self.bugs:
            placed = self.splits.get(bug.group)
            yield evolve(bug, split=placed[0] if placed else split_of[bug.group])


def _draw_splits(groups: Iterable[str], fractions: Mapping[Split, float]) -> dict[str, Split]:
    """Return a split for each group: shares as near as can be, in an order no file decides."""
    order = sorted(groups, key=lambda name: blake2b(name.encode("utf-8", "replace")).digest())
    split_of: dict[str, Split] = {}
    share, start = 0.0, 0
    for split in get_args(Split):
        share += fractions.get(split, 0.0)
        end = round(share * len(order))
        split_of |= dict.fromkeys(order[start:end], split)
        start = end
    return split_of


# ---------------------------------------------------------------- files and folders


def _rows(path: Path, loaded: _Found) -> _Rows:
    """Return every problem as a row, with its place."""
    if not path.exists():
        raise UsageError(f"{path}: no such file or folder")
    if path.is_dir():
        yield from _folder(path, loaded)
    elif path.suffix == ".py":
        yield from loaded.row(str(path), _problem, path)
    elif path.suffix == ".json":
        try:
            rows = _json(_read(path))
        except Malformed as error:
            raise UsageError(f"{path}: {error}") from None
        if not isinstance(rows, list):
            raise UsageError(f"{path}: is {kind_of(rows)}; expected a list of rows")
        for number, row in enumerate(rows, start=1):
            yield from loaded.row(f"{path}, row {number}", _object, row)
    else:
        for number, line in enumerate(_read(path).split("\n"), start=1):
            if line.strip():
                yield from loaded.row(f"{path}, line {number}", _json_object, line)


def _folder(path: Path, loaded: _Found) -> _Rows:
    if (path / "buggy.py").exists():
        yield from _rows(path / "buggy.py", loaded)
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
            loaded.skipped.append(f"{entry}: it has no buggy.py")
        elif program.suffix == ".jsonl" or (program.suffix == ".py" and not _is_test_file(program)):
            yield from _rows(program, loaded)


def _problem(program: Path) -> dict[str, JSON]:
    """Return a problem of a folder as a row."""
    folder, pair = program.parent, program.name != "buggy.py"
    name = program.stem if pair else folder.resolve().name
    more = folder / (f"{name}.problem.json" if pair else "problem.json")
    row: dict[str, JSON] = {"name": name}
    if more.exists():
        with _naming(more.name):
            row |= _json_object(_read(more))
    row["code"] = _read(program)
    if not pair and (folder / "correct.py").exists():
        row["solution"] = _read(folder / "correct.py")
    files = _tests_beside(program)
    if not files:
        expected = f"{name}.json or test_{name}.py" if pair else "tests.json or test_*.py"
        raise Malformed(f"has no tests; expected {expected} beside it")
    if files[0].suffix == ".json":
        with _naming(files[0].name):
            return row | _case_file(_read(files[0]))
    return row | {"files": [[file.name, _read(file)] for file in files]}


def _tests_beside(program: Path) -> list[Path]:
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


def _read(path: Path) -> str:
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


def _json_object(text: str) -> dict[str, JSON]:
    return _object(_json(text))


# ---------------------------------------------------------------- program and tests in one source


def from_source(text: str) -> Bug:
    """Return the program without its tests, and all tests as visible cases: nothing is hidden.

    Raises:
        Malformed: it is not Python, has no tests, or no function they are for.
    """
    tree = parsed("is no path or JSON, and", text)
    nodes = [node for node in tree.body if _is_test(node)]
    code = _without(text, nodes)
    tests = from_module(ast.Module(nodes, []), set())
    examples = [Case(statement=text) for node in tree.body for text in doctests(node)]
    cases = (*tests.cases, *examples)
    if not cases:
        raise Malformed("has no tests; expected asserts, test functions or doctests in the source")
    sources = [*(case.statement for case in cases), tests.prelude]
    used = [name for source in sources for name in _called(source)]
    return Bug(
        id="input",
        name="input",
        entry_point=entry_point("input", parsed("the program", code), "", used),
        code=code,
        visible=cases,
        hidden=(),
        prelude=tests.prelude,
    )


def _is_test(node: ast.stmt) -> bool:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return node.name.startswith("test")
    if isinstance(node, ast.ClassDef):
        return node.name.startswith("Test")
    if isinstance(node, ast.Import | ast.ImportFrom):
        return "pytest" in ast.unparse(node)
    main = isinstance(node, ast.If) and "__main__" in ast.unparse(node.test)
    return main or any(isinstance(inner, ast.Assert) for inner in ast.walk(node))


def _without(text: str, tests: list[ast.stmt]) -> str:
    """Return the text without the lines of the tests."""
    lines = text.split("\n")
    for node in tests:
        decorators = getattr(node, "decorator_list", [])
        first = min([node.lineno, *(decorator.lineno for decorator in decorators)])
        for number in range(first, (node.end_lineno or first) + 1):
            lines[number - 1] = ""
    return "\n".join(lines).rstrip() + "\n"


def _called(source: str) -> list[str]:
    calls = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call))
    return [call.func.id for call in calls if isinstance(call.func, ast.Name)]
