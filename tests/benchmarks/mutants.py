"""How many random mutants of a member its own tests catch.

    python dev.py python -m tests.benchmarks.mutants plugins/dag            # 40 mutants, seed 1
    python dev.py python -m tests.benchmarks.mutants core 64 7              # 64 mutants, seed 7

Arguments: the member's folder, the number of mutants, the seed. A mutant is the member's source
with one expression or statement changed: a comparison, a sign, a condition, a number, a value that
is returned, a call that is left out. At most one is drawn from a line. The member's tests run once
under coverage (`pip install coverage`); then each mutant meets the tests that reach its line, and
all of the member's tests if these are many and none of some thirty fails. Mutants are made in a
copy of the source, and the working tree stays as it is.

A survivor is printed with its line. Some of them change nothing: read them before you count them.
"""

from __future__ import annotations

import ast
import copy
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]
SAMPLE, SECONDS = 30, 600
CORE_TESTS = ("tests/end_to_end/test_dry_run.py", "tests/test_conformance.py")
COMPARE: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult,
    ast.FloorDiv: ast.Div, ast.Mod: ast.Mult, ast.Pow: ast.Mult,
}  # fmt: skip


class Mutant(NamedTuple):
    """A changed file."""

    path: Path
    line: int
    source: str


def changed(node: ast.AST) -> ast.AST | None:
    """Return another node in place of this one; None if there is nothing to change."""
    new: Any = copy.deepcopy(node)
    match new:
        case ast.Compare(ops=[op]):
            new.ops = [COMPARE[type(op)]()]
        case ast.BoolOp(op=op):
            new.op = ast.Or() if isinstance(op, ast.And) else ast.And()
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            new = operand
        case ast.BinOp(op=op, left=left) if type(op) in ARITHMETIC:
            if isinstance(left, ast.Constant | ast.JoinedStr):
                return None
            new.op = ARITHMETIC[type(op)]()
        case ast.AugAssign(op=ast.Add() | ast.Sub() as op):
            new.op = ARITHMETIC[type(op)]()
        case ast.Constant(value=bool(value)):
            new.value = not value
        case ast.Constant(value=int(value)):
            new.value = value + 1
        case ast.Constant(value=float(value)):
            new.value = 2 * value + 1
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
            new.test = ast.UnaryOp(ast.Not(), test)
        case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
            new.value = ast.Constant(None)
        case ast.Expr(value=ast.Call() | ast.Await()):
            new = ast.Pass()
        case ast.Continue():
            new = ast.Break()
        case ast.Break():
            new = ast.Continue()
        case _:
            return None
    result: ast.AST = new
    return result


def places(tree: ast.AST) -> Iterator[tuple[ast.AST, Callable[[ast.AST], None]]]:
    """Yield nodes and how to replace each, leaving out types, messages and decorators."""
    for name, value in ast.iter_fields(tree):
        if name in ("annotation", "returns", "decorator_list", "type_params"):
            continue
        for i, node in enumerate(value) if isinstance(value, list) else [(None, value)]:
            if not isinstance(node, ast.AST) or isinstance(
                node, ast.Raise | ast.Assert | ast.JoinedStr
            ):
                continue
            if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
                continue

            def replace(new: ast.AST, name: str = name, i: int | None = i) -> None:
                if i is None:
                    setattr(tree, name, new)
                else:
                    getattr(tree, name)[i] = new

            yield node, replace
            yield from places(node)


def mutants(folder: Path, count: int, seed: int) -> Iterator[Mutant]:
    """Yield random mutants of the files in a folder."""
    trees = {path: ast.parse(path.read_text()) for path in sorted(folder.rglob("*.py"))}
    pool = [
        (path, node, new, replace)
        for path, tree in trees.items()
        if path.name != "plugin.py" and not path.stem.endswith("_pb2")
        for node, replace in places(tree)
        if (new := changed(node)) is not None
    ]
    random.Random(seed).shuffle(pool)
    lines: set[tuple[Path, int]] = set()
    for path, node, new, replace in pool:
        line: int = node.lineno  # type: ignore[attr-defined]
        if (path, line) in lines or len(lines) == count:
            continue
        lines.add((path, line))
        replace(new)
        yield Mutant(path, line, ast.unparse(ast.fix_missing_locations(trees[path])))
        replace(node)


class Tests:
    """The tests of a member, run on a copy of its source."""

    def __init__(self, member: str, copied: Path) -> None:
        self.all = [f"tests/{member}", *(CORE_TESTS if member == "core" else ())]
        self.copied, self.data = copied, copied.with_name("coverage")
        self.env = {**os.environ, "PYTHONPATH": str(copied), "PYTHONDONTWRITEBYTECODE": "1"}

    def measure(self) -> None:
        """Run all tests once, and record which of them reach which line."""
        command = ["coverage", "run", f"--source={self.copied}", f"--data-file={self.data}", "-m"]
        self._run(command, ["-p", "tests.benchmarks.mutants", *self.all], caught=False)

    def reaching(self, mutant: Mutant) -> list[str]:
        """Return the tests that reach the line of a mutant."""
        query = (
            "select context, numbits from line_bits join context on context.id = context_id "
            "join file on file.id = file_id where path = ?"
        )
        byte, bit = divmod(mutant.line, 8)
        with sqlite3.connect(self.data) as database:
            rows = database.execute(query, (str(mutant.path),)).fetchall()
        # Without the parameters in brackets, which pytest does not always read back.
        names = (
            name.partition("[")[0] for name, bits in rows if bits[byte:] and bits[byte] >> bit & 1
        )
        return sorted({name for name in names if name})

    def pass_on(self, mutant: Mutant) -> bool:
        """Return whether no test fails on a mutant."""
        tests = self.reaching(mutant)
        original = mutant.path.read_text()
        mutant.path.write_text(mutant.source)
        try:
            if 0 < len(tests) <= SAMPLE:
                return self._run([], tests)
            sample = random.Random(mutant.line).sample(tests, min(SAMPLE, len(tests)))
            return (not sample or self._run([], sample)) and self._run([], self.all)
        finally:
            mutant.path.write_text(original)

    def _run(self, before: list[str], tests: list[str], caught: bool = True) -> bool:
        command = [sys.executable, "-m", *before, "pytest", "-q", "-x", "-n0", *tests]
        options = ["-p", "no:cacheprovider", "--tb=line", "-W", "ignore"]
        try:
            done = subprocess.run(
                [*command, *options], cwd=ROOT, env=self.env, capture_output=True, timeout=SECONDS
            )
        except subprocess.TimeoutExpired:
            return False
        # Below 0 is a signal, as when memory is used up; 2 is a failed import: both are caught.
        # Else nothing was tried.
        if done.returncode > 2 or (done.returncode and not caught):
            sys.exit(f"pytest ended with {done.returncode}:\n{done.stdout.decode()[-2000:]}")
        return done.returncode == 0


def pytest_runtest_setup(item: Any) -> None:
    """Tell coverage which test runs; this file is loaded as a plugin of pytest."""
    coverage = sys.modules.get("coverage")
    if coverage is not None and (current := coverage.Coverage.current()) is not None:
        current.switch_context(item.nodeid)


def arguments(words: list[str]) -> tuple[str, int, int]:
    """Return the member, the number of mutants and the seed; end with the usage if one is wrong."""
    member, *numbers = [*words, *("", "40", "1")[len(words) :]]
    known = member and (ROOT / member / "src").is_dir()
    if not known or len(numbers) != 2 or not all(number.isdecimal() for number in numbers):
        sys.exit(f"{' '.join(words)!r}: expected MEMBER [COUNT [SEED]]\n\n{__doc__}")
    return member, int(numbers[0]), int(numbers[1])


def main(member: str, count: int, seed: int) -> None:
    """Print the survivors, and how many were caught."""
    with tempfile.TemporaryDirectory() as folder:
        copied = Path(folder).resolve() / "src"
        shutil.copytree(
            ROOT / member / "src", copied, ignore=shutil.ignore_patterns("__pycache__", "_scaffold")
        )
        tests = Tests(member, copied)
        tests.measure()
        caught = drawn = 0
        for mutant in mutants(copied, count, seed):
            drawn += 1
            if not tests.pass_on(mutant):
                caught += 1
                continue
            text = mutant.path.read_text().splitlines()[mutant.line - 1].strip()
            print(f"survived: {mutant.path.relative_to(copied)}:{mutant.line}: {text}", flush=True)
        print(f"{member}: {caught} of {drawn} mutants caught")


if __name__ == "__main__":
    main(*arguments(sys.argv[1:]))
