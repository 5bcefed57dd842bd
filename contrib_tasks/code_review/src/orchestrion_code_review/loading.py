"""Problems from files: JSON lines of your own, or the forms of public collections.

`orchestrion-repair` reads the files (see its README) and the tests in them. Here a row needs a
right program, not a wrong one:

    own         id or name, text, entry_point, and `cases`, or `visible` and `hidden`; optional:
                solution, wrong (list), level, category, reference, prelude, split, group
    HumanEval   task_id, prompt, entry_point, test, canonical_solution
    MBPP        task_id, prompt, code, test_list; also test_imports, test_setup_code
    QuixBugs    name, buggy, correct, cases or pytest; and program.py beside program.json

Where tests are not divided into visible and hidden, the docstring has the examples; if it has none,
the first of several tests is the example. A row that is malformed or cannot be judged is left out,
with its place and the reason; it is an error if no row is left.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any, get_args

from attrs import evolve, fields, frozen
from orchestrion_repair import Case, raw_rows
from orchestrion_repair.rows import (
    Malformed,
    Tests,
    Unusable,
    completed,
    doctests,
    entry_point,
    kind_of,
    listed,
    name_of,
    parsed,
    read_tests,
    text_of,
    unused,
)

from orchestrion import JSON, Split, UsageError
from orchestrion_code_review.challenge import (
    LEVELS,
    REFERENCES,
    Challenge,
    Level,
    Reference,
    Test,
)

_TOLERANCE = 1e-9


@frozen
class LoadedSuite:
    """The problems that were loaded, and a line for each row that was left out."""

    challenges: tuple[Challenge, ...]
    skipped: tuple[str, ...] = ()


def load(path: str | Path) -> LoadedSuite:
    """Return all problems of a folder or a file.

    Raises:
        UsageError: no row is left; gives the reason for each row.
    """
    raw = raw_rows(path)
    skipped = [*raw.malformed, *raw.skipped]
    challenges: dict[str, Challenge] = {}
    for place, row in raw.rows:
        name = _name(row)
        where = f"{place}, {name}" if name else place
        try:
            challenge, notes = read_challenge(name or f"problem-{len(challenges) + 1}", row)
        except (Malformed, Unusable) as error:
            skipped.append(f"{where}: {error}")
        else:
            skipped += [f"{where}: left out {note}" for note in notes]
            new = unused(challenge.id, challenges)
            challenges[new] = evolve(challenge, id=new)
    if not challenges:
        raise UsageError(f"{path}: no problem could be loaded{listed(skipped)}")
    return LoadedSuite(tuple(challenges.values()), tuple(skipped))


def from_text(text: str) -> Challenge | None:
    """Return the problem of a path or a row of JSON; None if the text is neither.

    Raises:
        UsageError: it does not describe one problem.
    """
    line = text.strip()
    if line.startswith("{"):
        try:
            row = json.loads(line)
            return read_challenge(_name(row) or "input", row)[0]
        except (Malformed, Unusable) as error:
            raise UsageError(f"the input {error}") from None
        except (ValueError, RecursionError) as error:
            raise UsageError(f"the input is not JSON: {error}") from None
    if "\n" in line or Path(line).suffix not in (".json", ".jsonl"):
        return None
    challenges = load(line).challenges
    if len(challenges) > 1:
        raise UsageError(
            f"{line}: has {len(challenges)} problems; expected one, e.g. {challenges[0].id}"
        )
    return challenges[0]


def _name(row: Mapping[str, JSON]) -> str:
    return str(row["id"]) if row.get("id") is not None else name_of(row)


# ---------------------------------------------------------------- one row


def read_challenge(name: str, row: Mapping[str, JSON]) -> tuple[Challenge, tuple[str, ...]]:
    """Return the problem a row describes, and the tests that were left out, each with its reason.

    Raises:
        Malformed: something is missing, of the wrong type, or no Python.
        Unusable: the tests are of a kind that nothing here can run.
    """
    solution = _solution(row)
    tests = read_tests(name, row)
    tree = parsed("the solution", solution) if solution else ast.Module([], [])
    entry = _entry(name, row, tests, tree)
    prelude = _prelude(row, tests, tree, entry)
    examples, hidden = _divided(tests, tree, entry)
    level = row.get("level", "intermediate")
    if level not in LEVELS:
        raise Malformed(f"level is {level!r}; expected {', '.join(LEVELS)}")
    split = row.get("split")
    if split is not None and split not in get_args(Split):
        raise Malformed(f"split is {split!r}; expected {', '.join(get_args(Split))}")
    challenge = Challenge(
        id=name,
        text=_words(row, tree, entry),
        entry_point=entry,
        examples=examples,
        tests=hidden,
        level=level,
        category=text_of(row, "category"),
        solution=solution,
        wrong=_wrong(row),
        reference=_reference(row, level),
        prelude=prelude,
        names=_aliases(prelude, entry),
        group=text_of(row, "group") or _digest(entry, examples, hidden),
        split=split,
    )
    return challenge, tests.left_out


def _solution(row: Mapping[str, JSON]) -> str:
    """Return the right program, which has another name in each of the public forms."""
    if "prompt" in row and "canonical_solution" in row:
        name, prompt = text_of(row, "entry_point").strip(), text_of(row, "prompt")
        start = f"{text_of(row, 'import')}\n\n" if row.get("import") else ""
        return start + completed(prompt, name, text_of(row, "canonical_solution"))
    return text_of(row, "solution", "correct", "code")


def _words(row: Mapping[str, JSON], tree: ast.Module, entry: str) -> str:
    """Return the description of the problem; without one, a docstring."""
    if words := text_of(row, "text", "prompt", "description"):
        return words
    documents = [ast.get_docstring(node) or "" for node in _functions(tree, entry)]
    if buggy := text_of(row, "buggy"):
        for node in parsed("'buggy'", buggy).body:
            match node:  # QuixBugs has the text at the end of the program
                case ast.Expr(ast.Constant(str(text))):
                    documents.append(text)
    return next((text.strip() for text in documents if text.strip()), f"Write `{entry}`.")


def _prelude(row: Mapping[str, JSON], tests: Tests, tree: ast.Module, entry: str) -> str:
    """Return the source that statements need.

    Beside their own prelude, this is what the solution imports, which tests of MBPP use, and the
    helpers that HumanEval's prompts define.
    """
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    helpers = [
        node
        for node in tree.body
        if "canonical_solution" in row and isinstance(node, functions) and node.name != entry
    ]
    used = {
        node.id
        for source in (*_statements(tests), tests.prelude, *map(ast.unparse, helpers))
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Name)
    }
    imports = [
        node
        for node in tree.body
        if isinstance(node, ast.Import | ast.ImportFrom)
        and used & {(a.asname or a.name).partition(".")[0] for a in node.names}
    ]
    return "\n".join([*map(ast.unparse, [*imports, *helpers]), tests.prelude])


def _aliases(prelude: str, entry: str) -> tuple[str, ...]:
    """Return other names of the entry point, as in `candidate = add`."""
    names = []
    for node in ast.parse(prelude).body:
        match node:
            case ast.Assign([ast.Name(target)], ast.Name(value)) if value == entry:
                names.append(target)
    return tuple(names)


def _entry(name: str, row: Mapping[str, JSON], tests: Tests, tree: ast.Module) -> str:
    """Return the function under test: the named one, unless the tests call another."""
    given = text_of(row, "entry_point").strip()
    if not tree.body:
        if not given:
            raise Malformed("has neither an 'entry_point' nor a solution that defines one")
        return given
    called = (*tests.names, *_called(tests))
    if given and called and not {given, *_aliases(tests.prelude, given)} & set(called):
        # Some rows name the first function of the solution, which may be a helper.
        given = next((other for other in called if _functions(tree, other)), given)
    return entry_point(name, tree, given, called)


def _functions(tree: ast.Module, name: str) -> list[ast.FunctionDef]:
    return [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name]


def _statements(tests: Tests) -> list[str]:
    cases = (*tests.cases, *(tests.hidden or ()))
    return [case.statement for case in cases if case.statement]


def _called(tests: Tests) -> tuple[str, ...]:
    """Return names that the statements among the tests call, in order."""
    names: list[str] = []
    for statement in _statements(tests):
        for node in ast.walk(ast.parse(statement)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                names.append(node.func.id)
    return tuple(dict.fromkeys(names))


def _divided(
    tests: Tests, tree: ast.Module, entry: str
) -> tuple[tuple[Test, ...], tuple[Test, ...]]:
    """Return the examples and the hidden tests."""
    every_test = _distinct(_test(case, entry) for case in tests.cases)
    if tests.hidden is not None:
        return every_test, _distinct(_test(case, entry) for case in tests.hidden)
    if not every_test:
        raise Malformed("has no tests")
    functions = _functions(tree, entry)
    examples = _distinct(Test(text) for node in functions for text in doctests(node))
    if examples or len(every_test) == 1:
        return examples, every_test
    return every_test[:1], every_test[1:]


def _distinct(tests: Any) -> tuple[Test, ...]:
    return tuple({test.text: test for test in tests}.values())


def _test(case: Case, entry: str) -> Test:
    if case.statement:
        return Test(case.statement)
    text = f"{entry}({', '.join(map(repr, case.args))}) == {case.want!r}"
    # JSON has neither tuples nor iterators, and one kind of number.
    return Test(text, "items", _TOLERANCE)


def _wrong(row: Mapping[str, JSON]) -> tuple[str, ...]:
    wrong = row.get("wrong", [])
    if not isinstance(wrong, list) or not all(isinstance(program, str) for program in wrong):
        raise Malformed(f"'wrong' is {kind_of(wrong)}; expected a list of programs")
    return (*wrong, *filter(None, [text_of(row, "buggy")]))


def _reference(row: Mapping[str, JSON], level: Level) -> Reference:
    given = row.get("reference") or {}
    names = [attribute.name for attribute in fields(Reference)]
    if not isinstance(given, dict) or set(given) - set(names):
        raise Malformed(f"'reference' has other fields than {', '.join(names)}")
    for name, value in given.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
            raise Malformed(f"reference.{name} is {value!r}; expected a number")
    return evolve(REFERENCES[level], **given)


def _digest(entry: str, *tests: Sequence[Test]) -> str:
    """Return the group of problems with these tests."""
    text = "\n".join([entry, *sorted(test.text for group in tests for test in group)])
    return blake2b(text.encode("utf-8", "replace"), digest_size=16).hexdigest()
