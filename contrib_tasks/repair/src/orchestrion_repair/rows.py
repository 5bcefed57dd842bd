"""Read one row of a collection, in our own form or a public one; the README lists the forms.

This module is public, for tasks that make other problems of the same rows.
"""

from __future__ import annotations

import ast
import contextlib
import doctest
import json
import re
import textwrap
from collections.abc import Container, Mapping, Sequence
from typing import TypeVar, get_args

from attrs import evolve, frozen

from orchestrion import JSON, Split
from orchestrion_repair.bug import Bug, Case
from orchestrion_repair.statements import Tests as Tests
from orchestrion_repair.statements import from_check, from_module, parse

SPLITS = ", ".join(get_args(Split))
MOST_LISTED = 20
T = TypeVar("T")


class Malformed(Exception):
    """Raised for a row that lacks something, has a wrong type, or has invalid Python."""


class Unusable(Exception):
    """Raised for a row that is well formed but has tests that nothing here can run."""


@frozen
class Row:
    """A row that was read.

    Args:
        bug: with `group` as the row gives it, perhaps "".
        placed: whether the row names its split.
        divided: whether the row says which tests are hidden.
        notes: tests that were left out, each with its reason.
    """

    bug: Bug
    placed: bool
    divided: bool
    notes: tuple[str, ...] = ()


def read_row(name: str, row: Mapping[str, JSON]) -> Row:
    """Return the bug that a row describes.

    Raises:
        Malformed: something is missing, of the wrong type, or no Python.
        Unusable: the tests are of a kind that nothing here can run.
    """
    code, solution = _sources(row)
    tree = parsed("the program", code)
    if solution:
        parsed("the solution", solution)
    tests = read_tests(name, row)
    visible, hidden = _parts(tests)
    split = row.get("split", "test")
    if split not in get_args(Split):
        raise Malformed(f"split is {split!r}; expected {SPLITS}")
    bug = Bug(
        id=str(row.get("id", name)),
        name=name,
        entry_point=entry_point(name, tree, text_of(row, "entry_point").strip(), tests.names),
        code=code,
        visible=visible,
        hidden=hidden,
        kind=text_of(row, "kind", "bug_type"),
        group=text_of(row, "group"),
        split=split,
        category=text_of(row, "category"),
        prelude=tests.prelude,
        solution=solution,
    )
    return Row(bug, "split" in row, tests.hidden is not None, tests.left_out)


# ---------------------------------------------------------------- sources


def _sources(row: Mapping[str, JSON]) -> tuple[str, str]:
    """Return the buggy program and, if there is one, a correct one."""
    if "prompt" in row and "test" in row:
        return _from_prompt(row)
    buggy, code = text_of(row, "buggy"), text_of(row, "code")
    solution = text_of(row, "solution", "correct") or (code if buggy else "")
    program = buggy or code
    if not program:
        raise Malformed("has no program; expected the field 'code' or 'buggy'")
    if row.get("node"):
        program = re.sub(r"^(from \.?node import .*|import node)$", "", program, flags=re.M)
    return program, solution


def _from_prompt(row: Mapping[str, JSON]) -> tuple[str, str]:
    name, prompt = text_of(row, "entry_point").strip(), text_of(row, "prompt")
    if not name:
        raise Malformed("has no 'entry_point'")
    if "buggy" not in row and "buggy_solution" not in row:
        raise Malformed("has no 'buggy': the function with its mistake, whole or its body")
    imports = text_of(row, "import")
    start = f"{imports}\n\n" if imports else ""
    body, right = text_of(row, "buggy", "buggy_solution"), text_of(row, "canonical_solution")
    solution = start + completed(prompt, name, right) if right else ""
    return start + completed(prompt, name, body), solution


def completed(prompt: str, name: str, body: str) -> str:
    """Return a whole program.

    Args:
        prompt: a function's head, perhaps after imports and helpers.
        name: the function's name.
        body: the rest of the function, or the whole function again.
    """
    if not re.search(rf"^(async )?def {re.escape(name)}\b", body, re.M):
        return _continued(prompt, body)
    try:
        tree = parse(prompt)
    except SyntaxError:
        tree = parsed("prompt", f"{prompt.rstrip()}\n    pass")
    whole = parsed("'buggy'", body)
    lines, defined = {ast.unparse(node) for node in whole.body}, _defined(whole)
    head = [ast.unparse(node) for node in tree.body[:-1] if not _binds(node) & defined]
    return "\n".join([*(text for text in head if text not in lines), body])


def _continued(prompt: str, body: str) -> str:
    """Return the prompt and a body, which may be indented in a way of its own."""
    start, rest = prompt.expandtabs(4), body.expandtabs(4)
    even = textwrap.indent(textwrap.dedent(rest.strip("\n")), "    ") + "\n"
    for program in (prompt + body, start + rest, start + even):
        with contextlib.suppress(SyntaxError):
            parse(program)
            return program
    return prompt + body


def parsed(what: str, source: str) -> ast.Module:
    """Return the syntax tree of a source.

    Args:
        what: how an error names the source.
        source: a module.

    Raises:
        Malformed: it is not Python.
    """
    try:
        return parse(source)
    except SyntaxError as error:
        place = f", line {error.lineno}" if error.lineno else ""
        raise Malformed(f"{what} is not Python{place}: {error.msg}") from None


def _binds(node: ast.stmt) -> set[str]:
    """Return the names a top-level statement defines."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {node.name}
    if isinstance(node, ast.Import | ast.ImportFrom):
        return {(alias.asname or alias.name).split(".")[0] for alias in node.names}
    names = (inner for inner in ast.walk(node) if isinstance(inner, ast.Name))
    return {name.id for name in names if isinstance(name.ctx, ast.Store)}


def _defined(tree: ast.Module) -> set[str]:
    return {name for node in tree.body for name in _binds(node)}


def entry_point(name: str, tree: ast.Module, given: str, used: Sequence[str]) -> str:
    """Return the function under test.

    It is the given one, else the first that the tests use, else the one called like the problem,
    else the only one.

    Args:
        name: the problem's name.
        tree: the program.
        given: the entry point that the row names; "" if none.
        used: functions that the tests use, the likeliest first.

    Raises:
        Malformed: the program does not define the given one, or none of these is known.
    """
    defined = _defined(tree)
    functions = [n.name for n in tree.body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    if given and given not in defined:
        raise Malformed(f"the program does not define the entry point {given!r}; {_has(functions)}")
    own = name.rsplit("/", 1)[-1].replace("-", "_")
    for candidate in (given, *used, own):
        if candidate in defined:
            return candidate
    if len(functions) != 1:
        raise Malformed(f"has no 'entry_point', and {_has(functions)}")
    return functions[0]


def _has(functions: Sequence[str]) -> str:
    return f"it defines {', '.join(functions)}" if functions else "it defines no function"


# ---------------------------------------------------------------- tests


def read_tests(name: str, row: Mapping[str, JSON]) -> Tests:
    """Return the tests of a row, in whatever form it has them.

    Raises:
        Malformed: something is missing, of the wrong type, or no Python.
        Unusable: the tests are of a kind that nothing here can run.
    """
    prelude = text_of(row, "prelude", "test_setup")
    if "visible" in row or "hidden" in row:
        if missing := [key for key in ("visible", "hidden") if not row.get(key)]:
            raise Malformed(f"has no {missing[0]} cases; expected both 'visible' and 'hidden'")
        return Tests(_cases(row, "visible"), _cases(row, "hidden"), prelude)
    if row.get("files"):
        return _files(name, row["files"])
    if row.get("pytest") and not _is_plain(name, row):
        return _quixbugs(name, row)
    if row.get("cases") is not None:
        return Tests(_cases(row, "cases"), prelude=prelude)
    if "test" in row:
        tree = parsed("'test'", text_of(row, "test"))
        return _after(prelude, from_check(tree, text_of(row, "entry_point").strip() or name))
    if "test_list" in row:
        setup, imports = text_of(row, "test_setup_code"), row.get("test_imports") or []
        if not isinstance(imports, list):
            raise Malformed(f"'test_imports' is {kind_of(imports)}; expected a list of lines")
        prelude = "\n".join([*map(str, imports), setup]).strip()
        return Tests(_cases(row, "test_list"), prelude=prelude)
    if "cases" in row:
        raise Unusable("its cases are null, and it has no 'pytest' source")
    raise Malformed("has no tests; expected 'cases', 'visible' and 'hidden', 'test' or 'test_list'")


def _files(name: str, files: Sequence[tuple[str, str]]) -> Tests:
    if len(files) > 1:  # the prelude of each could disturb the others
        raise Unusable(f"has {len(files)} test files; put the tests into one")
    [(file, source)] = files
    return _after("", from_module(parsed(file, source), {"buggy", "correct", "solution", name}))


def _quixbugs(name: str, row: Mapping[str, JSON]) -> Tests:
    tree, rows = parsed("'pytest'", text_of(row, "pytest")), None
    if row.get("cases") is not None:
        rows = [[list(case.args), case.want] for case in _cases(row, "cases")]
    return _after(text_of(row, "node"), from_module(tree, {name}, rows))


def _is_plain(name: str, row: Mapping[str, JSON]) -> bool:
    """Return whether the pytest source only compares results with cases that are given anyway."""
    if row.get("cases") is None:
        return False
    tree = parsed("'pytest'", text_of(row, "pytest"))
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    tests = [node for node in functions if node.name.startswith("test")]
    if len(tests) != 1:
        return False
    body = "\n".join(map(ast.unparse, tests[0].body))
    call = rf"{re.escape(name)}\(\*\w+\)"
    return re.fullmatch(rf"assert ({call}|list\({call}\)) == expected", body) is not None


def _after(prelude: str, tests: Tests) -> Tests:
    """Return tests with more source before their own prelude."""
    if not tests.cases and tests.left_out:
        raise Unusable(f"no test is usable: {tests.left_out[0]}")
    return evolve(tests, prelude="\n\n".join(filter(None, (prelude, tests.prelude))))


def _cases(row: Mapping[str, JSON], key: str) -> tuple[Case, ...]:
    data = row[key]
    if not isinstance(data, list):
        raise Malformed(f"'{key}' is {kind_of(data)}; expected a list of cases")
    return tuple(_case(f"'{key}', case {number}", item) for number, item in enumerate(data, 1))


def _case(place: str, data: JSON) -> Case:
    match data:
        case str(text) | {"assert": str(text)}:
            return _statement(place, text)
        case [args, want]:
            return Case(tuple(args) if isinstance(args, list) else (args,), want)
        case {"call": list(args), "want": want}:
            return Case(tuple(args), want)
    raise Malformed(
        f'{place} is none of [arguments, wanted], {{"call": [...], "want": ...}}, '
        f'{{"assert": "..."}} or a text with an assert: {json.dumps(data)[:80]}'
    )


def _statement(place: str, text: str) -> Case:
    tree = parsed(place, text)
    if not any(isinstance(node, ast.Assert | ast.Raise) for node in ast.walk(tree)):
        raise Malformed(f"{place} has no assert: {text[:80]!r}")
    return Case(statement=text)


def _parts(tests: Tests) -> tuple[tuple[Case, ...], tuple[Case, ...]]:
    """Return the visible and the hidden tests, equal ones once where nothing divides them."""
    if tests.hidden is not None:
        return tests.cases, tests.hidden
    different = {json.dumps(case.to_json(), sort_keys=True): case for case in tests.cases}
    cases = tuple(different.values())
    if not cases:
        raise Malformed("has no tests")
    if len(cases) == 1:
        raise Unusable("it has one test only, and nothing would be left to hide")
    return divided(cases)


def divided(tests: Sequence[T]) -> tuple[tuple[T, ...], tuple[T, ...]]:
    """Return the visible and the hidden tests: every second is hidden, from the second on."""
    return tuple(tests[::2]), tuple(tests[1::2])


# ---------------------------------------------------------------- fields


def name_of(row: Mapping[str, JSON]) -> str:
    """Return the name that a row gives its problem; "" if none."""
    keys = ("name", "task_id", "id", "entry_point")
    return next((str(row[key]) for key in keys if row.get(key) is not None), "")


def unused(wanted: str, used: Container[str]) -> str:
    """Return a name, numbered if it is used already."""
    number, new = 1, wanted
    while new in used:
        number, new = number + 1, f"{wanted}#{number + 1}"
    return new


def listed(lines: Sequence[str]) -> str:
    """Return lines as they stand below a message, at most 20."""
    more = [f"and {len(lines) - MOST_LISTED} more"] if len(lines) > MOST_LISTED else []
    return "".join(f"\n  {line}" for line in [*lines[:MOST_LISTED], *more])


def text_of(row: Mapping[str, JSON], *keys: str) -> str:
    """Return the first of the fields that is there; it must be text."""
    key = next((key for key in keys if row.get(key) is not None), None)
    if key is None:
        return ""
    if not isinstance(row[key], str):
        raise Malformed(f"'{key}' is {kind_of(row[key])}; expected text")
    return str(row[key])


def kind_of(value: JSON) -> str:
    """Return what a JSON value is, in words."""
    names = {dict: "an object", list: "a list", str: "text", bool: "a truth value"}
    return names.get(type(value), "null" if value is None else "a number")


# ---------------------------------------------------------------- doctests


def doctests(node: ast.stmt) -> list[str]:
    """Return the examples of a function's docstring as asserts, each after its set-up lines."""
    if not isinstance(node, ast.FunctionDef) or not (text := ast.get_docstring(node)):
        return []
    cases, setup = [], ""
    try:
        examples = doctest.DocTestParser().get_examples(text)
    except ValueError:  # an inconsistent docstring has no examples
        return []
    for example in examples:
        source, want = example.source.strip(), example.want.strip()
        if not want:
            setup += f"{source}\n"
        elif example.exc_msg is None and _is_expression(source):
            cases.append(f"{setup}assert {_compared(source, want)}")
    return cases


def _compared(source: str, want: str) -> str:
    with contextlib.suppress(ValueError, SyntaxError):
        ast.literal_eval(want)
        return f"({source}) == ({want})"
    return f"repr({source}) == {want!r}"


def _is_expression(source: str) -> bool:
    try:
        ast.parse(source, mode="eval")
    except SyntaxError:
        return False
    return True
