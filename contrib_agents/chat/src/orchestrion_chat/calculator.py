"""The tool `calculator`."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

from attrs import frozen

from orchestrion_chat.functions import FunctionTool

_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
_NAMES = {"pi": math.pi, "e": math.e}
_CALLS: dict[str, Callable[..., Any]] = {
    "abs": abs, "max": max, "min": min, "round": round, "sqrt": math.sqrt, "exp": math.exp,
    "log": math.log, "sin": math.sin, "cos": math.cos, "tan": math.tan, "gcd": math.gcd,
}  # fmt: skip
_MOST_BITS = 4096


@frozen
class Calculator(FunctionTool):
    """Evaluates arithmetic expressions, and no other Python."""

    def offers(self) -> Sequence[Callable[..., Any]]:
        """Return `calculate`."""
        return (calculate,)


def calculate(expression: str) -> str:
    """Work out an arithmetic expression, exactly where it is whole numbers.

    Args:
        expression: with + - * / // % **, parentheses, pi, e, and abs, max, min, round, sqrt, exp,
            log, sin, cos, tan, gcd; for example "2**10 / sqrt(16)".
    """
    if len(expression) > 1000:
        raise ValueError("longer than 1000 characters")
    return str(_value(ast.parse(expression.strip(), mode="eval").body))


def _value(node: ast.expr) -> Any:
    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            return number
        case ast.Name(id=name) if name in _NAMES:
            return _NAMES[name]
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            return -_value(inner)
        case ast.UnaryOp(op=ast.UAdd(), operand=inner):
            return _value(inner)
        case ast.BinOp(left=left, op=sign, right=right) if type(sign) in _BINARY:
            return _combined(type(sign), _value(left), _value(right))
        case ast.Call(func=ast.Name(id=name), args=given, keywords=[]) if name in _CALLS:
            return _CALLS[name](*(_value(argument) for argument in given))
    raise ValueError(f"not arithmetic: {ast.unparse(node)}")


def _combined(sign: type[ast.operator], left: Any, right: Any) -> Any:
    """Apply an operator; integer results are bounded."""
    if isinstance(left, int) and isinstance(right, int):
        bits = 0
        if sign is ast.Pow and abs(left) > 1:
            bits = right * left.bit_length()
        elif sign is ast.Mult:
            bits = left.bit_length() + right.bit_length()
        if bits > _MOST_BITS:
            raise ValueError("the result is too large")
    return _BINARY[sign](left, right)
