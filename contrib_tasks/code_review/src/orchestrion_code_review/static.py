"""Static measures of a program by ruff, radon and mypy, each one subprocess, none running it.

    ruff        share of the lines of code without a finding
    complexity  1 up to the problem's reference, above it reference / complexity
    types       share of the lines of functions that `mypy --strict` accepts; of a function without
                types, no line counts

Comments that would silence a tool count as no comments. A tool that ends in an error on a program
has measured 0; one that cannot be started is an error of the installation.
"""

from __future__ import annotations

import ast
import asyncio
import io
import json
import sys
import tempfile
import tokenize
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from orchestrion import UsageError

__all__ = ["Measure", "StaticTools"]

Measure = Literal["ruff", "complexity", "types"]
RULES = "E,F,W,B,C4,SIM,UP,RET,PIE,PERF,A001,A002,ARG,S102,S307"
SECONDS = 30.0
_MODULES: Mapping[Measure, str] = {"ruff": "ruff", "complexity": "radon", "types": "mypy"}


class StaticTools:
    """The tools, with a folder of their own for caches. Open it with `with`."""

    def __init__(self, measures: Sequence[Measure]) -> None:
        missing = [_MODULES[one] for one in measures if find_spec(_MODULES[one]) is None]
        if missing:
            raise UsageError(
                f"the measure by {missing[0]} needs {missing[0]}, which is not installed here; "
                "install it, or leave the measure out of `measures`"
            )
        self._measures = tuple(measures)
        self._some = asyncio.Semaphore(2)
        self._one = asyncio.Lock()  # mypy's cache has one entry for every program's module
        self._folder: Path | None = None

    @contextmanager
    def opened(self) -> Iterator[StaticTools]:
        """With a place for mypy's cache."""
        with tempfile.TemporaryDirectory(prefix="orchestrion-static-") as folder:
            self._folder = Path(folder)
            yield self

    async def measure(self, code: str, complexity: int) -> dict[str, float]:
        """Every measure of a program, from 0 to 1.

        Args:
            code: the program.
            complexity: the reference of the problem.
        """
        try:
            tree = ast.parse(code)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return dict.fromkeys(self._measures, 0.0)
        work = {
            "ruff": lambda: self._ruff(code),
            "complexity": lambda: self._complexity(code, complexity),
            "types": lambda: self._types(code, tree),
        }
        found = await asyncio.gather(*(work[one]() for one in self._measures))
        return dict(zip(self._measures, found, strict=True))

    async def _ruff(self, code: str) -> float:
        arguments = (
            "ruff", "check", "--isolated", "--ignore-noqa", "--no-cache", "--select", RULES,
            "--target-version", "py311", "--line-length", "100", "--output-format", "json", "-",
        )  # fmt: skip
        async with self._some:
            found = _json(await _run(arguments, code, (0, 1)))
        if not isinstance(found, list):
            return 0.0
        bad = {one["location"]["row"] for one in found}
        lines = _lines(code)
        return len(lines - bad) / len(lines) if lines else 0.0

    async def _complexity(self, code: str, reference: int) -> float:
        async with self._some:
            found = _json(await _run(("radon", "cc", "-j", "-"), code, (0,)))
        blocks = found.get("-") if isinstance(found, dict) else None
        if not isinstance(blocks, list):
            return 0.0
        most = max((int(one["complexity"]) for one in blocks), default=1)
        return min(1.0, max(reference, 1) / most)

    async def _types(self, code: str, tree: ast.Module) -> float:
        if self._folder is None:
            raise RuntimeError("open the tools before measuring types")
        functions = [n for n in ast.walk(tree) if isinstance(n, _FUNCTIONS)]
        lines = {line for one in functions for line in _span(one)} & _lines(code)
        if not lines:
            return 0.0
        async with self._one:
            file = self._folder / "solution.py"
            await asyncio.to_thread(file.write_text, _without_comments(code), "utf-8")
            arguments = (
                "mypy", "--strict", "--disallow-any-explicit", "--config-file=", "--output=json",
                "--no-site-packages", f"--cache-dir={self._folder / 'cache'}", "--no-incremental"
                if sys.platform == "win32" else "--sqlite-cache", file.name,
            )  # fmt: skip
            said = await _run(arguments, "", (0, 1), self._folder)
        if said is None:
            return 0.0
        bad = _bad_lines(said, functions)
        return 0.0 if bad is None else len(lines - bad) / len(lines)


_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def _bad_lines(said: str, functions: Sequence[Any]) -> set[int] | None:
    """Lines with a complaint; all of a function that has no types. None: it could not be read."""
    bad: set[int] = set()
    for row in said.splitlines():
        one = _json(row)
        if not isinstance(one, dict) or one.get("severity") != "error":
            continue
        line, kind = int(one["line"]), one.get("code")
        if kind == "syntax":
            return None
        bad.add(line)
        if kind in ("no-untyped-def", "untyped-decorator"):
            for function in functions:
                if function.lineno == line:
                    bad |= _span(function)
    return bad


def _span(node: Any) -> set[int]:
    return set(range(node.lineno, (node.end_lineno or node.lineno) + 1))


def _lines(code: str) -> set[int]:
    """The numbers of lines with code on them."""
    rows = enumerate(_without_comments(code).split("\n"), start=1)
    return {number for number, row in rows if row.strip()}


def _without_comments(code: str) -> str:
    """The program with blanks for its comments: each line stays where it is."""
    rows = code.split("\n")
    try:
        for token in tokenize.generate_tokens(io.StringIO(code).readline):
            if token.type == tokenize.COMMENT:
                line, column = token.start
                rows[line - 1] = rows[line - 1][:column].rstrip()
    except (tokenize.TokenError, SyntaxError):
        return code
    return "\n".join(rows)


def _json(text: str | None) -> Any:
    try:
        return json.loads(text) if text else None
    except (ValueError, RecursionError):
        return None


async def _run(
    arguments: Sequence[str], stdin: str, fine: tuple[int, ...], folder: Path | None = None
) -> str | None:
    """What a tool prints; None if it failed, or took too long, over this program."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-I", "-m", *arguments,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL, cwd=folder,
    )  # fmt: skip
    try:
        async with asyncio.timeout(SECONDS):
            said, _ = await process.communicate(stdin.encode())
    except TimeoutError:
        return None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return said.decode("utf-8", "replace") if process.returncode in fine else None
