"""The problems of the task and their tests, which are text that people read and a judge runs."""

from __future__ import annotations

import ast
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from hashlib import blake2b
from importlib.resources import files
from typing import Any, Literal, get_args

from attrs import asdict, frozen
from orchestrion_sandbox import Case, Equal

from orchestrion import JSON, Split, UsageError

Level = Literal["basic", "intermediate", "advanced"]
LEVELS: tuple[Level, ...] = get_args(Level)
RAISES = " raises "


@frozen
class Test:
    """One test, in one of three forms.

        reverse("ab") == "ba"          a call and what it gives
        reverse(None) raises TypeError a call and the exception it raises
        assert sorted(f(3)) == [1, 3]  any statement that raises if something is wrong

    Args:
        text: the test.
        equal: what counts as equal, for a call and what it gives.
        tolerance: for floats in it.
    """

    __test__ = False  # no class of tests, whatever pytest makes of its name

    text: str
    equal: Equal = "exact"
    tolerance: float = 0.0

    def case(self, entry_point: str, names: Sequence[str] = ()) -> Case | None:
        """Return the test as a case that can be judged outside; None if it has to be executed.

        Args:
            entry_point: the function under test.
            names: other names of it.
        """
        return _case(self, frozenset((entry_point, *names)))

    @property
    def statement(self) -> str:
        """The test as a statement that raises if something is wrong."""
        if RAISES in self.text and not self.text.startswith("assert"):
            call, _, error = self.text.rpartition(RAISES)
            return f"try:\n    {call}\nexcept {error}:\n    pass\nelse:\n    assert False"
        return self.text if not _is_comparison(self.text) else f"assert {self.text}"

    def to_json(self) -> dict[str, JSON]:
        """Return the test as it stands in the hidden part of a problem."""
        return asdict(self)


@frozen
class Reference:
    """The most that a solution may take for the full score.

    Args:
        turns: of the team.
        tokens: read and written by models.
        usd: US dollars.
        complexity: cyclomatic complexity of the solution's most complex function.
    """

    turns: int = 3
    tokens: int = 2500
    usd: float = 0.01
    complexity: int = 5


REFERENCES: Mapping[Level, Reference] = {
    "basic": Reference(2, 1200, 0.004),
    "intermediate": Reference(3, 2500, 0.01),
    "advanced": Reference(4, 5000, 0.02),
}


@frozen
class Challenge:
    """A function to write.

    Args:
        id: unique, e.g. "reverse-string".
        text: what is asked, in words.
        entry_point: the function's name.
        examples: tests that everybody sees.
        tests: hidden tests.
        level: how hard it is.
        category: the area, e.g. "strings".
        solution: right code; "" if none is known.
        wrong: plausible solutions that fail.
        reference: what it should take.
        prelude: source that tests which are statements need.
        names: other names of the entry point in the tests.
        group: problems of one group are in one split.
        split: its split; None if a hash of the group decides.
    """

    id: str
    text: str
    entry_point: str
    examples: tuple[Test, ...]
    tests: tuple[Test, ...]
    level: Level = "intermediate"
    category: str = ""
    solution: str = ""
    wrong: tuple[str, ...] = ()
    reference: Reference = REFERENCES["intermediate"]
    prelude: str = ""
    names: tuple[str, ...] = ()
    group: str = ""
    split: Split | None = None


def constant_share(tests: Sequence[Test], entry_point: str, names: Sequence[str] = ()) -> float:
    """Return the largest share of the tests that a constant function passes.

    It is 0 if all tests expect the same, because then a constant is the right answer.
    """
    cases = [test.case(entry_point, names) for test in tests]
    wanted = Counter((c.raises or repr(c.wanted)) for c in cases if c is not None)
    if not wanted or len(wanted) == 1:
        return 0.0
    return max(wanted.values()) / len(tests)


# ---------------------------------------------------------------- from text to cases


@lru_cache(maxsize=100_000)
def _case(test: Test, names: frozenset[str]) -> Case | None:
    try:
        if RAISES in test.text and (raising := _raising(test.text, names)):
            return raising
        match ast.parse(test.text).body:
            case [ast.Assert(condition)]:
                return _compared(condition, names, "python", test.tolerance)
            case [ast.Expr(condition)]:
                return _compared(condition, names, test.equal, test.tolerance)
    except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError):
        pass
    return None


def _raising(text: str, names: frozenset[str]) -> Case | None:
    call, _, error = text.rpartition(RAISES)
    if not error.isidentifier():
        return None
    node = ast.parse(call, mode="eval").body
    args, named = _arguments(node, names)
    return Case(args, named=named, raises=error)


def _compared(node: ast.expr, names: frozenset[str], equal: Equal, tolerance: float) -> Case | None:
    """Return the case of a comparison of a call with plain data, on either side."""
    match node:
        case ast.Compare(left, [ast.Eq()], [right]):
            call, wanted = (left, right) if _is_call(left, names) else (right, left)
        case ast.Compare(call, [ast.Is()], [ast.Constant(value=True | False | None) as wanted]):
            equal = "exact"
        case _:
            return None
    args, named = _arguments(call, names)
    return Case(args, ast.literal_eval(wanted), named, "", tolerance, equal)


def _is_call(node: ast.expr, names: frozenset[str]) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names


def _arguments(node: ast.expr, names: frozenset[str]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the positional and named arguments of a call of the entry point.

    Raises:
        ValueError: it is no such call, or an argument is not plain data.
    """
    if not isinstance(node, ast.Call) or not _is_call(node, names):
        raise ValueError("not a call of the entry point")
    named: dict[str, Any] = {}
    for keyword in node.keywords:
        if keyword.arg is None:
            raise ValueError("a mapping is unpacked")
        named[keyword.arg] = ast.literal_eval(keyword.value)
    return tuple(map(ast.literal_eval, node.args)), named


def _is_comparison(text: str) -> bool:
    try:
        return isinstance(ast.parse(text, mode="eval").body, ast.Compare)
    except (SyntaxError, ValueError):
        return False


# ---------------------------------------------------------------- splits


FRACTIONS: Mapping[Split, float] = {"train": 0.5, "validation": 0.2, "test": 0.3}
"""Approximate shares of the problems that name no split."""


def split_of(challenge: Challenge, fractions: Mapping[Split, float] = FRACTIONS) -> Split:
    """Return the split of a problem: its own, or a draw by its group alone."""
    if challenge.split is not None:
        return challenge.split
    name = (challenge.group or challenge.id).encode("utf-8", "replace")
    draw = int.from_bytes(blake2b(name, digest_size=7).digest()) / 2**56
    for split in get_args(Split)[:-1]:
        draw -= fractions.get(split, 0.0)
        if draw < 0:
            return split  # type: ignore[no-any-return]
    return "test"


def check_fractions(fractions: Mapping[Split, float]) -> None:
    """Check that shares add up to 1.

    Raises:
        UsageError: they do not, or one is negative.
    """
    shares = list(fractions.values())
    if not shares or min(shares) < 0 or abs(sum(shares) - 1) > 1e-9:
        raise UsageError(f"fractions: {dict(fractions)} are not shares that make 1 together")


# ---------------------------------------------------------------- the built-in problems


@cache
def builtin() -> tuple[Challenge, ...]:
    """Return all built-in problems, the easy ones first."""
    challenges: list[Challenge] = []
    for level in LEVELS:
        path = files("orchestrion_code_review") / "suite" / f"{level}.toml"
        for row in tomllib.loads(path.read_text("utf-8"))["problem"]:
            parsed = {
                "text": " ".join(row["text"].split()),
                "examples": tuple(map(Test, row["examples"])),
                "tests": tuple(map(Test, row["tests"])),
                "wrong": tuple(row["wrong"]),
                "reference": Reference(**row["reference"]),
            }
            challenges.append(Challenge(**row | parsed, level=level, group=row["id"]))
    return tuple(challenges)
