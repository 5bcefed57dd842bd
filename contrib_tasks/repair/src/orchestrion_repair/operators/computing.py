"""Operators on computations: comparisons, arithmetic, one more or less, missing terms."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from orchestrion_repair.operators.kinds import fits, outer
from orchestrion_repair.operators.source import (
    Change,
    Site,
    Source,
    fit,
    is_value,
    kind_at,
    operand_text,
)

_COMPARE: dict[type[ast.cmpop], str] = {
    ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=",
    ast.Is: "is", ast.IsNot: "is not", ast.In: "in", ast.NotIn: "not in",
}  # fmt: skip
_SWAPS = {
    "<": ("<=", ">", ">=", "!=", "=="), "<=": ("<", ">=", ">", "=="),
    ">": (">=", "<", "<=", "!=", "=="), ">=": (">", "<=", "<", "=="),
    "==": ("!=", "<=", ">=", "<", ">"), "!=": ("==", "<", ">", "<=", ">="),
    "is": ("is not", "=="), "is not": ("is", "!="), "in": ("not in", "=="), "not in": ("in",),
}  # fmt: skip
SIGNS: dict[type[ast.operator], str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%",
    ast.Pow: "**", ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^", ast.LShift: "<<",
    ast.RShift: ">>",
}  # fmt: skip
OTHER_SIGNS = {
    "+": ("-", "*", "//", "%", "/", "**"), "-": ("+", "*", "%", "//", "/"),
    "*": ("+", "**", "//", "-", "/", "%"), "/": ("//", "*", "%", "-", "+"),
    "//": ("%", "/", "*", "-", "+"), "%": ("//", "-", "*", "/", "+"),
    "**": ("*", "+", "//"), "&": ("|", "^", "-", "+"), "|": ("&", "^", "-", "+"),
    "^": ("&", "|", "+", "-", "**"), "<<": (">>", "*"), ">>": ("<<", "//"),
}  # fmt: skip


def comparison(source: Source, site: Site) -> Iterator[Change]:
    """Yield another comparison."""
    node = site.node
    if not isinstance(node, ast.Compare):
        return
    parts = [operand_text(source, node.left)]
    for operation, right in zip(node.ops, node.comparators, strict=True):
        parts += [_COMPARE[type(operation)], operand_text(source, right)]
    yield from _other_bounds(site, node, parts)
    for index in range(1, len(parts), 2):
        for rank, other in enumerate(_SWAPS[parts[index]]):
            text = " ".join([*parts[:index], other, *parts[index + 1 :]])
            yield f"swap-{min(rank, 2)}", fit(site, text)


def _other_bounds(site: Site, node: ast.Compare, parts: list[str]) -> Iterator[Change]:
    """Yield another comparison with another small number: `== 0` for `<= 1`."""
    last = node.comparators[-1]
    if len(node.ops) > 1 or not isinstance(last, ast.Constant) or type(last.value) is not int:
        return
    if parts[1] in ("==", "!=", "<", "<=", ">", ">="):
        for other in _SWAPS[parts[1]]:
            for number in (last.value - 1, last.value + 1):
                yield "bound", fit(site, f"{parts[0]} {other} {number}")


def arithmetic(source: Source, site: Site) -> Iterator[Change]:
    """Yield another operator, operands the other way round, or one operand less."""
    node = site.node
    if not isinstance(node, ast.BinOp):
        return
    left, right = operand_text(source, node.left), operand_text(source, node.right)
    name = SIGNS.get(type(node.op), "")
    for rank, other in enumerate(OTHER_SIGNS.get(name, ())):
        yield f"swap-{min(rank, 2)}", fit(site, f"{left} {other} {right}")
    if name in ("-", "/", "//", "%", "**", "+") and not (
        name == "+" and fits("number", kind_at(source, site))
    ):
        yield "order", fit(site, f"{right} {name} {left}")
    yield "drop", left
    yield "drop", right
    if name == "//":  # as many as are needed, not as many as fit
        yield "ceiling", fit(site, f"-(-{left} // {right})")
    if name in ("+", "-") and outer(kind_at(source, site)) in ("number", ""):
        yield "better", f"max({source.text(node.left)}, {source.text(node.right)})"
        yield "better", f"min({source.text(node.left)}, {source.text(node.right)})"
    for inner in (node.left, node.right):  # a + b - c as it was meant: a + (b - c), or the reverse
        if not isinstance(inner, ast.BinOp):
            continue
        first, second = operand_text(source, inner.left), operand_text(source, inner.right)
        sign = SIGNS[type(inner.op)]
        if inner is node.left:
            yield "group", fit(site, f"{first} {sign} ({second} {name} {right})")
        else:
            yield "group", fit(site, f"({left} {name} {first}) {sign} {second}")


def off_by_one(source: Source, site: Site) -> Iterator[Change]:
    """Yield one more or one less."""
    node = site.node
    if not is_value(site) or isinstance(node, ast.Starred | ast.Slice | ast.Tuple | ast.BoolOp):
        return
    match node:
        case ast.Constant(int(value)) if not isinstance(value, bool):
            if not isinstance(site.parent, ast.UnaryOp):
                yield "constant", str(value + 1)
                yield "constant", str(value - 1) if value else fit(site, "-1")
        case ast.UnaryOp(ast.USub(), ast.Constant(int(value))):
            yield "constant", fit(site, str(-value - 1))
            yield "constant", fit(site, str(1 - value))
        case ast.BinOp(left, ast.Add(), ast.Constant(1)):
            yield "drop", source.text(left)
            yield "sign", fit(site, f"{operand_text(source, left)} - 1")
        case ast.BinOp(left, ast.Sub(), ast.Constant(1)):
            yield "drop", source.text(left)
            yield "sign", fit(site, f"{operand_text(source, left)} + 1")
        case _:
            if outer(kind_at(source, site)) not in ("number", ""):
                return
            where = "bound" if _is_bound(site) else "value"
            text = operand_text(source, node)
            yield where, fit(site, f"{text} - 1")
            yield where, fit(site, f"{text} + 1")


def _is_bound(site: Site) -> bool:
    """Return whether a site is an end of a range, a slice, an index or a comparison."""
    parent = site.parent
    if isinstance(parent, ast.Call) and isinstance(parent.func, ast.Name):
        return parent.func.id == "range"
    if isinstance(parent, ast.Subscript):
        return site.node is parent.slice
    return isinstance(parent, ast.Slice | ast.Compare)


def operand(source: Source, site: Site) -> Iterator[Change]:
    """Yield a missing term."""
    if not is_value(site) or isinstance(site.node, ast.Constant | ast.Compare | ast.BoolOp):
        return
    if isinstance(site.parent, ast.Compare) and not isinstance(site.node, ast.Name | ast.Call):
        return
    kind, text = outer(kind_at(source, site)), operand_text(source, site.node)
    if kind not in ("number", "str", "list"):
        return
    kinds = source.kinds(site.function)
    for name in source.names(site.function):
        if outer(kinds.name(name)) != kind or name == text:
            continue
        yield "add", fit(site, f"{text} + {name}")
        if kind == "number":
            yield "subtract", fit(site, f"{text} - {name}")
            yield "subtract-from", fit(site, f"{name} - {text}")
            yield "multiply", fit(site, f"{text} * {name}")
            yield "remainder-of", fit(site, f"{text} % {name}")
        else:
            yield "before", fit(site, f"{name} + {text}")
    if kind != "number":
        return
    yield "square", fit(site, f"{text} ** 2")
    for value in _factors(source, site):
        yield "factor", fit(site, f"{text} * {value}")
        yield "divisor", fit(site, f"{text} // {value}")
        yield "ratio", fit(site, f"{text} / {value}")
        yield "remainder", fit(site, f"{text} % {value}")
    for call in _atoms(source, site):
        yield "term", fit(site, f"{text} + {call}")
        yield "term", fit(site, f"{text} - {call}")


def _factors(source: Source, site: Site) -> list[int]:
    """Return numbers from 2 on that stand in the function."""
    own = (other.node for other in source.sites if other.function is site.function)
    values = [node.value for node in own if isinstance(node, ast.Constant)]
    return sorted({2, 10, *(value for value in values if type(value) is int and value > 1)})[:6]


def _atoms(source: Source, site: Site) -> list[str]:
    """Return short numeric expressions that stand in the function."""
    texts: dict[str, None] = {}
    for other in source.sites:
        if other.function is site.function and isinstance(other.node, ast.Call | ast.Subscript):
            text = source.text(other.node)
            if len(text) <= 24 and is_value(other) and outer(kind_at(source, other)) == "number":
                texts[text] = None
    return list(texts)[:6]
