"""Static measures of a program by ruff, radon and mypy, each one subprocess, none running it.

    ruff        10 / (10 + findings)
    complexity  of the worst function: 1 up to the problem's reference, then reference / complexity
    types       1 if every function says its types and `mypy --strict` accepts the program, else 0

They count findings and take the worst function, so that no added line raises a measure; a share of
lines could be raised by padding. All of the program counts, called or not. A program that hides
code from the tools, by `exec` or by looking up functions in `globals()`, measures 0.

Comments that would silence a tool have no effect. If a tool fails on a program, the measure is 0;
if it cannot be started, that is an error of the installation.
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

Measure = Literal["ruff", "complexity", "types"]
RULES = "E,F,W,B,C4,SIM,UP,RET,PIE,PERF,A001,A002,ARG,S102,S307"
SECONDS = 30.0
_HALVING = 10  # so many findings halve the measure
_MODULES: Mapping[Measure, str] = {"ruff": "ruff", "complexity": "radon", "types": "mypy"}


@contextmanager
def opened_tools(measures: Sequence[Measure]) -> Iterator[StaticTools]:
    """Yield the tools of these measures, with a folder of their own for caches.

    Raises:
        UsageError: a tool is not installed.
    """
    tools = [_MODULES[measure] for measure in measures]
    missing = next((tool for tool in tools if find_spec(tool) is None), None)
    if missing is not None:
        raise UsageError(
            f"the measure by {missing} needs {missing}, which is not installed here; "
            "install it, or leave the measure out of `measures`"
        )
    with tempfile.TemporaryDirectory(prefix="orchestrion-static-") as folder:
        yield StaticTools(measures, Path(folder))


class StaticTools:
    """Static tools that measure programs.

    Args:
        measures: what to measure.
        folder: for the program that mypy reads, and mypy's cache.
    """

    def __init__(self, measures: Sequence[Measure], folder: Path) -> None:
        self._measures, self._folder = tuple(measures), folder
        self._slots = asyncio.Semaphore(2)
        self._mypy = asyncio.Lock()  # mypy's cache has one entry for every program's module

    async def measure(self, code: str, complexity: int) -> dict[str, float]:
        """Return every measure of a program, from 0 to 1.

        Args:
            code: the program.
            complexity: the reference of the problem.
        """
        try:
            tree = ast.parse(code)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            tree = None
        if tree is None or _hides(tree):
            return dict.fromkeys(self._measures, 0.0)
        work = {
            "ruff": lambda: self._ruff(code),
            "complexity": lambda: self._complexity(code, complexity),
            "types": lambda: self._types(code, tree),
        }
        values = await asyncio.gather(*(work[name]() for name in self._measures))
        return dict(zip(self._measures, values, strict=True))

    async def _ruff(self, code: str) -> float:
        arguments = (
            "ruff", "check", "--isolated", "--ignore-noqa", "--no-cache", "--select", RULES,
            "--target-version", "py311", "--line-length", "100", "--output-format", "json", "-",
        )  # fmt: skip
        async with self._slots:
            findings = _json(await _run(arguments, code, (0, 1)))
        if not isinstance(findings, list):
            return 0.0
        return _HALVING / (_HALVING + len(findings))

    async def _complexity(self, code: str, reference: int) -> float:
        async with self._slots:
            report = _json(await _run(("radon", "cc", "-j", "-"), code, (0,)))
        blocks = report.get("-") if isinstance(report, dict) else None
        if not isinstance(blocks, list):
            return 0.0
        worst = max((int(block["complexity"]) for block in blocks), default=1)
        return min(1.0, max(reference, 1) / worst)

    async def _types(self, code: str, tree: ast.Module) -> float:
        if not _says_types(tree):
            return 0.0
        async with self._mypy:
            file = self._folder / "solution.py"
            await asyncio.to_thread(file.write_text, _without_comments(code), "utf-8")
            arguments = (
                "mypy", "--strict", "--disallow-any-explicit", "--config-file=", "--output=json",
                "--no-site-packages", f"--cache-dir={self._folder / 'cache'}", "--no-incremental"
                if sys.platform == "win32" else "--sqlite-cache", file.name,
            )  # fmt: skip
            output = await _run(arguments, "", (0, 1), self._folder)
        return 0.0 if output is None or _complains(output) else 1.0


def _says_types(tree: ast.Module) -> bool:
    """Return whether there is a function, and all functions have type annotations.

    This is checked here too because mypy skips branches that it considers unreachable. A lambda is
    only allowed as an argument of a call, whose parameter has a type.
    """
    nodes = list(ast.walk(tree))
    methods = {part for n in nodes if isinstance(n, ast.ClassDef) for part in n.body}
    given: set[ast.expr] = set()
    for call in nodes:
        if isinstance(call, ast.Call):
            given.update(call.args, (keyword.value for keyword in call.keywords))
    functions = [n for n in nodes if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    lambdas = [n for n in nodes if isinstance(n, ast.Lambda) and n not in given]
    return bool(functions) and not lambdas and all(_typed(n, n in methods) for n in functions)


def _typed(function: ast.FunctionDef | ast.AsyncFunctionDef, method: bool) -> bool:
    a = function.args
    names = {d.id for d in function.decorator_list if isinstance(d, ast.Name)}
    positional = [*a.posonlyargs, *a.args]
    if method and "staticmethod" not in names:
        positional = positional[1:]  # `self` needs no annotation
    arguments = [*positional, *a.kwonlyargs, *filter(None, (a.vararg, a.kwarg))]
    returns = function.returns is not None or (method and function.name == "__init__")
    return returns and all(argument.annotation is not None for argument in arguments)


def _complains(output: str) -> bool:
    """Return whether mypy found an error, other than a library without types."""
    errors = [message for row in output.splitlines() if isinstance(message := _json(row), dict)]
    return any(
        message.get("severity") == "error" and not str(message.get("code")).startswith("import")
        for message in errors
    )


_HIDING = frozenset(
    "exec eval compile globals locals vars __import__ __builtins__ builtins importlib marshal "
    "__code__ __globals__ __closure__ no_type_check".split()
)
_ASSUMED = frozenset(("TYPE_CHECKING", "MYPY"))  # what mypy takes for true, and Python for false


def _hides(tree: ast.Module) -> bool:
    """Return whether a program runs code that the tools cannot read."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Load()) if name in _HIDING:
                return True
            case ast.Attribute(attr=name) if name in _HIDING and "_" in name:
                return True
            case ast.If() if _names(node.test) & _ASSUMED:
                imports = (ast.Import, ast.ImportFrom)
                if not all(isinstance(part, imports) for part in (*node.body, *node.orelse)):
                    return True
            case ast.Import(names) | ast.ImportFrom(names=names):
                module = getattr(node, "module", None) or ""
                modules = [module, *(alias.name for alias in names)]
                if any(part.partition(".")[0] in _HIDING for part in modules):
                    return True
    return False


def _names(expression: ast.expr) -> set[str]:
    nodes = list(ast.walk(expression))
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    return names | {node.attr for node in nodes if isinstance(node, ast.Attribute)}


def _without_comments(code: str) -> str:
    """Return the program without its comments; each line keeps its number."""
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
    """Return the output of a tool; None if it failed on the program or took too long."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-I", "-m", *arguments,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL, cwd=folder,
    )  # fmt: skip
    try:
        async with asyncio.timeout(SECONDS):
            output, _ = await process.communicate(stdin.encode())
    except TimeoutError:
        return None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return output.decode("utf-8", "replace") if process.returncode in fine else None
