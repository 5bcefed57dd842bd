"""Whether one small edit of the syntax tree turns one source into another.

An edit replaces one name, constant or operator; swaps two operands or arguments; wraps an
expression, unwraps it, or adds or removes an operand; replaces a small expression by another;
inserts, deletes or moves one statement; or puts statements into an `if`, or out of it. Whether an
agent has such an edit, and tries it in time, is another question.
"""

from __future__ import annotations

import ast
from functools import lru_cache
from typing import Any

SMALL = 8
"""Syntax tree nodes that one edit may invent."""


def one_edit(before: str, after: str) -> bool:
    """Whether one edit leads from one source to the other; it is symmetric."""
    a, b = _tree(before), _tree(after)
    return _near(a, b) or _one_statement_moved(a, b)


def shape(source: str) -> str:
    """A text that two sources share if they differ in comments and layout only."""
    return _text(_tree(source))


@lru_cache(maxsize=16)
def _tree(source: str) -> ast.Module:
    return ast.parse(source)


def _near(a: Any, b: Any) -> bool:
    """Whether two different nodes, or field values, are one edit apart."""
    if isinstance(a, list) and isinstance(b, list):
        return _near_lists(a, b)
    if not isinstance(a, ast.AST) or not isinstance(b, ast.AST):
        return not isinstance(a, list) and not isinstance(b, list) and _size(a) + _size(b) <= SMALL
    if type(a) is type(b):
        fields = [name for name in a._fields if _text(getattr(a, name)) != _text(getattr(b, name))]
        if len(fields) == 1 and _near(getattr(a, fields[0]), getattr(b, fields[0])):
            return True
        if _swapped(a, b, fields):
            return True
    return _replaced(a, b) or _wrapped(a, b) or _wrapped(b, a)


def _near_lists(a: list[Any], b: list[Any]) -> bool:
    start = 0
    while start < min(len(a), len(b)) and _text(a[start]) == _text(b[start]):
        start += 1
    end = 0
    while end < min(len(a), len(b)) - start and _text(a[-1 - end]) == _text(b[-1 - end]):
        end += 1
    a, b = a[start : len(a) - end], b[start : len(b) - end]
    if not a or not b:
        return len(a) + len(b) == 1
    if len(a) == len(b) == 1 and _near(a[0], b[0]):
        return True
    return _moved(a, b) or _guarded(a, b) or _guarded(b, a)


def _moved(a: list[Any], b: list[Any]) -> bool:
    """One element is at another place."""
    texts, others = [_text(item) for item in a], [_text(item) for item in b]
    if len(a) == 2 and texts == others[::-1]:
        return True
    return texts[1:] + texts[:1] == others or texts[-1:] + texts[:-1] == others


def _guarded(a: list[Any], b: list[Any]) -> bool:
    """The statements of one are a branch of an `if` in the other."""
    if len(a) != 1 or not isinstance(a[0], ast.If):
        return False
    return _text(b) in (_text(a[0].body), _text(a[0].orelse))


def _swapped(a: ast.AST, b: ast.AST, fields: list[str]) -> bool:
    """Two fields of one kind have changed places: operands, or the branches of a choice."""
    if len(fields) != 2:
        return False
    one, two = fields
    return _text(getattr(a, one)) == _text(getattr(b, two)) and _text(getattr(a, two)) == _text(
        getattr(b, one)
    )


def _replaced(a: ast.AST, b: ast.AST) -> bool:
    """Both are small, or statements that differ in their kind only."""
    if isinstance(a, ast.stmt) or isinstance(b, ast.stmt):
        return _same_parts(a, b)
    return type(a).__base__ is type(b).__base__ and _size(a) + _size(b) <= SMALL


def _same_parts(a: ast.AST, b: ast.AST) -> bool:
    """`x += 1` and `x = 1`, `while` and `if`, `break` and `continue`."""
    skipped = (ast.expr_context, ast.operator)
    parts = [
        [_text(child) for child in ast.iter_child_nodes(node) if not isinstance(child, skipped)]
        for node in (a, b)
    ]
    return isinstance(a, ast.stmt) and isinstance(b, ast.stmt) and parts[0] == parts[1]


def _wrapped(whole: ast.AST, part: ast.AST) -> bool:
    """One is somewhere in the other, which adds little."""
    if not isinstance(whole, ast.expr) or not isinstance(part, ast.expr):
        return False
    text = _text(part)
    inside = any(_text(node) == text for node in ast.walk(whole) if node is not whole)
    return (inside and _size(whole) - _size(part) <= SMALL) or _operand(whole, part)


def _operand(whole: ast.expr, part: ast.expr) -> bool:
    """`part` lacks an operand of an `and`, or a comparison of a chain."""
    if isinstance(whole, ast.BoolOp):
        rests = [[v for v in whole.values if v is not gone] for gone in whole.values]
        for rest in rests:
            left = rest[0] if len(rest) == 1 else ast.BoolOp(whole.op, rest)
            if _text(left) == _text(part):
                return True
    if isinstance(whole, ast.Compare) and len(whole.ops) == 2:
        first = ast.Compare(whole.left, whole.ops[:1], whole.comparators[:1])
        second = ast.Compare(whole.comparators[0], whole.ops[1:], whole.comparators[1:])
        return _text(part) in (_text(first), _text(second))
    return False


def _one_statement_moved(a: ast.Module, b: ast.Module) -> bool:
    """The same statements, and without one of them the trees are equal."""
    if sorted(map(_text, _simple(a))) != sorted(map(_text, _simple(b))):
        return False
    return not _deletions(a).isdisjoint(_deletions(b))


def _simple(tree: ast.Module) -> list[ast.stmt]:
    return [line for block in _blocks(tree) for line in block if not hasattr(line, "body")]


def _deletions(tree: ast.Module) -> set[str]:
    """The tree without any one of its statements, and that statement; it is as before then."""
    deletions = set()
    for block in _blocks(tree):
        for number, statement in enumerate(list(block)):
            del block[number]
            deletions.add(f"{_text(statement)}\n{ast.dump(tree)}")  # nothing remembered is true now
            block.insert(number, statement)
    return deletions


def _blocks(tree: ast.AST) -> list[list[ast.stmt]]:
    names = ("body", "orelse", "finalbody")
    blocks = [getattr(node, name, None) for node in ast.walk(tree) for name in names]
    return [block for block in blocks if isinstance(block, list)]


def _size(value: Any) -> int:
    if not isinstance(value, ast.AST):
        return 1
    skipped = (ast.expr_context, ast.operator, ast.cmpop, ast.boolop, ast.unaryop)
    return sum(not isinstance(node, skipped) for node in ast.walk(value))


def _text(value: Any) -> str:
    """What `ast.dump` says, remembered in each node: a tree is asked for its parts many times."""
    if isinstance(value, list):
        return "[" + ", ".join(map(_text, value)) + "]"
    if not isinstance(value, ast.AST):
        return repr(value)
    known: str | None = value.__dict__.get("_known")
    if known is None:
        parts = ", ".join(_text(getattr(value, name, None)) for name in value._fields)
        known = value.__dict__["_known"] = f"{type(value).__name__}({parts})"
    return known
