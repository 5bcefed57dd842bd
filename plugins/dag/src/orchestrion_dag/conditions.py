"""Conditions on edges and loops: a small language that can neither call nor change anything.

    data.score >= 0.8 and not ("draft" in review.data.labels)
    problem.category == 'trivial' or len(plan.data.steps) > 3

Values are paths, strings, numbers, `true`, `false`, `null` and lists of these; operators are `or`,
`and`, `not`, `== != < <= > >=`, `in` and `not in`; functions are `len` and `lower`. Evaluation
never fails: a missing value is null, and values of different types are unequal and unordered.

Python's parser reads the grammar; only the nodes in `_read` are accepted. Names may hold '-', ':'
and '#' (`run-tests`, `coder:fast#2`) and may be keywords of Python (`data.class`), so the parser
sees a copy of equal length in which every name, string and number is masked.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from typing import Any

from attrs import frozen

from orchestrion import JSON

Value = Callable[[Any], Any]
"""A compiled condition: takes a frame and returns the value there."""

MAX_LENGTH, MAX_DEPTH = 4000, 50
FUNCTIONS = ("len", "lower")


class ConditionError(ValueError):
    """Raised for a condition that cannot be read; `column` counts from 1."""

    def __init__(self, message: str, column: int) -> None:
        super().__init__(f"column {column}: {message}")
        self.column = column


@frozen
class Constant:
    """A string, number, boolean or null."""

    value: JSON


@frozen
class Path:
    """A name and the keys and positions to look up in its value, one after the other."""

    root: str
    parts: tuple[str | int, ...]
    column: int

    def __str__(self) -> str:
        return ".".join([self.root, *map(str, self.parts)])


@frozen
class Operation:
    """An operator, a function or `list`, applied to operands."""

    name: str
    operands: tuple[Condition, ...]
    column: int


Condition = Constant | Path | Operation

# ------------------------------------------------------------------------------------ reading

_TOKEN = re.compile(
    r"""\s*(?:
      (?P<number>-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?(?![\w.]))
    | (?P<text>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")
    | (?P<name>[A-Za-z_][\w-]*(?::[\w-]+)?(?:\#\d+)?(?![\w-]))
    | (?P<sign>==|!=|<=|>=|<|>|[()\[\],.])
    )""",
    re.X | re.S,
)
_WORDS = ("and", "or", "not", "in")
_CONSTANTS: dict[str, JSON] = {"true": True, "false": False, "null": None}
_COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.In: "in",
    ast.NotIn: "not in",
}


def parse(text: str) -> Condition:
    """Return the condition that a text stands for.

    Raises:
        ConditionError: it cannot be read; names the column.
    """
    if len(text) > MAX_LENGTH:
        raise ConditionError(f"longer than {MAX_LENGTH} characters", MAX_LENGTH + 1)
    masked, tokens = _masked(text)
    indent = len(masked) - len(masked.lstrip())
    try:
        tree = ast.parse(masked.lstrip(), mode="eval")
    except (SyntaxError, MemoryError, RecursionError) as error:
        # Python reports offset 0 where the text ends too early.
        offset = (getattr(error, "offset", None) or len(text) + 1) - 1 + indent
        start = min((at for at in tokens if at >= offset), default=len(text.rstrip()))
        problem = getattr(error, "msg", "")
        if "closed" not in problem and "unmatched" not in problem:
            problem = f"a value or an operator is missing before {tokens.get(start, 'the end')}"
        raise ConditionError(problem, start + 1) from None
    return _Reader(tokens, masked, indent).read(tree.body, 0)


def _masked(text: str) -> tuple[str, dict[int, str]]:
    """Return the text with names, strings and numbers masked, and its tokens by their offset."""
    masked, tokens = "", {}
    at, end, previous = 0, len(text.rstrip()), ""
    while at < end:
        match = _TOKEN.match(text, at)
        if match is None:
            at += len(text[at:]) - len(text[at:].lstrip())
            string = text[at] in "'\""
            what = "a string without an end" if string else f"{text[at]!r} has no meaning here"
            raise ConditionError(what, at + 1)
        kind, token = str(match.lastgroup), match[str(match.lastgroup)]
        tokens[match.start(kind)] = token
        if kind == "number":
            mask = ("-" if token[0] == "-" else "") + "1" * len(token.removeprefix("-"))
        elif kind == "text":
            mask = '"' + "_" * (len(token) - 2) + '"'
        elif kind == "name" and (token not in _WORDS or previous == "."):
            mask = "_" * len(token)
        else:
            mask = token
        masked += " " * (match.start(kind) - at) + mask
        at, previous = match.end(), token
    return masked, tokens


@frozen
class _Reader:
    """Turns nodes of Python's parser into conditions; real tokens are looked up by offset."""

    tokens: dict[int, str]
    masked: str
    indent: int

    def read(self, node: ast.expr, depth: int) -> Condition:
        at = node.col_offset + self.indent
        if depth > MAX_DEPTH:
            raise ConditionError(f"more than {MAX_DEPTH} levels deep", at + 1)
        match node:
            case ast.Constant():
                return Constant(self._constant(node, at))
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant()) if at in self.tokens:
                return Constant(_number(self.tokens[at]))
            case ast.UnaryOp(op=ast.Not(), operand=part):
                return Operation("not", (self.read(part, depth + 1),), at + 1)
            case ast.BoolOp(op=operator, values=values):
                name = "and" if isinstance(operator, ast.And) else "or"
                return Operation(name, self._each(values, depth), at + 1)
            case ast.Compare(left=left, ops=ops, comparators=comparators):
                column = self._after(left)
                if len(ops) > 1:
                    column = self._after(comparators[0])
                    raise ConditionError("compare two values at a time, joined by `and`", column)
                name = _COMPARISONS[type(ops[0])]
                return Operation(name, self._each([left, comparators[0]], depth), column)
            case ast.List(elts=elements):
                return Operation("list", self._each(elements, depth), at + 1)
            case ast.Call(func=function, args=arguments):
                name = self.tokens[at]
                if isinstance(function, ast.Name) and name in FUNCTIONS and len(arguments) == 1:
                    return Operation(name, self._each(arguments, depth), at + 1)
                functions = ", ".join(FUNCTIONS)
                called = name if isinstance(function, ast.Name) else "of that name"
                raise ConditionError(
                    f"no function {called} (there are: {functions}, of one value)",
                    self._after(function),
                )
            case ast.Name() | ast.Attribute() | ast.Subscript():
                return self._path(node)
        raise ConditionError(
            "only paths, constants, comparisons, len and lower are allowed", at + 1
        )

    def _each(self, nodes: list[ast.expr], depth: int) -> tuple[Condition, ...]:
        return tuple(self.read(node, depth + 1) for node in nodes)

    def _after(self, node: ast.expr) -> int:
        """Return the column of the operator that follows a node."""
        at = (node.end_col_offset or 0) + self.indent
        return at + len(self.masked[at:]) - len(self.masked[at:].lstrip(" )")) + 1

    def _constant(self, node: ast.Constant, at: int) -> JSON:
        token = self.tokens.get(at, "")
        if (node.end_col_offset or 0) + self.indent != at + len(token):
            raise ConditionError("an operator is missing between two values", at + 1)
        return _text(token) if token[0] in "'\"" else _number(token)

    def _path(self, node: ast.expr) -> Condition:
        parts: list[str | int] = []
        while not isinstance(node, ast.Name):
            if isinstance(node, ast.Attribute):
                end = (node.end_col_offset or 0) + self.indent
                parts.append(self.tokens[end - len(node.attr)])
            elif isinstance(node, ast.Subscript):
                at = node.slice.col_offset + self.indent
                key = (
                    self._constant(node.slice, at) if isinstance(node.slice, ast.Constant) else None
                )
                if not isinstance(key, (str, int)):
                    raise ConditionError("expected a position or a quoted key in [ ]", at + 1)
                parts.append(key)
            else:
                column = node.col_offset + self.indent + 1
                raise ConditionError("only a name can be followed by . or [", column)
            node = node.value
        at = node.col_offset + self.indent
        root = self.tokens[at]
        if root in _CONSTANTS and not parts:
            return Constant(_CONSTANTS[root])
        return Path(root, tuple(reversed(parts)), at + 1)


def _text(token: str) -> str:
    return re.sub(r"\\(.)", r"\1", token[1:-1], flags=re.S)


def _number(token: str) -> int | float:
    return float(token) if re.search("[.eE]", token) else int(token)


def paths(condition: Condition) -> Iterator[Path]:
    """Yield every path in a condition, from left to right."""
    if isinstance(condition, Path):
        yield condition
    elif isinstance(condition, Operation):
        for operand in condition.operands:
            yield from paths(operand)


# ------------------------------------------------------------------------------------ evaluating


def compiled(condition: Condition, root: Callable[[str], Value]) -> Value:
    """Return the function of a frame; `root` returns the function that finds a name in a frame."""
    match condition:
        case Constant(value=value):
            return lambda frame: value
        case Path(root=name, parts=parts):
            return _lookup(root(name), parts)
        case Operation(name=name, operands=operands):
            do, values = _OPERATIONS[name], [compiled(operand, root) for operand in operands]
            return lambda frame: do(*[value(frame) for value in values])


def _lookup(start: Value, parts: tuple[str | int, ...]) -> Value:
    def look(frame: Any) -> Any:
        value = start(frame)
        for part in parts:
            if isinstance(value, dict) and isinstance(part, str):
                value = value.get(part)
            elif isinstance(value, list | tuple) and isinstance(part, int):
                value = value[part] if 0 <= part < len(value) else None
            else:
                return None
        return value

    return look


def same(a: Any, b: Any) -> bool:
    """Return whether two values, and all inside them, are equal and of one type.

    `true` is not 1, as it is in Python.
    """
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    return isinstance(a, bool) == isinstance(b, bool) and bool(a == b)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _ordered(a: Any, b: Any) -> bool:
    strings = isinstance(a, str) and isinstance(b, str)
    return strings or (_is_number(a) and _is_number(b))


def _within(a: Any, b: Any) -> bool:
    if isinstance(b, str | dict):
        return isinstance(a, str) and a in b
    return isinstance(b, list | tuple) and any(same(a, item) for item in b)


_OPERATIONS: dict[str, Callable[..., Any]] = {
    "and": lambda *values: all(values),
    "or": lambda *values: any(values),
    "not": lambda value: not value,
    "list": lambda *values: list(values),
    "==": same,
    "!=": lambda a, b: not same(a, b),
    "<": lambda a, b: _ordered(a, b) and a < b,
    "<=": lambda a, b: _ordered(a, b) and a <= b,
    ">": lambda a, b: _ordered(a, b) and a > b,
    ">=": lambda a, b: _ordered(a, b) and a >= b,
    "in": _within,
    "not in": lambda a, b: not _within(a, b),
    "len": lambda value: len(value) if isinstance(value, str | list | tuple | dict) else None,
    "lower": lambda value: value.lower() if isinstance(value, str) else None,
}
