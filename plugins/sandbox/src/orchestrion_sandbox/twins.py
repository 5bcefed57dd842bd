"""Must-fail twins: the same calls with other wanted values, mixed in among the real tests.

Whoever makes tests pass without being right makes their twins pass as well. Names and order are
random, so that telling a test from its twin takes knowing the right answer.

A twin is made from one assertion of a test, at its top level or in a `with`:

    assert CALL == LITERAL, is, or approx(LITERAL)     another literal of the same type
    assert CALL == NAME of a literal parametrization   other values in that column
    assert abs(CALL - LITERAL) < LITERAL               another number, out of reach
    assert CALL, assert not CALL                       the opposite
    with pytest.raises(...): ...                       the same lines, where nothing may be raised
    self.assertEqual, assertTrue, assertFalse          likewise

Any other assertion has none, and so has a test whose assertions are all in loops or helpers.
"""

from __future__ import annotations

import ast
import builtins
import copy
import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from attrs import Factory, define

__all__ = ["Twinned", "other_value", "twinned"]

MOST_TWINS = 4
"""Of one test."""

_Function = ast.FunctionDef | ast.AsyncFunctionDef


@define
class Twinned:
    """A test file with twins in it.

    Args:
        source: the new file.
        real: the original name of a real test, by its new one; "Class::name" for methods.
        twins: the same for twins.
        without: original names of tests that have no twin.
    """

    source: str = ""
    real: dict[str, str] = Factory(dict)
    twins: dict[str, str] = Factory(dict)
    without: list[str] = Factory(list)


def twinned(source: str, draw: random.Random) -> Twinned:
    """Rename and reorder the tests of a file, and mix their twins in.

    Raises:
        SyntaxError: if it is no Python.
    """
    tree = ast.parse(source)
    result = Twinned()
    tree.body = _mixed(tree.body, "", "", draw, result)
    result.source = ast.unparse(ast.fix_missing_locations(tree))
    return result


def _mixed(
    body: list[ast.stmt], old: str, new: str, draw: random.Random, result: Twinned
) -> list[ast.stmt]:
    """Tests last, in random order; `old` and `new` are what their names begin with."""
    others: list[ast.stmt] = []
    tests: list[ast.stmt] = []
    for node in body:
        if isinstance(node, ast.ClassDef) and _is_test_class(node):
            name = f"Test{draw.getrandbits(48):012x}"
            node.body = _mixed(node.body, f"{old}{node.name}::", f"{new}{name}::", draw, result)
            node.name = name
            tests.append(node)
        elif isinstance(node, _Function) and node.name.startswith("test"):
            found = [node, *_twins(node, draw)]
            if len(found) == 1:
                result.without.append(old + node.name)
            original = old + node.name
            for i, test in enumerate(found):
                test.name = f"test_{draw.getrandbits(48):012x}"
                (result.twins if i else result.real)[new + test.name] = original
            tests += found
        else:
            others.append(node)
    draw.shuffle(tests)
    return others + tests


def _is_test_class(node: ast.ClassDef) -> bool:
    bases = {
        base.attr if isinstance(base, ast.Attribute) else getattr(base, "id", "")
        for base in node.bases
    }
    return node.name.startswith("Test") or "TestCase" in bases


def _twins(test: _Function, draw: random.Random) -> list[Any]:
    spots = list(_spots(test.body, []))
    draw.shuffle(spots)
    found: list[Any] = []
    for spot in spots:
        twin = copy.deepcopy(test)
        block: list[ast.stmt] = twin.body
        for index in spot[:-1]:
            block = block[index].body  # type: ignore[attr-defined]
        if _change(block, spot[-1], twin, draw):
            found.append(twin)
        if len(found) == MOST_TWINS:
            break
    return found


def _spots(body: list[ast.stmt], at: list[int]) -> Iterator[list[int]]:
    """Where statements are that are always reached."""
    for i, node in enumerate(body):
        yield [*at, i]
        if isinstance(node, ast.With | ast.AsyncWith) and not _raises(node):
            yield from _spots(node.body, [*at, i])


def _change(block: list[ast.stmt], i: int, test: _Function, draw: random.Random) -> bool:
    """Make a statement one that has to fail; false if there is no way."""
    node = block[i]
    if isinstance(node, ast.With) and _raises(node) and len(node.items) == 1:
        block[i : i + 1] = node.body
        return True
    if isinstance(node, ast.Assert):
        return _change_assert(node, test, draw)
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        return _change_call(node.value, draw)
    return False


def _raises(node: ast.With | ast.AsyncWith) -> bool:
    called = node.items[0].context_expr
    return isinstance(called, ast.Call) and _name(called.func) in ("raises", "assertRaises")


def _name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _change_assert(node: ast.Assert, test: _Function, draw: random.Random) -> bool:
    asserted = node.test
    if isinstance(asserted, ast.BoolOp) and isinstance(asserted.op, ast.And):
        return _change_one(asserted, test, draw)
    if isinstance(asserted, ast.UnaryOp) and isinstance(asserted.op, ast.Not):
        node.test = asserted.operand
        return _decides(asserted.operand)
    if _decides(asserted):
        node.test = ast.UnaryOp(ast.Not(), asserted)
        return True
    if not isinstance(asserted, ast.Compare) or len(asserted.ops) != 1:
        return False
    left, operator, right = asserted.left, asserted.ops[0], asserted.comparators[0]
    if isinstance(operator, ast.Is) and isinstance(right, ast.Constant) and right.value is None:
        asserted.ops[0] = ast.IsNot()
        return _computed(left)
    if isinstance(operator, ast.Eq | ast.Is):
        if _computed(left) and (other := _other_wanted(right, test, draw)):
            asserted.comparators[0] = other
            return True
        if _computed(right) and (other := _other_wanted(left, test, draw)):
            asserted.left = other
            return True
    if isinstance(operator, ast.Lt | ast.LtE):
        return _change_distance(left, right)
    return False


def _change_one(both: ast.BoolOp, test: _Function, draw: random.Random) -> bool:
    """Of what has to hold together, one that does not."""
    for i, operand in enumerate(both.values):
        alone = ast.Assert(operand)
        if _change_assert(alone, test, draw):
            both.values[i] = alone.test
            return True
    return False


def _decides(node: ast.expr) -> bool:
    """A call whose result is what was to be tested, not what `all`, say, makes of comparisons."""
    return isinstance(node, ast.Call) and not hasattr(builtins, _name(node.func))


def _computed(node: ast.expr) -> bool:
    """Whether it is no constant."""
    return any(isinstance(part, ast.Call | ast.Name | ast.Attribute) for part in ast.walk(node))


def _change_distance(left: ast.expr, right: ast.expr) -> bool:
    """`abs(CALL - LITERAL) < LITERAL`."""
    if not (isinstance(left, ast.Call) and _name(left.func) in ("abs", "fabs") and left.args):
        return False
    between = left.args[0]
    if not (isinstance(between, ast.BinOp) and isinstance(between.op, ast.Sub)):
        return False
    try:
        reach = _number(right) or 0.0
        for side in ("right", "left"):
            value = _number(getattr(between, side))
            if value is not None:
                setattr(between, side, ast.Constant(value + 1.0 + abs(value) + 3 * abs(reach)))
                return True
    except (ValueError, TypeError):
        pass
    return False


def _number(node: ast.expr) -> float | None:
    """The value of a number, or of arithmetic of numbers such as 2.0/3.0."""
    allowed = (ast.Constant, ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop)
    if not all(isinstance(part, allowed) for part in ast.walk(node)):
        return None
    match node:
        case ast.BinOp(left, ast.Add() | ast.Sub() | ast.Mult() | ast.Div(), right):
            a, b = _number(left), _number(right)
            if a is None or b is None:
                return None
            divided = (lambda: a / b) if b else (lambda: None)
            choices: dict[type, Callable[[], float | None]] = {
                ast.Add: lambda: a + b,
                ast.Sub: lambda: a - b,
                ast.Mult: lambda: a * b,
                ast.Div: divided,
            }
            return choices[type(node.op)]()
        case ast.UnaryOp(ast.USub(), operand):
            inner = _number(operand)
            return None if inner is None else -inner
        case ast.Constant(int() | float() as value) if not isinstance(value, bool):
            return float(value)
    return None


def _change_call(call: ast.Call, draw: random.Random) -> bool:
    """unittest's methods."""
    name = _name(call.func)
    swapped = {"assertTrue": "assertFalse", "assertFalse": "assertTrue"}
    if name in swapped and isinstance(call.func, ast.Attribute):
        call.func.attr = swapped[name]
        return bool(call.args) and _computed(call.args[0])
    if name in ("assertEqual", "assertIs") and len(call.args) >= 2:
        for i, j in ((0, 1), (1, 0)):
            if _computed(call.args[i]) and (other := _other_literal(call.args[j], draw)):
                call.args[j] = other
                return True
    return False


# ---------------------------------------------------------------- other values


def _other_wanted(node: ast.expr, test: _Function, draw: random.Random) -> ast.expr | None:
    if isinstance(node, ast.Name):
        return node if _change_column(test, node.id, draw) else None
    if isinstance(node, ast.Call) and _name(node.func) == "approx" and node.args:
        number = _number(node.args[0])
        if number is None:
            return None
        node.args[0] = ast.Constant(number + 1.0 + abs(number))
        return node
    return _other_literal(node, draw)


def _other_literal(node: ast.expr, draw: random.Random) -> ast.expr | None:
    try:
        value = ast.literal_eval(node)
    except (ValueError, TypeError, RecursionError):
        number = _number(node)
        return None if number is None else ast.Constant(number + 1.0 + abs(number))
    return ast.parse(repr(other_value(value, draw)), mode="eval").body


def _change_column(test: _Function, name: str, draw: random.Random) -> bool:
    """Other values for a parameter, in every row of its parametrization."""
    for decorator in test.decorator_list:
        if not (isinstance(decorator, ast.Call) and _name(decorator.func) == "parametrize"):
            continue
        if len(decorator.args) < 2:
            continue
        try:
            names = ast.literal_eval(decorator.args[0])
            rows = ast.literal_eval(decorator.args[1])
        except (ValueError, TypeError):
            continue
        names = [n.strip() for n in names.split(",")] if isinstance(names, str) else list(names)
        if name not in names:
            continue
        column = names.index(name)
        single = len(names) == 1
        changed = [other_value(row, draw) if single else _with(row, column, draw) for row in rows]
        decorator.args[1] = ast.parse(repr(changed), mode="eval").body
        return True
    return False


def _with(row: Any, column: int, draw: random.Random) -> tuple[Any, ...]:
    cells = list(row)
    cells[column] = other_value(cells[column], draw)
    return tuple(cells)


def other_value(value: Any, draw: random.Random) -> Any:
    """A value of the same type, near and not equal."""
    match value:
        case bool():
            return not value
        case int():
            return value + draw.choice((-2, -1, 1, 2))
        case float() | complex():
            return value + draw.choice((-1, 1)) * (1.0 + abs(value) / 2)
        case str():
            return _other_text(value, draw)
        case bytes():
            return _other_text(value.decode("latin-1"), draw).encode("latin-1", "replace")
        case list():
            return _other_items(value, draw)
        case tuple():
            return tuple(_other_items(list(value), draw))
        case set() | frozenset():
            return value | {_fresh(value)}
        case dict():
            return _other_dict(value, draw)
    return 0  # for None


def _other_text(text: str, draw: random.Random) -> str:
    if not text:
        return "a"
    at = draw.randrange(len(text))
    letters = sorted(set(text) | set("ae")) if text.isalpha() else sorted(set(text) | set("01"))
    new = draw.choice([letter for letter in letters if letter != text[at]])
    return text[:at] + new + text[at + 1 :]


def _other_items(items: list[Any], draw: random.Random) -> list[Any]:
    if not items:
        return [0]
    at = draw.randrange(len(items))
    return [other_value(item, draw) if i == at else item for i, item in enumerate(items)]


def _other_dict(items: Mapping[Any, Any], draw: random.Random) -> dict[Any, Any]:
    if not items:
        return {0: 0}
    at = draw.choice(list(items))
    return {key: other_value(item, draw) if key == at else item for key, item in items.items()}


def _fresh(members: Any) -> Any:
    numbers = [member for member in members if type(member) is int]
    if numbers or not members:
        return max(numbers, default=0) + 1
    texts = [member for member in members if type(member) is str]
    return max(texts, default="") + "a" if texts else 0
