"""Rewrites a program so that a run can be counted and followed, by its lines as written.

`FUEL` is called at the start of every loop body and function body: when it runs out the run is
over. That bounds a program that never ends by a number of steps, which no clock, load or machine
can change. `LINE` is called before every statement with its first line, which tells what a test
covers. Only the standard library is imported here: the processes that run candidates are small.
"""

from __future__ import annotations

import ast
from typing import Any

__all__ = ["FUEL", "LINE", "instrument"]

FUEL, LINE = "__fuel__", "__line__"
_LOOPS = (ast.For, ast.While, ast.AsyncFor)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def instrument(tree: ast.Module, lines: bool = False) -> ast.Module:
    """The same program with calls of `FUEL`, and of `LINE` if `lines`; changes `tree`."""
    _block(tree.body, lines)
    return tree


def _block(block: list[ast.stmt], lines: bool) -> None:
    for node in block:
        for name in ("body", "orelse", "finalbody"):
            inner = getattr(node, name, None)
            if inner:
                _block(inner, lines)
        for part in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
            _block(part.body, lines)
        # After the lines of the inner blocks, so that no line call stands for fuel.
        if isinstance(node, _LOOPS):
            node.body.insert(0, _call(FUEL, node))
        elif isinstance(node, _FUNCTIONS):
            node.body.insert(int(_is_text(node.body[0])), _call(FUEL, node))
    if lines:
        block[:] = [new for old in block for new in _with_line(old)]


def _with_line(node: ast.stmt) -> tuple[ast.stmt, ...]:
    if _is_text(node) or (isinstance(node, ast.ImportFrom) and node.module == "__future__"):
        return (node,)
    return _call(LINE, node, node.lineno), node


def _is_text(node: ast.stmt) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def _call(name: str, where: ast.stmt, *arguments: int) -> ast.Expr:
    place: Any = {
        "lineno": where.lineno,
        "col_offset": where.col_offset,
        "end_lineno": where.lineno,
        "end_col_offset": where.col_offset,
    }
    constants: list[ast.expr] = [ast.Constant(value, **place) for value in arguments]
    function = ast.Name(name, ast.Load(), **place)
    return ast.Expr(ast.Call(function, constants, [], **place), **place)
