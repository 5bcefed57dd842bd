"""Operators that add a statement, or a condition around one."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from orchestrion_repair.harness import is_text
from orchestrion_repair.operators.conditions import conditions_for, may_hold
from orchestrion_repair.operators.kinds import element, fits, outer
from orchestrion_repair.operators.source import Place, Site, Source
from orchestrion_repair.operators.statements import SIMPLE, Rewrite, indented, whole

_STEP = "    "


def _site(place: Place) -> Site:
    """Return a place as a site, for what the function suggests there."""
    return Site(ast.Constant(None), place.node, place.node, place.function)


def guard(source: Source, place: Place) -> Iterator[Rewrite]:
    """Yield an early exit before a statement, or a condition around one."""
    if place.function is None or not whole(source, place.node):
        return
    start, end = source.rows(place.node)
    indent = source.indent(place.node)
    first = place.block[0] is place.node or (place.index == 1 and is_text(place.block[0]))
    if first or (isinstance(place.node, ast.Return) and place.owner is place.function):
        results = _results(source, place)
        for condition in _exits(source, place):
            for result in results:
                text = f"{indent}if {condition}:\n{indent}{_STEP}{result}\n"
                yield "exit-first" if first else "exit-later", start, start, text
    elif place.loop and place.owner is not place.function:
        near = source.used(place.node) | source.used(place.block[max(0, place.index - 1)])
        for condition in _exits(source, place):
            if near.intersection(re.findall(r"\w+", condition)):
                for result in ("continue", "break"):
                    text = f"{indent}if {condition}:\n{indent}{_STEP}{result}\n"
                    yield f"skip-{result}", start, start, text
    if isinstance(place.node, SIMPLE):
        body = indented(source.block_text(place.node), indent + _STEP)
        near = source.used(place.node)
        for sub, condition in conditions_for(source, _site(place)):
            words = [word for word in condition.split() if word.isidentifier()]
            if sub in ("copy", "atom") or (
                words and words[0] in near and sub not in ("none", "pair")
            ):
                yield f"around-{sub}", start, end, f"{indent}if {condition}:\n{body}"


def _exits(source: Source, place: Place) -> Iterator[str]:
    kinds = source.kinds(place.function)
    names = source.names(place.function)
    parameters = [a.arg for a in place.function.args.args] if place.function else []
    near = frozenset().union(*map(source.used, place.block))
    for name in names:
        if name not in parameters and name not in near:
            continue
        kind = outer(kinds.name(name))
        if kind == "number":
            yield from (f"{name} <= 0", f"{name} == 0", f"{name} < 0")
        elif kind != "function":
            yield f"not {name}"
        if kind in ("", "none"):
            yield f"{name} is None"
        if kind in ("list", "str") and name in parameters:
            yield f"len({name}) == 1"
    for first in names:
        kind = outer(kinds.name(first))
        for second in names:
            both = kind == outer(kinds.name(second)) == "number"
            if first < second and both and first in near and second in near:
                yield from (f"{first} > {second}", f"{first} < {second}", f"{first} == {second}")
            if first != second and first in near and may_hold(kinds.name(second), kind):
                yield from (f"{first} in {second}", f"{first} not in {second}")


def _results(source: Source, place: Place) -> list[str]:
    """Return how the function could be left, or the loop's round ended, here."""
    values: list[str] = []
    kind = ""
    for other in source.places:
        value = other.node.value if isinstance(other.node, ast.Return) else None
        if value is not None and other.function is place.function:
            kind = kind or outer(source.kinds(place.function).of(value))
            if len(source.text(value)) <= 16:
                values.append(source.text(value))
    defaults = {
        "number": ("0", "-1", "1", "None"), "list": ("[]", "None"), "str": ('""', "None"),
        "bool": ("False", "True"), "dict": ("{}",), "tuple": ("None",),
    }.get(kind, ("None", "0", "[]", "False", "True", '""', "-1"))  # fmt: skip
    returns = [f"return {text}" for text in dict.fromkeys([*values, *defaults])]
    if place.loop and place.owner is not place.function:
        return ["continue", "break", *returns[:2]]
    return returns[:4]


def insert(source: Source, place: Place) -> Iterator[Rewrite]:
    """Yield a statement that is missing before this one, or after the last of a block."""
    if place.function is None or not whole(source, place.node):
        return
    start, end = source.rows(place.node)
    indent = source.indent(place.node)
    gap = "" if source.code[:end].endswith("\n") else "\n"  # a file may end without a newline
    last = place.index == len(place.block) - 1
    ends = isinstance(place.node, ast.Return | ast.Break | ast.Continue | ast.Raise)
    own = source.text(place.node)
    for renamed in _renamed(source, place):
        yield "renamed-before", start, start, f"{indent}{renamed}\n"
        if not ends:
            yield "renamed-after", end, end, f"{gap}{indent}{renamed}\n"
    for sub, text in _missing(source, place):
        if text == own:
            continue
        if not text.startswith(("return", "break", "continue")):
            yield f"{sub}-before", start, start, f"{indent}{text}\n"
        if last and not ends:
            yield f"{sub}-after", end, end, f"{gap}{indent}{text}\n"


def _renamed(source: Source, place: Place) -> Iterator[str]:
    """Yield a simple statement once more, for another variable of the same kind."""
    node = place.node
    if not isinstance(node, ast.Assign | ast.AugAssign | ast.Expr) or "\n" in source.text(node):
        return
    kinds, names = source.kinds(place.function), source.names(place.function)
    start = source.span(node)[0]
    text = source.text(node)
    for name in ast.walk(node):
        if not isinstance(name, ast.Name) or name.id not in names:
            continue
        first, last = source.span(name)
        for other in names:
            kind = kinds.name(other)
            if other != name.id and kind and fits(kind, kinds.name(name.id)):
                yield text[: first - start] + other + text[last - start :]


def _missing(source: Source, place: Place) -> Iterator[tuple[str, str]]:
    for other in source.places:
        node = other.node
        simple = isinstance(node, ast.Assign | ast.AugAssign | ast.Expr | ast.Return)
        if simple and node.lineno == node.end_lineno and other.function is place.function:
            yield "copy", source.text(node)
    kinds, names = source.kinds(place.function), source.names(place.function)
    near = frozenset().union(*map(source.used, place.block))
    for name in names:
        if name not in near:
            if outer(kinds.name(name)) == "number" and place.owner is not place.function:
                yield from (("count-far", f"{name} {sign}= 1") for sign in "+-")
            continue
        kind = kinds.name(name)
        match outer(kind):
            case "number":
                yield from (("count", f"{name} += 1"), ("count", f"{name} -= 1"))
                yield "reset", f"{name} = 0"
            case "list":
                yield "reset", f"{name} = []"
                yield from (("call", f"{name}.sort()"), ("call", f"{name}.reverse()"))
                for item in names:
                    if item != name and fits(kinds.name(item), element(kind)):
                        yield "append", f"{name}.append({item})"
            case "set":
                for item in names:
                    if item != name and outer(kinds.name(item)) not in ("list", "dict", "set"):
                        yield "append", f"{name}.add({item})"
            case "str":
                yield "reset", f'{name} = ""'
                yield "call", f"{name} = {name}.strip()"
                yield "call", f"{name} = {name}.lower()"
            case "bool":
                yield from (("reset", f"{name} = False"), ("reset", f"{name} = True"))
        yield "return", f"return {name}"
        for value in names:
            if value != name and value in near and kind == kinds.name(value):
                yield "assign", f"{name} = {value}"
                if outer(kind) in ("number", "str", "list"):
                    yield "add", f"{name} += {value}"
    if place.loop:
        yield from (("leave", "break"), ("leave", "continue"))
