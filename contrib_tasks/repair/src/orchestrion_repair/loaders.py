"""Problems from files: a user's folder, or JSON lines in our own or a public form.

The README says where files stand in a folder, which forms a row may have, and how tests are divided
into visible and hidden ones (`checking.py` sees to it that a failing one is visible).

What is malformed is an error that names the place. What is well formed but cannot be used here is
left out, and said in `Collection.skipped`.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from pathlib import Path
from typing import get_args

from attrs import Factory, define, evolve, frozen

from orchestrion import JSON, Split, UsageError
from orchestrion_repair.bug import Bug, Case
from orchestrion_repair.files import Notes, json_object, read_text, rows_in, tests_beside
from orchestrion_repair.rows import (
    SPLITS,
    Malformed,
    Unusable,
    doctests,
    entry_point,
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
    for place, row in rows_in(Path(path), loaded):
        loaded.take(place, row)
    if loaded.malformed:
        raise UsageError(f"{path}: {len(loaded.malformed)} malformed{listed(loaded.malformed)}")
    if not loaded.bugs:
        reasons = listed(loaded.skipped) if loaded.skipped else f"; {_EXPECTED}"
        raise UsageError(f"{path}: no problem could be loaded{reasons}")
    bugs = tuple(loaded.in_splits(fractions))
    return Collection(bugs, tuple(loaded.skipped), frozenset(loaded.divided))


def bug_from_text(text: str) -> Bug:
    """Return one problem from a path, a row of JSON, or a source with its tests in it.

    Raises:
        UsageError: if it is none of these, or has more than one problem.
    """
    line = text.strip()
    try:
        if line.startswith("{"):
            row = json_object(line)
            return read_row(name_of(row) or "input", row).bug
        if "\n" in line or not _is_path(line):
            return from_source(text)
    except (Malformed, Unusable) as error:
        raise UsageError(f"the input {error}") from None
    path = Path(line)
    if path.suffix == ".py" and not tests_beside(path):
        return bug_from_text(f"{read_text(path)}\n\n")
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


@define
class _Found(Notes):
    """What was found so far."""

    bugs: list[Bug] = Factory(list)
    ids: set[str] = Factory(set)
    labels: dict[str, str] = Factory(dict)
    splits: dict[str, tuple[Split, str]] = Factory(dict)
    divided: set[str] = Factory(set)

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
