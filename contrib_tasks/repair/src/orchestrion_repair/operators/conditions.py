"""Operators on conditions, and the conditions that a function suggests."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from orchestrion_repair.operators.kinds import element, fits, outer
from orchestrion_repair.operators.source import Change, Site, Source, fit, operand_text


def _is_test(site: Site) -> bool:
    parent = site.parent
    if isinstance(parent, ast.If | ast.While | ast.IfExp | ast.Assert):
        return parent.test is site.node
    if isinstance(parent, ast.comprehension):
        return site.node in parent.ifs
    return isinstance(site.node, ast.Compare | ast.BoolOp) and not isinstance(
        parent, ast.BoolOp | ast.UnaryOp
    )


def condition(source: Source, site: Site) -> Iterator[Change]:
    """Yield a condition negated, with `and` for `or`, a part less, or one for True or False."""
    node = site.node
    alone = site.parent is site.statement and isinstance(site.statement, ast.Return | ast.Assign)
    test = isinstance(site.statement, ast.While | ast.If) and site.parent is site.statement
    if (alone or test) and isinstance(node, ast.Constant) and isinstance(node.value, bool):
        for sub, text in conditions_for(source, site):
            yield f"for-constant-{sub}", text
    if isinstance(node, ast.BoolOp):
        parts = [booloperand_text(source, value) for value in node.values]
        word = "and" if isinstance(node.op, ast.And) else "or"
        other = "or" if word == "and" else "and"
        yield "and-or", fit(site, f" {other} ".join(parts))
        for index in range(len(parts)):
            rest = parts[:index] + parts[index + 1 :]
            yield "drop", fit(site, f" {word} ".join(rest)) if len(rest) > 1 else rest[0]
        for index, part in enumerate(parts):
            turned = [*parts[:index], f"not {part}", *parts[index + 1 :]]
            yield "negate-part", fit(site, f" {word} ".join(turned))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield "negate", source.text(node.operand)
    elif _is_test(site):
        yield "negate", fit(site, f"not {operand_text(source, node)}")
        if isinstance(site.parent, ast.If | ast.While | ast.comprehension):
            yield "constant", "True"
            yield "constant", "False"


def booloperand_text(source: Source, node: ast.expr) -> str:
    text = source.text(node)
    return f"({text})" if isinstance(node, ast.BoolOp | ast.IfExp | ast.Lambda) else text


def extend(source: Source, site: Site) -> Iterator[Change]:
    """Yield a missing part of a condition."""
    if not _is_test(site) or isinstance(site.node, ast.Constant):
        return
    text = source.text(site.node)
    inner = booloperand_text(source, site.node)
    parts = site.node.values if isinstance(site.node, ast.BoolOp) else []
    there = {text, *map(source.text, parts)}
    for sub, extra in conditions_for(source, site):
        if extra in there:
            continue
        yield f"and-{sub}", fit(site, f"{inner} and {extra}")
        yield f"or-{sub}", fit(site, f"{inner} or {extra}")
        if sub == "truth":
            yield "and-not", fit(site, f"{inner} and not {extra}")
            yield "or-not", fit(site, f"{inner} or not {extra}")
            yield "guarded", fit(site, f"{extra} and {inner}")
            yield "guarded-not", fit(site, f"not {extra} or {inner}")
        if sub == "none":
            yield "guarded-none", fit(site, f"{extra} {'and' if 'not' in extra else 'or'} {inner}")


def conditions_for(source: Source, site: Site) -> list[tuple[str, str]]:
    """Return conditions that the rest of the function suggests for a statement."""
    if site.statement not in source.conditions:
        source.conditions[site.statement] = list(_suggested(source, site))
    return source.conditions[site.statement]


def _suggested(source: Source, site: Site) -> Iterator[tuple[str, str]]:
    for other in source.sites:
        if other.function is site.function and isinstance(other.node, ast.Compare):
            if isinstance(other.parent, ast.comprehension):
                continue
            yield "copy", source.text(other.node)
    for text, kind in _items(source, site):
        if kind in ("number", ""):
            for test in ("== 0", "> 0", "!= 0", "== 1", "> 1"):
                yield "atom", f"{text} {test}"
        if kind in ("str", ""):
            for constant in _texts(source, site):
                yield from (("atom", f"{text} {sign} {constant}") for sign in ("==", "!="))
    kinds, names = source.kinds(site.function), source.names(site.function)
    near = source.used(site.statement) or frozenset(names)
    for name in names:
        kind = outer(kinds.name(name))
        if kind != "function":
            yield "truth", name
        if kind == "number" and name in near:
            yield from (("zero", f"{name} {sign} 0") for sign in (">", "==", "!=", "<", ">="))
            yield from (("one", f"{name} {sign} 1") for sign in ("==", "!=", ">"))
            yield from (("even", f"{name} % 2 == {rest}") for rest in (0, 1))
        if kind == "str" and name in near:
            yield from (("text", f"{name}.{test}()") for test in _TEXT_TESTS)
        if kind in ("list", "str", "tuple") and name in near:
            yield from (("size", f"len({name}) {sign} 1") for sign in ("==", ">"))
        if kind == "" and name in near:
            yield from (("none", f"{name} is None"), ("none", f"{name} is not None"))
    for first in names:
        kind = outer(kinds.name(first))
        for second in names:
            if first == second or (first not in near and second not in near):
                continue
            if first < second and kind in ("number", "str") and kind == outer(kinds.name(second)):
                for sign in ("==", "!=", "<", ">", "<=", ">=")[: 6 if kind == "number" else 2]:
                    yield "pair", f"{first} {sign} {second}"
            elif first < second and {kind, outer(kinds.name(second))} <= {"", "number"}:
                yield from (("pair-any", f"{first} {sign} {second}") for sign in ("==", "<", ">"))
            if first in near and may_hold(kinds.name(second), kind):
                yield "member", f"{first} in {second}"
                yield "member", f"{first} not in {second}"


def _items(source: Source, site: Site) -> list[tuple[str, str]]:
    """Return items of collections that the function reads, with their kinds."""
    kinds: dict[str, str] = {}
    for other in source.sites:
        if other.function is site.function and isinstance(other.node, ast.Subscript):
            text = source.text(other.node)
            if len(text) <= 16 and not isinstance(other.node.slice, ast.Slice):
                kinds[text] = outer(source.kinds(site.function).of(other.node))
    return list(kinds.items())[:4]


def _texts(source: Source, site: Site) -> list[str]:
    """Return short texts that the function has."""
    own = (other.node for other in source.sites if other.function is site.function)
    constants = (node for node in own if isinstance(node, ast.Constant))
    texts = [source.text(node) for node in constants if isinstance(node.value, str)]
    return [text for text in dict.fromkeys(texts) if len(text) <= 6][:3]


_TEXT_TESTS = ("isalpha", "isdigit", "isalnum", "isspace", "isupper", "islower")


def may_hold(holder: str, kind: str) -> bool:
    """Return whether a value of this kind may be in such a collection."""
    many = ("list", "set", "dict")
    return outer(holder) in many and kind not in many and fits(kind, element(holder))
