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


def whole(source: Source, place: Place) -> bool:
    """Return whether a statement has its lines for itself, and is no branch of an `elif`."""
    node = place.node
    return source.own_line(node) and not (
        isinstance(node, ast.If) and source.text(node).startswith("elif")
    )


def _is_elif(source: Source, place: Place) -> bool:
    return isinstance(place.node, ast.If) and source.text(place.node).startswith("elif")


# ---------------------------------------------------------------- excess and misplaced statements


def delete(source: Source, place: Place) -> Iterator[Rewrite]:
    """One statement less, or the condition around some."""
    node = place.node
    if place.function is None or not source.own_line(node):
        return
    start, end = source.rows(node)
    indent = source.indent(node)
    if isinstance(node, ast.If) and not _is_elif(source, place):
        yield "condition", start, end, _body(source, node.body, indent)
        if node.orelse:
            yield "branch", start, end, _body(source, node.orelse, indent)
    if isinstance(node, ast.If) and node.orelse:
        after = source.rows(node.body[-1])[1]
        if after < end:
            yield "else", after, end, ""
    if isinstance(node, ast.For | ast.While) and not node.orelse:
        yield "loop", start, end, _body(source, node.body, indent)
    if not _is_elif(source, place):
        rest = "" if len(place.block) > 1 else f"{indent}pass\n"
        sub = "simple" if isinstance(node, SIMPLE) else "block"
        yield sub, start, end, rest


def _body(source: Source, block: list[ast.stmt], indent: str) -> str:
    if len(block) == 1 and isinstance(block[0], ast.If):
        text = source.block_text(block[0])
        if source.text(block[0]).startswith("elif"):
            return text.replace("elif", "if", 1)
    return indented(source.block_text(block[0], block[-1]), indent)


def move(source: Source, place: Place) -> Iterator[Rewrite]:
    """Yield a statement earlier or later, one level out or in."""
    node, block = place.node, place.block
    if place.function is None or not whole(source, place):
        return
    start, end = source.rows(node)
    indent, text = source.indent(node), source.block_text(node)
    for distance in (1, 2, 3):
        if place.index + distance < len(block) and _plain_row(
            source, block[place.index + distance]
        ):
            other = block[place.index + distance]
            between = source.block_text(block[place.index + 1], other)
            sub = f"later-{distance}"
            yield sub, start, source.rows(other)[1], between + text
            if distance > 1:
                first = block[place.index]
                rest = source.block_text(first, block[place.index + distance - 1])
                yield (
                    f"earlier-{distance}",
                    start,
                    source.rows(other)[1],
                    (source.block_text(other) + rest),
                )
    yield from _inwards(source, place, start, end, indent, text)
    yield from _outwards(source, place, start, end, text)


def _plain_row(source: Source, node: ast.stmt) -> bool:
    return source.own_line(node) and not source.text(node).startswith("elif")


def _inwards(
    source: Source, place: Place, start: int, end: int, indent: str, text: str
) -> Iterator[Rewrite]:
    if place.index > 0:
        before = place.block[place.index - 1]
        inner = getattr(before, "orelse", None) or getattr(before, "body", None)
        if inner and not isinstance(before, ast.FunctionDef) and _plain_row(source, inner[-1]):
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
        if inner and not isinstance(after, ast.FunctionDef) and _plain_row(source, inner[0]):
            head_end = source.rows(inner[0])[0]
            moved = source.code[end:head_end] + indented(text, source.indent(inner[0]))
            yield "into-next", start, head_end, moved


def _outwards(source: Source, place: Place, start: int, end: int, text: str) -> Iterator[Rewrite]:
    owner = place.owner
    if not isinstance(owner, ast.For | ast.While | ast.If) or not source.own_line(owner):
        return
    rest = "" if len(place.block) > 1 else f"{source.indent(place.node)}pass\n"
    out = source.indent(owner)
    moved = indented(text, out)
    owner_start, owner_end = source.rows(owner)
    if not source.text(owner).startswith("elif"):
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
        kept = source.code[start:start] + rest + source.code[end:owner_end]
        yield "out-after", start, owner_end, kept + moved


# ---------------------------------------------------------------- other statements


def returned(source: Source, place: Place) -> Iterator[Rewrite]:
    """Another result."""
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
    for other in source.places:
        if isinstance(other.node, ast.Return) and other.function is place.function:
            copy = source.text(other.node)
            if copy != source.text(node):
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
    """Another way through: break for continue, if for while, if for elif."""
    node = place.node
    start, end = source.span(node)
    match node:
        case ast.Break():
            yield "leave", start, end, "continue"
            yield "leave", start, end, "pass"
            yield from (("return", start, end, text) for text in _all_returns(source, place))
        case ast.Continue():
            yield "leave", start, end, "break"
            yield "leave", start, end, "pass"
        case ast.Pass():
            yield "leave", start, end, "continue"
            yield "leave", start, end, "break"
        case ast.If():
            if _is_elif(source, place):
                yield "elif-if", start, start + 4, "if"
            else:
                if not node.orelse:
                    yield "if-while", start, start + 2, "while"
                yield from _to_elif(source, place, start)
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
    """Comparisons of the same values, both of which may be false."""
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        left, right = source.text(test.left), source.text(test.comparators[0])
        if isinstance(test.ops[0], ast.Lt | ast.Gt | ast.LtE | ast.GtE | ast.Eq | ast.NotEq):
            for sign in ("<", ">", "=="):
                if f"{left} {sign} {right}" != source.text(test):
                    yield f"{left} {sign} {right}"


def _to_elif(source: Source, place: Place, start: int) -> Iterator[Rewrite]:
    before = place.block[place.index - 1] if place.index else None
    if isinstance(before, ast.If) and not before.orelse and whole(source, place):
        yield "if-elif", start, start + 2, "elif"


def _all_returns(source: Source, place: Place) -> list[str]:
    return list(
        dict.fromkeys(
            source.text(other.node)
            for other in source.places
            if isinstance(other.node, ast.Return) and other.function is place.function
        )
    )


def augmented(source: Source, place: Place) -> Iterator[Rewrite]:
    """Another assignment operator."""
    node = place.node
    start, end = source.span(node)
    if isinstance(node, ast.AugAssign):
        target, value = source.text(node.target), source.text(node.value)
        for rank, other in enumerate(OTHER_SIGNS.get(SIGNS.get(type(node.op), ""), ())):
            yield f"augmented-{min(rank, 2)}", start, end, f"{target} {other}= {value}"
        yield "plain", start, end, f"{target} = {value}"
    if isinstance(node, ast.Assign) and len(node.targets) == 1:
        target, value = source.text(node.targets[0]), source.text(node.value)
        if isinstance(node.targets[0], ast.Name | ast.Subscript):
            kind = outer(source.kinds(place.function).of(node.value))
            if kind in ("number", "str", "list", ""):
                yield "augment", start, end, f"{target} += {value}"
            if kind in ("number", ""):
                yield "augment", start, end, f"{target} -= {value}"
                yield "augment", start, end, f"{target} *= {value}"
                yield "keep", start, end, f"{target} = max({target}, {value})"
                yield "keep", start, end, f"{target} = min({target}, {value})"
