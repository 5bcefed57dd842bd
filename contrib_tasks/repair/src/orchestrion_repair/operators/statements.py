"""Operators that change statements. Each yields (sub-kind, start, end, text) for a place."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterator

from orchestrion_repair.operators.computing import OTHER_SIGNS, SIGNS
from orchestrion_repair.operators.kinds import fits, outer
from orchestrion_repair.operators.source import Place, Source

Rewrite = tuple[str, int, int, str]
"""A sub-kind, by which changes are ranked, the slice of the text, and what comes there."""

SIMPLE = (ast.Assign, ast.AugAssign, ast.Expr, ast.Return, ast.Continue, ast.Break, ast.Pass)


def indented(text: str, indent: str) -> str:
    return textwrap.indent(textwrap.dedent(text), indent)


def whole(source: Source, node: ast.stmt) -> bool:
    """Return whether a statement has its lines for itself, and is no branch of an `elif`."""
    return source.own_line(node) and not _is_elif(source, node)


def _is_elif(source: Source, node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and source.text(node).startswith("elif")


# ---------------------------------------------------------------- excess and misplaced statements


def delete(source: Source, place: Place) -> Iterator[Rewrite]:
    """Yield one statement less, or the condition around some."""
    node = place.node
    if place.function is None or not source.own_line(node):
        return
    start, end = source.rows(node)
    indent, is_elif = source.indent(node), _is_elif(source, node)
    if isinstance(node, ast.If) and not is_elif:
        yield "condition", start, end, _body(source, node.body, indent)
        if node.orelse:
            yield "branch", start, end, _body(source, node.orelse, indent)
    if isinstance(node, ast.If) and node.orelse:
        after = source.rows(node.body[-1])[1]
        if after < end:
            yield "else", after, end, ""
    if isinstance(node, ast.For | ast.While) and not node.orelse:
        yield "loop", start, end, _body(source, node.body, indent)
    if not is_elif:
        rest = "" if len(place.block) > 1 else f"{indent}pass\n"
        sub = "simple" if isinstance(node, SIMPLE) else "block"
        yield sub, start, end, rest


def _body(source: Source, block: list[ast.stmt], indent: str) -> str:
    if len(block) == 1 and _is_elif(source, block[0]):
        return source.block_text(block[0]).replace("elif", "if", 1)
    return indented(source.block_text(block[0], block[-1]), indent)


def move(source: Source, place: Place) -> Iterator[Rewrite]:
    """Yield a statement earlier or later, one level out or in."""
    node, block = place.node, place.block
    if place.function is None or not whole(source, node):
        return
    start, text = source.rows(node)[0], source.block_text(node)
    for distance, other in enumerate(block[place.index + 1 : place.index + 4], start=1):
        if whole(source, other):
            end = source.rows(other)[1]
            between = source.block_text(block[place.index + 1], other)
            yield f"later-{distance}", start, end, between + text
            if distance > 1:
                rest = source.block_text(node, block[place.index + distance - 1])
                yield f"earlier-{distance}", start, end, source.block_text(other) + rest
    yield from _inwards(source, place, text)
    yield from _outwards(source, place, text)


def _inwards(source: Source, place: Place, text: str) -> Iterator[Rewrite]:
    start, end = source.rows(place.node)
    if place.index > 0:
        before = place.block[place.index - 1]
        inner = getattr(before, "orelse", None) or getattr(before, "body", None)
        if inner and not isinstance(before, ast.FunctionDef) and whole(source, inner[-1]):
            deeper = source.indent(inner[-1])
            yield "into-last", start, end, indented(text, deeper)
            if getattr(before, "orelse", None):
                body_end = source.rows(before.body[-1])[1]  # type: ignore[attr-defined]
                deeper = source.indent(before.body[-1])  # type: ignore[attr-defined]
                kept = source.code[body_end:start]
                yield "into-body", body_end, end, indented(text, deeper) + kept
    if place.index + 1 < len(place.block):
        after = place.block[place.index + 1]
        inner = getattr(after, "body", None)
        if inner and not isinstance(after, ast.FunctionDef) and whole(source, inner[0]):
            head_end = source.rows(inner[0])[0]
            moved = source.code[end:head_end] + indented(text, source.indent(inner[0]))
            yield "into-next", start, head_end, moved


def _outwards(source: Source, place: Place, text: str) -> Iterator[Rewrite]:
    owner = place.owner
    if not isinstance(owner, ast.For | ast.While | ast.If) or not source.own_line(owner):
        return
    start, end = source.rows(place.node)
    rest = "" if len(place.block) > 1 else f"{source.indent(place.node)}pass\n"
    moved = indented(text, source.indent(owner))
    owner_start, owner_end = source.rows(owner)
    if not _is_elif(source, owner):
        kept = source.code[owner_start:start] + rest + source.code[end:owner_end]
        yield "out-before", owner_start, owner_end, moved + kept
    if place.index == len(place.block) - 1 and len(place.block) > 1 and end == owner_end:
        yield "out-after", start, end, moved
        above = {inner.node: inner.owner for inner in source.places}
        outer = above.get(owner)
        while isinstance(outer, ast.For | ast.While | ast.If):
            if not source.own_line(outer) or source.rows(outer)[1] != end:
                break
            yield "out-further", start, end, indented(text, source.indent(outer))
            outer = above.get(outer)
    else:
        yield "out-after", start, owner_end, rest + source.code[end:owner_end] + moved


# ---------------------------------------------------------------- other statements


def returned(source: Source, place: Place) -> Iterator[Rewrite]:
    """Yield another result."""
    node = place.node
    if not isinstance(node, ast.Return) or place.function is None:
        return
    start, end = source.span(node)
    kinds, names = source.kinds(place.function), source.names(place.function)
    text = source.text(node.value) if node.value is not None else "None"
    kind = kinds.of(node.value) if node.value is not None else ""
    for name in names:
        if name != text:
            same = "same" if fits(kinds.name(name), kind) else "other"
            yield f"name-{same}", start, end, f"return {name}"
    if outer(kind) in ("bool", ""):
        yield "not", start, end, f"return not ({text})"
    for copy in _returns(source, place):
        yield "copy", start, end, copy
    for name in names:
        if outer(kinds.name(name)) in ("list", "str", "dict", "set"):
            yield "size", start, end, f"return len({name})"
        if outer(kinds.name(name)) == outer(kind) == "number":
            yield "sum", start, end, f"return {text} + {name}"
            yield "sum", start, end, f"return {text} - {name}"
    if outer(kind) in ("list", "tuple", ""):
        for name in names:
            yield "item", start, end, f"return [{name}]"
    numbers = [name for name in names if outer(kinds.name(name)) == "number"][:6]
    for number in numbers:
        for two in numbers:
            if number != two and (kind in ("", "list", "tuple") or text in (number, two)):
                yield "pair", start, end, f"return [{number}, {two}]"
    if place.owner is not place.function and place.loop:
        yield "leave", start, end, "break"
        yield "leave", start, end, "continue"


def control(source: Source, place: Place) -> Iterator[Rewrite]:
    """Yield another way through: break for continue, if for while, if for elif."""
    node = place.node
    start, end = source.span(node)
    match node:
        case ast.Break():
            yield "leave", start, end, "continue"
            yield "leave", start, end, "pass"
            for text in _returns(source, place):
                yield "return", start, end, text
        case ast.Continue():
            yield "leave", start, end, "break"
            yield "leave", start, end, "pass"
        case ast.Pass():
            yield "leave", start, end, "continue"
            yield "leave", start, end, "break"
        case ast.If():
            if _is_elif(source, node):
                yield "elif-if", start, start + 4, "if"
            else:
                if not node.orelse:
                    yield "if-while", start, start + 2, "while"
                before = place.block[place.index - 1] if place.index else None
                if isinstance(before, ast.If) and not before.orelse and source.own_line(node):
                    yield "if-elif", start, start + 2, "elif"
        case ast.While():
            yield "while-if", start, start + 5, "if"
    if isinstance(node, ast.If) and node.orelse:
        after, other = source.rows(node.body[-1])[1], source.rows(node.orelse[0])[0]
        keyword = source.code[after:other]
        if keyword.strip() == "else:":
            for test in _opposites(source, node.test):
                yield "else-elif", after, other, keyword.replace("else:", f"elif {test}:")
    if isinstance(node, ast.For | ast.While) and node.orelse:
        body_end = source.rows(node.body[-1])[1]
        kept = source.block_text(node.orelse[0], node.orelse[-1])
        yield "else", body_end, source.rows(node)[1], indented(kept, source.indent(node))


def _opposites(source: Source, test: ast.expr) -> Iterator[str]:
    """Yield comparisons of the same values that can be false where `test` is."""
    match test:
        case ast.Compare(
            left, [ast.Lt() | ast.Gt() | ast.LtE() | ast.GtE() | ast.Eq() | ast.NotEq()], [right]
        ):
            for sign in ("<", ">", "=="):
                other = f"{source.text(left)} {sign} {source.text(right)}"
                if other != source.text(test):
                    yield other


def _returns(source: Source, place: Place) -> Iterator[str]:
    """Yield the return statements of a place's function."""
    for other in source.places:
        if isinstance(other.node, ast.Return) and other.function is place.function:
            yield source.text(other.node)


def augmented(source: Source, place: Place) -> Iterator[Rewrite]:
    """Yield another assignment operator."""
    node = place.node
    start, end = source.span(node)
    if isinstance(node, ast.AugAssign):
        target, value = source.text(node.target), source.text(node.value)
        for rank, other in enumerate(OTHER_SIGNS.get(SIGNS.get(type(node.op), ""), ())):
            yield f"augmented-{min(rank, 2)}", start, end, f"{target} {other}= {value}"
        yield "plain", start, end, f"{target} = {value}"
    if isinstance(node, ast.Assign) and len(node.targets) == 1:
        if not isinstance(node.targets[0], ast.Name | ast.Subscript):
            return
        target, value = source.text(node.targets[0]), source.text(node.value)
        kind = outer(source.kinds(place.function).of(node.value))
        if kind in ("number", "str", "list", ""):
            yield "augment", start, end, f"{target} += {value}"
        if kind in ("number", ""):
            yield "augment", start, end, f"{target} -= {value}"
            yield "augment", start, end, f"{target} *= {value}"
            yield "keep", start, end, f"{target} = max({target}, {value})"
            yield "keep", start, end, f"{target} = min({target}, {value})"
