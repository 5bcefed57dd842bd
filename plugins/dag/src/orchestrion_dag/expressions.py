"""Conditions on edges and loops: a small language that can neither call nor change anything.

    data.score >= 0.8 and not ("draft" in review.data.labels)
    problem.category == 'trivial' or len(plan.data.steps) > 3

Values are paths, texts, numbers, `true`, `false`, `null` and lists of these; operators are `or`,
`and`, `not`, `== != < <= > >=`, `in` and `not in`; functions are `len` and `lower`. Evaluating
never fails: what is missing is null, and values of different types are unequal and unordered.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from attrs import frozen

from orchestrion import JSON

__all__ = [
    "Call",
    "Compare",
    "Constant",
    "Expression",
    "ExpressionError",
    "Junction",
    "Many",
    "Not",
    "Path",
    "compiled",
    "parse",
    "paths",
    "same",
]

Value = Callable[[Any], Any]
"""A compiled expression: what it is worth in a frame."""


class ExpressionError(ValueError):
    """An expression that cannot be read; says in which column."""

    def __init__(self, message: str, column: int) -> None:
        super().__init__(f"column {column}: {message}")
        self.column = column


@frozen
class Constant:
    """A value that stands for itself."""

    value: JSON


@frozen
class Path:
    """A name and what to look up in it, step by step."""

    root: str
    parts: tuple[str | int, ...]
    column: int

    def __str__(self) -> str:
        return ".".join([self.root, *map(str, self.parts)])


@frozen
class Compare:
    """Two values and an operator between them."""

    operator: str
    left: Expression
    right: Expression
    column: int


@frozen
class Junction:
    """`and` or `or` over several."""

    operator: str
    parts: tuple[Expression, ...]


@frozen
class Not:
    """The opposite."""

    part: Expression


@frozen
class Call:
    """A function of one value."""

    name: str
    part: Expression


@frozen
class Many:
    """A list."""

    parts: tuple[Expression, ...]


Expression = Constant | Path | Compare | Junction | Not | Call | Many

# ------------------------------------------------------------------------------------ reading

_TOKEN = re.compile(
    r"""\s*(?:
      (?P<number>-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)
    | (?P<text>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")
    | (?P<name>[A-Za-z_][\w-]*(?::[\w-]+)?(?:\#\d+)?)
    | (?P<sign>==|!=|<=|>=|<|>|[()\[\],.])
    )""",
    re.X,
)
_ORDERS = ("==", "!=", "<", "<=", ">", ">=", "in", "not in")
_CONSTANTS: dict[str, JSON] = {"true": True, "false": False, "null": None}
_WORDS = {"and", "or", "not", "in", *_CONSTANTS}
_FUNCTIONS = ("len", "lower")


class _Token(NamedTuple):
    kind: str
    text: str
    column: int


def _tokens(text: str) -> Iterator[_Token]:
    at, end = 0, len(text.rstrip())
    while at < end:
        match = _TOKEN.match(text, at)
        if match is None:
            at += len(text[at:]) - len(text[at:].lstrip())
            what = "a text without an end" if text[at] in "'\"" else f"{text[at]!r} has no meaning"
            raise ExpressionError(what, at + 1)
        kind = str(match.lastgroup)
        yield _Token(kind, match[kind], match.start(kind) + 1)
        at = match.end()
    yield _Token("end", "the end", end + 1)


def parse(text: str) -> Expression:
    """Read an expression.

    Raises:
        ExpressionError: it cannot be read; names the column.
    """
    parser = _Parser(list(_tokens(text)))
    found = parser.junction("or")
    parser.expect("end")
    return found


class _Parser:
    """Recursive descent; `at` is the place of the next token."""

    def __init__(self, tokens: list[_Token]) -> None:
        self.tokens, self.at, self.depth = tokens, 0, 0

    @property
    def next(self) -> _Token:
        return self.tokens[self.at]

    def take(self) -> _Token:
        token = self.next
        self.at += token.kind != "end"
        return token

    def accept(self, *texts: str) -> _Token | None:
        return self.take() if self.next.text in texts and self.next.kind != "text" else None

    def expect(self, text: str) -> None:
        if self.next.kind != text and not self.accept(text):
            raise ExpressionError(f"expected {text}, got {self.next.text}", self.next.column)

    def junction(self, operator: str) -> Expression:
        parts = [self.part(operator)]
        while self.accept(operator):
            parts.append(self.part(operator))
        return parts[0] if len(parts) == 1 else Junction(operator, tuple(parts))

    def part(self, operator: str) -> Expression:
        return self.junction("and") if operator == "or" else self.negation()

    def negation(self) -> Expression:
        if self.accept("not"):
            self.deeper()
            found: Expression = Not(self.negation())
            self.depth -= 1
            return found
        return self.comparison()

    def comparison(self) -> Expression:
        left, column = self.value(), self.next.column
        operator = self.order()
        if operator is None:
            return left
        found = Compare(operator, left, self.value(), column)
        column = self.next.column
        if self.order() is not None:
            raise ExpressionError("compare two values at a time, joined by `and`", column)
        return found

    def order(self) -> str | None:
        token = self.accept(*_ORDERS)
        if token is not None:
            return token.text
        following = self.tokens[min(self.at + 1, len(self.tokens) - 1)]
        if self.next.text == "not" and following.text == "in":
            self.at += 2
            return "not in"
        return None

    def value(self) -> Expression:
        token = self.take()
        if token.kind == "number":
            whole = not re.search("[.eE]", token.text)
            return Constant(int(token.text) if whole else float(token.text))
        if token.kind == "text":
            return Constant(re.sub(r"\\(.)", r"\1", token.text[1:-1]))
        if token.text in _CONSTANTS:
            return Constant(_CONSTANTS[token.text])
        if token.text == "(":
            self.deeper()
            found = self.junction("or")
            self.expect(")")
            self.depth -= 1
            return found
        if token.text == "[":
            return self.many()
        if token.kind == "name" and token.text not in _WORDS:
            return self.call(token) if self.next.text == "(" else self.path(token)
        raise ExpressionError(f"expected a value, got {token.text}", token.column)

    def deeper(self) -> None:
        self.depth += 1
        if self.depth > 50:
            raise ExpressionError("more than 50 levels deep", self.next.column)

    def many(self) -> Expression:
        self.deeper()
        parts: list[Expression] = []
        while not self.accept("]"):
            if parts:
                self.expect(",")
            parts.append(self.value())
        self.depth -= 1
        return Many(tuple(parts))

    def call(self, name: _Token) -> Expression:
        if name.text not in _FUNCTIONS:
            known = ", ".join(_FUNCTIONS)
            raise ExpressionError(f"no function {name.text} (there are: {known})", name.column)
        self.deeper()
        self.expect("(")
        found = Call(name.text, self.junction("or"))
        self.expect(")")
        self.depth -= 1
        return found

    def path(self, root: _Token) -> Expression:
        parts: list[str | int] = []
        while sign := self.accept(".", "["):
            token = self.take()
            if sign.text == "." and token.kind == "name":
                parts.append(token.text)
            elif sign.text == "[" and token.kind == "text":
                parts.append(token.text[1:-1])
                self.expect("]")
            elif sign.text == "[" and token.kind == "number" and token.text.isdigit():
                parts.append(int(token.text))
                self.expect("]")
            else:
                what = "a name" if sign.text == "." else "a number or a text"
                raise ExpressionError(
                    f"expected {what} after {sign.text}, got {token.text}", token.column
                )
        return Path(root.text, tuple(parts), root.column)


def paths(expression: Expression) -> Iterator[Path]:
    """Every path in an expression, from left to right."""
    match expression:
        case Path():
            yield expression
        case Compare(left=left, right=right):
            yield from paths(left)
            yield from paths(right)
        case Junction(parts=parts) | Many(parts=parts):
            for part in parts:
                yield from paths(part)
        case Not(part=part) | Call(part=part):
            yield from paths(part)


# ------------------------------------------------------------------------------------ evaluating


def compiled(expression: Expression, root: Callable[[str], Value]) -> Value:
    """A function of a frame; `root` gives the function that finds a name in a frame."""
    match expression:
        case Constant(value=value):
            return lambda frame: value
        case Path(root=name, parts=steps):
            return _walk(root(name), steps)
        case Compare(operator=operator, left=left, right=right):
            test = _TESTS[operator]
            a, b = compiled(left, root), compiled(right, root)
            return lambda frame: test(a(frame), b(frame))
        case Junction(operator=operator, parts=parts):
            every = [compiled(part, root) for part in parts]
            if operator == "and":
                return lambda frame: all(part(frame) for part in every)
            return lambda frame: any(part(frame) for part in every)
        case Not(part=part):
            inner = compiled(part, root)
            return lambda frame: not inner(frame)
        case Call(name=function, part=part):
            do, inner = _CALLS[function], compiled(part, root)
            return lambda frame: do(inner(frame))
        case Many(parts=parts):
            every = [compiled(part, root) for part in parts]
            return lambda frame: [part(frame) for part in every]


def _walk(start: Value, steps: tuple[str | int, ...]) -> Value:
    def walk(frame: Any) -> Any:
        value = start(frame)
        for step in steps:
            if isinstance(value, dict) and isinstance(step, str):
                value = value.get(step)
            elif isinstance(value, list | tuple) and isinstance(step, int):
                value = value[step] if step < len(value) else None
            else:
                return None
        return value

    return walk


def same(a: Any, b: Any) -> bool:
    """Whether two values are equal, and of one type."""
    # To Python, true is 1.
    return isinstance(a, bool) == isinstance(b, bool) and bool(a == b)


def _ordered(a: Any, b: Any) -> bool:
    texts = isinstance(a, str) and isinstance(b, str)
    return texts or (_is_number(a) and _is_number(b))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _within(a: Any, b: Any) -> bool:
    if isinstance(b, str):
        return isinstance(a, str) and a in b
    if isinstance(b, dict):
        return isinstance(a, str) and a in b
    return isinstance(b, list | tuple) and any(same(a, one) for one in b)


_TESTS: dict[str, Callable[[Any, Any], bool]] = {
    "==": same,
    "!=": lambda a, b: not same(a, b),
    "<": lambda a, b: _ordered(a, b) and a < b,
    "<=": lambda a, b: _ordered(a, b) and a <= b,
    ">": lambda a, b: _ordered(a, b) and a > b,
    ">=": lambda a, b: _ordered(a, b) and a >= b,
    "in": _within,
    "not in": lambda a, b: not _within(a, b),
}
_CALLS: dict[str, Callable[[Any], Any]] = {
    "len": lambda value: len(value) if isinstance(value, str | list | tuple | dict) else None,
    "lower": lambda value: value.lower() if isinstance(value, str) else None,
}
