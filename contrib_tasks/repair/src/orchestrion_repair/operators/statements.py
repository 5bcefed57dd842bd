"""Operators that change statements. Each yields (sub-kind, start, end, text) for a place."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterator

from orchestrion_repair.operators.expressions import _conditions
from orchestrion_repair.operators.kinds import element, fits, outer
from orchestrion_repair.operators.source import Place, Site, Source, is_text

__all__ = ["STATEMENT_FAMILIES", "Rewrite"]

Rewrite = tuple[str, int, int, str]
"""A sub-kind, by which changes are ranked, the slice of the text, and what comes there."""

_SIGNS: dict[type[ast.operator], str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%",
    ast.BitOr: "|", ast.BitAnd: "&", ast.BitXor: "^",
}  # fmt: skip
_SIMPLE = (ast.Assign, ast.AugAssign, ast.Expr, ast.Return, ast.Continue, ast.Break, ast.Pass)
_STEP = "    "


def _site(place: Place) -> Site:
    """A place as a site, for what the function suggests there."""
    return Site(ast.Constant(None), place.node, place.node, place.function)


def _indented(text: str, indent: str) -> str:
    return textwrap.indent(textwrap.dedent(text), indent)


def _whole(source: Source, place: Place) -> bool:
    """Whether a statement has its lines for itself, and is no branch of an `elif`."""
    node = place.node
    return source.own_line(node) and not (
        isinstance(node, ast.If) and source.text(node).startswith("elif")
    )


def _is_elif(source: Source, place: Place) -> bool:
    return isinstance(place.node, ast.If) and source.text(place.node).startswith("elif")


# ---------------------------------------------------------------- missing statements


def guard(source: Source, place: Place) -> Iterator[Rewrite]:
    """An early exit before a statement, or a condition around one."""
    if place.function is None or not _whole(source, place):
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
    if isinstance(place.node, _SIMPLE):
        body = _indented(source.block_text(place.node), indent + _STEP)
        near = source.used(place.node)
        for sub, condition in _conditions(source, _site(place)):
            words = [word for word in condition.split() if word.isidentifier()]
            if sub == "copy" or (words and words[0] in near and sub not in ("none", "pair")):
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
    for one in names:
        for two in names:
            if one in near and two in near and one < two:
                if outer(kinds.name(one)) == outer(kinds.name(two)) == "number":
                    yield from (f"{one} > {two}", f"{one} < {two}", f"{one} == {two}")
            inside = element(kinds.name(two))
            if one != two and outer(kinds.name(two)) in ("list", "dict", "set") and one in near:
                if fits(kinds.name(one), inside) and outer(kinds.name(one)) not in ("list", "dict"):
                    yield from (f"{one} in {two}", f"{one} not in {two}")


def _results(source: Source, place: Place) -> list[str]:
    """How the function could be left, or the loop's round ended, here."""
    if place.loop and place.owner is not place.function:
        found = ["continue", "break"]
    else:
        found = []
    returned: dict[str, None] = {}
    kind = ""
    for other in source.places:
        if isinstance(other.node, ast.Return) and other.function is place.function:
            if other.node.value is not None:
                text = source.text(other.node.value)
                kind = kind or outer(source.kinds(place.function).of(other.node.value))
                if len(text) <= 16:
                    returned[text] = None
    defaults = {
        "number": ("0", "-1", "1", "None"), "list": ("[]", "None"), "str": ('""', "None"),
        "bool": ("False", "True"), "dict": ("{}",), "tuple": ("None",),
    }.get(kind, ("None", "0", "[]", "False", "True", '""', "-1"))  # fmt: skip
    for text in defaults:
        returned[text] = None
    if found:
        return found + [f"return {text}" for text in list(returned)[:2]]
    return [f"return {text}" for text in list(returned)[:4]]


def insert(source: Source, place: Place) -> Iterator[Rewrite]:
    """A statement that is missing before this one, or after the last of a block."""
    if place.function is None or not _whole(source, place):
        return
    start, end = source.rows(place.node)
    indent = source.indent(place.node)
    last = place.index == len(place.block) - 1
    ends = isinstance(place.node, ast.Return | ast.Break | ast.Continue | ast.Raise)
    own = source.text(place.node)
    for renamed in _renamed(source, place):
        yield "renamed-before", start, start, f"{indent}{renamed}\n"
        if not ends:
            gap = "" if source.code[:end].endswith("\n") else "\n"
            yield "renamed-after", end, end, f"{gap}{indent}{renamed}\n"
    for sub, text in _missing(source, place):
        if text == own:
            continue
        line = f"{indent}{text}\n"
        leaves = text.startswith(("return", "break", "continue"))
        if not leaves:
            yield f"{sub}-before", start, start, line
        if last and not ends:
            # A file may end without a newline.
            gap = "" if source.code[:end].endswith("\n") else "\n"
            yield f"{sub}-after", end, end, gap + line


def _renamed(source: Source, place: Place) -> Iterator[str]:
    """A simple statement once more, for another variable of the same kind."""
    node = place.node
    if not isinstance(node, ast.Assign | ast.AugAssign | ast.Expr) or "\n" in source.text(node):
        return
    kinds, names = source.kinds(place.function), source.names(place.function)
    start = source.span(node)[0]
    used = [n for n in ast.walk(node) if isinstance(n, ast.Name) and n.id in names]
    for name in used:
        first, last = source.span(name)
        for other in names:
            if other != name.id and kinds.name(other) and fits(kinds.name(other), kinds.name(name.id)):
                text = source.text(node)
                yield text[: first - start] + other + text[last - start :]


def _missing(source: Source, place: Place) -> Iterator[tuple[str, str]]:
    seen: set[str] = set()
    for other in source.places:
        simple = isinstance(other.node, ast.Assign | ast.AugAssign | ast.Expr | ast.Return)
        if other.function is place.function and simple and other.node.lineno == getattr(
            other.node, "end_lineno", 0
        ):
            text = source.text(other.node)
            if text not in seen:
                seen.add(text)
                yield "copy", text
    kinds, names = source.kinds(place.function), source.names(place.function)
    near = frozenset().union(*map(source.used, place.block))
    for name in names:
        if name not in near:
            continue
        kind = kinds.name(name)
        match outer(kind):
            case "number":
                fresh = [("count", f"{name} += 1"), ("count", f"{name} -= 1")]
                fresh += [("reset", f"{name} = 0")]
            case "list":
                fresh = [("reset", f"{name} = []"), ("call", f"{name}.sort()")]
                fresh += [("call", f"{name}.reverse()")]
                for other_name in names:
                    if other_name != name and fits(kinds.name(other_name), element(kind)):
                        fresh.append(("append", f"{name}.append({other_name})"))
            case "set":
                fresh = [
                    ("append", f"{name}.add({other})")
                    for other in names
                    if other != name and outer(kinds.name(other)) not in ("list", "dict", "set")
                ]
            case "str":
                fresh = [("reset", f'{name} = ""'), ("call", f"{name} = {name}.strip()")]
                fresh += [("call", f"{name} = {name}.lower()")]
            case _:
                fresh = []
        fresh.append(("return", f"return {name}"))
        for other_name in names:
            if other_name != name and other_name in near and kind == kinds.name(other_name) != "":
                fresh.append(("assign", f"{name} = {other_name}"))
                if outer(kind) in ("number", "str", "list"):
                    fresh.append(("add", f"{name} += {other_name}"))
        for sub, text in fresh:
            if text not in seen:
                seen.add(text)
                yield sub, text
    if place.loop:
        yield from (("leave", "break"), ("leave", "continue"))


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
        sub = "simple" if isinstance(node, _SIMPLE) else "block"
        yield sub, start, end, rest


def _body(source: Source, block: list[ast.stmt], indent: str) -> str:
    if len(block) == 1 and isinstance(block[0], ast.If):
        text = source.block_text(block[0])
        if source.text(block[0]).startswith("elif"):
            return text.replace("elif", "if", 1)
    return _indented(source.block_text(block[0], block[-1]), indent)


def move(source: Source, place: Place) -> Iterator[Rewrite]:
    """A statement earlier or later, one level out or in."""
    node, block = place.node, place.block
    if place.function is None or not _whole(source, place):
        return
    start, end = source.rows(node)
    indent, text = source.indent(node), source.block_text(node)
    for distance in (1, 2, 3):
        if place.index + distance < len(block) and _plain_row(source, block[place.index + distance]):
            other = block[place.index + distance]
            between = source.block_text(block[place.index + 1], other)
            sub = f"later-{distance}"
            yield sub, start, source.rows(other)[1], between + text
            if distance > 1:
                first = block[place.index]
                rest = source.block_text(first, block[place.index + distance - 1])
                yield f"earlier-{distance}", start, source.rows(other)[1], (
                    source.block_text(other) + rest
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
            yield "into-last", start, end, _indented(text, deeper)
            if getattr(before, "orelse", None):
                body_end = source.rows(before.body[-1])[1]  # type: ignore[attr-defined]
                deeper = source.indent(before.body[-1])  # type: ignore[attr-defined]
                kept = source.code[body_end:start]
                yield "into-body", body_end, end, _indented(text, deeper) + kept
    if place.index + 1 < len(place.block):
        after = place.block[place.index + 1]
        inner = getattr(after, "body", None)
        if inner and not isinstance(after, ast.FunctionDef) and _plain_row(source, inner[0]):
            head_end = source.rows(inner[0])[0]
            moved = source.code[end:head_end] + _indented(text, source.indent(inner[0]))
            yield "into-next", start, head_end, moved


def _outwards(
    source: Source, place: Place, start: int, end: int, text: str
) -> Iterator[Rewrite]:
    owner = place.owner
    if not isinstance(owner, ast.For | ast.While | ast.If) or not source.own_line(owner):
        return
    rest = "" if len(place.block) > 1 else f"{source.indent(place.node)}pass\n"
    out = source.indent(owner)
    moved = _indented(text, out)
    owner_start, owner_end = source.rows(owner)
    if not source.text(owner).startswith("elif"):
        kept = source.code[owner_start:start] + rest + source.code[end:owner_end]
        yield "out-before", owner_start, owner_end, moved + kept
    if place.index == len(place.block) - 1 and len(place.block) > 1 and end == owner_end:
        yield "out-after", start, end, moved
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
    numbers = [name for name in names if outer(kinds.name(name)) == "number"][:6]
    for one in numbers:
        for two in numbers:
            if one != two and (kind in ("", "list", "tuple") or text in (one, two)):
                yield "pair", start, end, f"return [{one}, {two}]"
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
    if isinstance(node, ast.For | ast.While) and node.orelse:
        body_end = source.rows(node.body[-1])[1]
        kept = source.block_text(node.orelse[0], node.orelse[-1])
        yield "else", body_end, source.rows(node)[1], _indented(kept, source.indent(node))


def _to_elif(source: Source, place: Place, start: int) -> Iterator[Rewrite]:
    before = place.block[place.index - 1] if place.index else None
    if isinstance(before, ast.If) and not before.orelse and _whole(source, place):
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
    if isinstance(node, ast.AugAssign) and type(node.op) in _SIGNS:
        target, value, sign = source.text(node.target), source.text(node.value), _SIGNS[type(node.op)]
        others = {"+": "-*", "-": "+", "*": "+", "//": "%", "/": "*", "%": "", "|": "&^"}
        for other in others.get(sign, ""):
            yield "augmented", start, end, f"{target} {other}= {value}"
        if sign == "//":
            yield "augmented", start, end, f"{target} /= {value}"
            yield "augmented", start, end, f"{target} %= {value}"
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


STATEMENT_FAMILIES = {
    "guard": guard,
    "insert": insert,
    "delete": delete,
    "move": move,
    "return": returned,
    "control": control,
    "arithmetic": augmented,
}
