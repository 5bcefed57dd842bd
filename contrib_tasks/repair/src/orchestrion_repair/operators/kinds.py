"""A guess at the kind of value a name or an expression holds, from how it is made and used.

Kinds are "number", "bool", "str", "none", "list", "dict", "set", "tuple", "function" or "" for
unknown; a collection may carry the kind of its elements: "list:number", "dict:str".
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence
from typing import Any


def _by_name(names_of: Mapping[str, str]) -> dict[str, str]:
    return {name: kind for kind, names in names_of.items() for name in names.split()}


_FUNCTIONS = _by_name(
    {
        "number": "len sum int float abs round ord pow divmod hash",
        "bool": "bool any all isinstance hasattr callable",
        "str": "str chr repr format bin hex oct input",
        "list:number": "range",
        "list:tuple": "enumerate zip",
        "set": "set",
        "dict": "dict Counter defaultdict OrderedDict",
    }
)
_ONLY_STR = _by_name(
    {
        "str": "lower upper strip lstrip rstrip replace join title capitalize swapcase zfill ljust "
        "rjust center format casefold removeprefix removesuffix",
        "bool": "startswith endswith isdigit isalpha isalnum isupper islower isspace issubset "
        "issuperset isdisjoint isnumeric istitle isidentifier",
        "number": "find rfind",
        "list:str": "split splitlines partition",
    }
)
_METHODS = _ONLY_STR | _by_name(
    {
        "number": "count index rindex bit_length floor ceil sqrt gcd log",
        "list:tuple": "items",
        "list": "keys values",
    }
)


def outer(kind: str) -> str:
    """Return the kind without that of its elements."""
    return kind.partition(":")[0]


def element(kind: str) -> str:
    """Return what iterating over such a value gives."""
    return "str" if kind == "str" else kind.partition(":")[2]


def _holding(kind: str, item: str) -> str:
    """Return the kind of a collection with such items."""
    return f"{kind}:{item}" if item else kind


def fits(kind: str, other: str) -> bool:
    """Return whether a value of one kind may stand where the other stood; unknown fits anything."""
    if not kind or not other:
        return True
    return outer(kind) == outer(other) or {outer(kind), outer(other)} == {"number", "bool"}


def kind_of_value(value: Any) -> str:
    """Return the kind of a test's argument, or of a constant."""
    match value:
        case None:
            return "none"
        case bool():
            return "bool"
        case int() | float():
            return "number"
        case str():
            return "str"
        case list() | tuple():
            return _holding("list", kind_of_value(value[0]) if value else "")
        case dict():
            return _holding("dict", kind_of_value(next(iter(value.values()))) if value else "")
    return ""


def kinds_of_arguments(calls: Iterable[Sequence[Any]]) -> tuple[str, ...]:
    """Return the kind of each positional argument, by what test calls pass there."""
    kinds: list[str] = []
    for arguments in calls:
        kinds += [""] * (len(arguments) - len(kinds))
        for index, value in enumerate(arguments):
            kind = kind_of_value(value)
            if kind != "none" and len(kind) > len(kinds[index]):
                kinds[index] = kind
    return tuple(kinds)


class Kinds:
    """The kinds of one function's names."""

    def __init__(
        self, function: ast.FunctionDef | ast.AsyncFunctionDef | None, arguments: tuple[str, ...]
    ) -> None:
        self._names: dict[str, str] = {}
        self._known: dict[ast.expr, str] = {}
        self._settled = False
        if function is None:
            return
        positional = (*function.args.posonlyargs, *function.args.args)
        for parameter, kind in zip(positional, arguments, strict=False):
            self._learn(parameter.arg, kind)
        nodes = list(ast.walk(function))
        # Three rounds: a name may be made from one that is made further down.
        for _ in range(3):
            for node in nodes:
                self._visit(node)
        for node in nodes:
            self._hint(node)
        self._settled = True

    def name(self, name: str) -> str:
        """Return the kind a name holds."""
        return self._names.get(name, "")

    def of(self, node: ast.expr) -> str:
        """Return the kind of an expression."""
        kind = self._known.get(node)
        if kind is None:
            kind = self._of(node)
            if self._settled:
                self._known[node] = kind
        return kind

    def _of(self, node: ast.expr) -> str:
        match node:
            case ast.Constant(value):
                return kind_of_value(value)
            case ast.Name(name):
                return self.name(name)
            case ast.Compare() | ast.UnaryOp(ast.Not()):
                return "bool"
            case ast.BoolOp(_, values):
                return self.of(values[-1])
            case ast.UnaryOp():
                return "number"
            case ast.BinOp(left, operation, right):
                return self._of_operation(left, operation, right)
            case ast.IfExp(_, body, orelse):
                return self.of(body) or self.of(orelse)
            case ast.List(items) | ast.Tuple(items) | ast.Set(items):
                return _holding(type(node).__name__.lower(), self.of(items[0]) if items else "")
            case ast.ListComp(item) | ast.GeneratorExp(item):
                return _holding("list", self.of(item))
            case ast.SetComp():
                return "set"
            case ast.Dict() | ast.DictComp():
                return "dict"
            case ast.JoinedStr():
                return "str"
            case ast.Lambda():
                return "function"
            case ast.Subscript(value, ast.Slice()):
                return self.of(value)
            case ast.Subscript(value):
                return element(self.of(value))
            case ast.Call():
                return self._of_call(node)
        return ""

    def _of_operation(self, left: ast.expr, operation: ast.operator, right: ast.expr) -> str:
        left_kind, right_kind = self.of(left), self.of(right)
        if isinstance(operation, ast.Mod) and left_kind == "str":
            return "str"
        if isinstance(operation, ast.Add | ast.Mult):
            for kind in (left_kind, right_kind):
                if outer(kind) in ("str", "list", "tuple"):
                    return kind
            return "number" if "number" in (left_kind, right_kind) else ""
        if isinstance(operation, ast.BitOr | ast.BitAnd | ast.Sub | ast.BitXor):
            return left_kind or ("number" if right_kind == "number" else "")
        return "number"

    def _of_call(self, node: ast.Call) -> str:
        first = self.of(node.args[0]) if node.args else ""
        match node.func:
            case ast.Name(name) if name in _FUNCTIONS:
                return _FUNCTIONS[name]
            case ast.Name("sorted" | "list" | "reversed" | "tuple" | "frozenset" | "filter"):
                return _holding("list", element(first))
            case ast.Name("min" | "max"):
                return element(first) or ("" if outer(first) == "list" else first)
            case ast.Attribute(_, name) if name in _METHODS:
                return _METHODS[name]
            case ast.Attribute(value, "copy"):
                return self.of(value)
            case ast.Attribute(value, "pop" | "popleft" | "get" | "setdefault"):
                return element(self.of(value))
        return ""

    def _learn(self, name: str, kind: str) -> None:
        known = self._names.get(name, "")
        if kind and kind != "none" and len(kind) > len(known) and fits(kind, known):
            self._names[name] = kind

    def _visit(self, node: ast.AST) -> None:
        match node:
            case ast.Assign(targets, value):
                for target in targets:
                    self._assign(target, value)
            case ast.AnnAssign(target, _, value) if value is not None:
                self._assign(target, value)
            case ast.For(target, iterable) | ast.comprehension(target, iterable):
                self._iterate(target, iterable)
            case ast.Call(ast.Attribute(ast.Name(name), "append"), [item]):
                self._learn(name, _holding("list", self.of(item)))

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        match target, value:
            case ast.Name(name), _:
                self._learn(name, self.of(value))
            case ast.Tuple(parts), ast.Tuple(values):
                for part, other in zip(parts, values, strict=False):
                    self._assign(part, other)
            case ast.Subscript(ast.Name(name)), _:
                kind, inside = outer(self.name(name)), self.of(value)
                if kind in ("dict", "list") and inside:
                    self._learn(name, f"{kind}:{inside}")

    def _iterate(self, target: ast.expr, iterable: ast.expr) -> None:
        match target, iterable:
            case ast.Name(name), _:
                self._learn(name, element(self.of(iterable)))
            case ast.Tuple([index, item]), ast.Call(ast.Name("enumerate"), [items, *_]):
                self._name_is(index, "number")
                self._name_is(item, element(self.of(items)))
            case ast.Tuple(parts), ast.Call(ast.Name("zip"), items):
                for part, other in zip(parts, items, strict=False):
                    self._name_is(part, element(self.of(other)))
            case ast.Tuple([_, value]), ast.Call(ast.Attribute(owner, "items")):
                self._name_is(value, element(self.of(owner)))

    def _name_is(self, node: ast.expr, kind: str) -> None:
        if isinstance(node, ast.Name):
            self._learn(node.id, kind)

    def _hint(self, node: ast.AST) -> None:
        """Guess the kind of an unknown name by how it is used."""
        match node:
            case ast.BinOp(left, ast.Sub() | ast.Div() | ast.FloorDiv() | ast.Pow(), right):
                for side in (left, right):
                    self._unknown_is(side, "number")
            case ast.Compare(left, [ast.Lt() | ast.LtE() | ast.Gt() | ast.GtE()], [right]):
                for first, second in ((left, right), (right, left)):
                    if self.of(second) == "number":
                        self._unknown_is(first, "number")
            case ast.Call(ast.Attribute(value, name)) if name in _ONLY_STR:
                self._unknown_is(value, "str")
            case ast.Call(ast.Attribute(value, "append" | "extend" | "sort" | "insert")):
                self._unknown_is(value, "list")
            case ast.Call(ast.Attribute(value, "get" | "items" | "keys" | "values")):
                self._unknown_is(value, "dict")
            case ast.Call(ast.Attribute(value, "add")):
                self._unknown_is(value, "set")
            case ast.Call(ast.Name("range"), arguments):
                for argument in arguments:
                    self._unknown_is(argument, "number")
            case ast.Subscript(value, ast.Slice()):
                self._unknown_is(value, "list")

    def _unknown_is(self, node: ast.expr, kind: str) -> None:
        if isinstance(node, ast.Name) and not self.name(node.id):
            self._names[node.id] = kind
