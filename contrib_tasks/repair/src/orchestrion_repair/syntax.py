"""What stands on each line of a program, in words."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import lru_cache

from orchestrion_repair.ranking import Program


@lru_cache(maxsize=2_000)
def line_syntax(program: Program) -> dict[int, frozenset[str]]:
    """Return what stands on each line, by the line's first statement."""
    if program.source is None:
        return {}
    words_by_line: dict[int, frozenset[str]] = {}
    for place in program.source.places:
        node = place.node
        words = set(_statement_words(node))
        if place.loop:
            words.add("in loop")
        if place.owner is place.function and place.index <= 1:
            words.add("first line")
        if place.index == len(place.block) - 1:
            words.add("last in block")
        words_by_line.setdefault(node.lineno, frozenset(words))
    for site in program.source.sites:
        words = set(_expression_words(site.node))
        if words:
            words_by_line[site.line] = words_by_line.get(site.line, frozenset()) | words
    return words_by_line


def _statement_words(node: ast.stmt) -> Iterator[str]:
    names = {
        ast.If: "if", ast.While: "while", ast.For: "for", ast.Return: "return",
        ast.Assign: "assign", ast.AugAssign: "augmented", ast.Expr: "call statement",
    }  # fmt: skip
    for kind, name in names.items():
        if isinstance(node, kind):
            yield name


def _expression_words(node: ast.expr) -> Iterator[str]:
    match node:
        case ast.Compare():
            yield "compare"
        case ast.BoolOp():
            yield "boolean"
        case ast.BinOp():
            yield "arithmetic"
        case ast.Call():
            yield "call"
        case ast.Subscript(slice=ast.Slice()):
            yield "slice"
        case ast.Subscript():
            yield "subscript"
        case ast.Constant(str()):
            yield "text"
        case ast.Constant(int() | float()):
            yield "number"
        case ast.ListComp() | ast.GeneratorExp() | ast.SetComp() | ast.DictComp():
            yield "comprehension"
        case ast.UnaryOp(ast.Not()):
            yield "not"
        case ast.Tuple():
            yield "tuple"
