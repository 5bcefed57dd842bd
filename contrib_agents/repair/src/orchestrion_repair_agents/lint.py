"""The agent that reads the program without running it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import pairwise

from attrs import frozen

from orchestrion import JSON, Agent, Calls, Key, Output, View, no_calls
from orchestrion_repair_agents.workplace import NOTHING, work_of

Function = ast.FunctionDef | ast.AsyncFunctionDef


@frozen
class Lint(Agent):
    """Names lines that look odd; costs nothing, since no test is run.

    It finds names that are set and never used, parameters that are not used, statements without
    effect or out of reach, comparisons of a thing with itself, and loops that always end in their
    first round. Odd lines count as a little more suspicious.
    """

    role = "names lines that look odd"
    pure = True
    ceiling = no_calls

    def memo(self, view: View) -> JSON:
        """Return the program."""
        work = work_of(view)
        return None if work is None else work["code"]

    async def act(self, view: View, key: Key, calls: Calls) -> Output:
        """Read the program."""
        work = work_of(view)
        if work is None:
            return NOTHING
        try:
            tree = ast.parse(work["code"])
        except SyntaxError as error:
            return Output(f"Line {error.lineno}: {error.msg}.")
        odd_lines = list(findings(tree))
        lines = [f"Line {line}: {what}." for line, what in odd_lines] or ["Nothing looks odd."]
        report: dict[str, JSON] = {"tool": "lint", "on": work["on"], "findings": odd_lines}
        return Output("\n".join(lines), report)


def findings(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield odd lines with what is odd about them, each once, in order."""
    odd_lines: set[tuple[int, str]] = set()
    for node in ast.walk(tree):
        odd_lines.update(_unused(node), _odd(node), _unreachable(node))
    yield from sorted(odd_lines)


def _unused(function: ast.AST) -> Iterator[tuple[int, str]]:
    if not isinstance(function, Function):
        return
    names = [node for node in ast.walk(function) if isinstance(node, ast.Name)]
    loaded = {node.id for node in names if isinstance(node.ctx, ast.Load)}
    for node in names:
        if isinstance(node.ctx, ast.Store) and node.id not in loaded and node.id[0] != "_":
            yield node.lineno, f"`{node.id}` is set and never used"
    for parameter in function.args.args:
        if parameter.arg not in loaded and parameter.arg not in ("self", "cls"):
            yield function.lineno, f"parameter `{parameter.arg}` is not used"


def _odd(node: ast.AST) -> Iterator[tuple[int, str]]:
    match node:
        case ast.Compare(left, _, [right]) if ast.dump(left) == ast.dump(right):
            yield node.lineno, "compares a thing with itself"
        case ast.BinOp(left, ast.Sub() | ast.FloorDiv() | ast.Mod(), right):
            if ast.dump(left) == ast.dump(right):
                yield node.lineno, "an operation of a thing with itself"
        case ast.Assign([ast.Name(target)], ast.Name(value)) if target == value:
            yield node.lineno, "sets a name to itself"
        case ast.Expr(ast.Compare() | ast.BinOp() | ast.Name()):
            yield node.lineno, "a statement without effect"
        case ast.For(body=[*_, last]) | ast.While(body=[*_, last]):
            if isinstance(last, ast.Return | ast.Break):
                yield last.lineno, "the loop ends in its first round"


def _unreachable(node: ast.AST) -> Iterator[tuple[int, str]]:
    for name in ("body", "orelse", "finalbody"):
        block = getattr(node, name, None)
        for before, after in pairwise(block) if isinstance(block, list) else ():
            if isinstance(before, ast.Return | ast.Break | ast.Continue | ast.Raise):
                yield after.lineno, "out of reach"
