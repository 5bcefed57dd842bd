"""What stands on each line of a program, in words."""

from __future__ import annotations

import ast
from functools import lru_cache

from orchestrion_repair.ranking import Program

_WORDS: dict[type[ast.AST], str] = {
    ast.If: "if", ast.While: "while", ast.For: "for", ast.Return: "return", ast.Assign: "assign",
    ast.AugAssign: "augmented", ast.Expr: "call statement", ast.Compare: "compare",
    ast.BoolOp: "boolean", ast.BinOp: "arithmetic", ast.Call: "call", ast.Tuple: "tuple",
    ast.Subscript: "subscript", ast.ListComp: "comprehension", ast.SetComp: "comprehension",
    ast.DictComp: "comprehension", ast.GeneratorExp: "comprehension",
}  # fmt: skip


@lru_cache(maxsize=2_000)
def line_syntax(program: Program) -> dict[int, frozenset[str]]:
    """Return what stands on each line, by the line's first statement."""
    if program.source is None:
        return {}
    words_by_line: dict[int, frozenset[str]] = {}
    for place in program.source.places:
        node = place.node
        words = {_word(node)} - {""}
        if place.loop:
            words.add("in loop")
        if place.owner is place.function and place.index <= 1:
            words.add("first line")
        if place.index == len(place.block) - 1:
            words.add("last in block")
        words_by_line.setdefault(node.lineno, frozenset(words))
    for site in program.source.sites:
        if word := _word(site.node):
            words_by_line[site.line] = words_by_line.get(site.line, frozenset()) | {word}
    return words_by_line


def _word(node: ast.AST) -> str:
    """Return what a statement or an expression is; "" if there is no word for it."""
    match node:
        case ast.Subscript(slice=ast.Slice()):
            return "slice"
        case ast.Constant(str()):
            return "text"
        case ast.Constant(int() | float()):
            return "number"
        case ast.UnaryOp(ast.Not()):
            return "not"
    return _WORDS.get(type(node), "")
