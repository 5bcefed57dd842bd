"""Operators on names, constants, indices, and whole expressions."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from orchestrion_repair.operators.kinds import fits, outer
from orchestrion_repair.operators.source import Change, Site, Source, fit, is_value, kind_at


def variable(source: Source, site: Site) -> Iterator[Change]:
    """Yield another variable."""
    node = site.node
    if site.function is None:
        return
    names, kinds = source.names(site.function), source.kinds(site.function)
    if isinstance(node, ast.Constant) and not isinstance(site.parent, ast.UnaryOp):
        kind = kinds.of(node)
        for name in names:
            if kinds.name(name) and fits(kinds.name(name), kind) and kind not in ("bool", "none"):
                yield "for-constant", name
        return
    if isinstance(node, ast.Attribute) and not _is_called(site):
        for name in _attributes(source):
            if name != node.attr:
                yield "attribute", f"{source.text(node.value)}.{name}"
    if site.parent is site.statement and is_value(site):
        yield from _throughout(source, site)
    if not isinstance(node, ast.Name) or node.id not in names:
        return
    for name in names:
        if fits(kinds.name(node.id), kinds.name(name)):
            known = "same-kind" if kinds.name(name) and kinds.name(node.id) else "any-kind"
            yield ("target" if isinstance(node.ctx, ast.Store) else known), name


def _throughout(source: Source, site: Site) -> Iterator[Change]:
    """Yield two variables exchanged in an expression, or one for another wherever it stands."""
    kinds, text = source.kinds(site.function), source.text(site.node)
    names = source.names(site.function)
    used = [name for name in names if re.search(_NAMED.format(name), text)]
    for i, name in enumerate(used):
        for second in used[i + 1 :]:
            if fits(kinds.name(name), kinds.name(second)):
                held = re.sub(_NAMED.format(name), "\0", text)
                yield "exchange", re.sub(_NAMED.format(second), name, held).replace("\0", second)
        if len(re.findall(_NAMED.format(name), text)) > 1:
            for other in names:
                if fits(kinds.name(name), kinds.name(other)):
                    yield "everywhere", re.sub(_NAMED.format(name), other, text)


_NAMED = r"(?<![\w.'\"]){}(?![\w'\"])"
"""A name as a part of an expression."""


def _is_called(site: Site) -> bool:
    return isinstance(site.parent, ast.Call) and site.parent.func is site.node


def _attributes(source: Source) -> list[str]:
    """Return the attributes that the program reads or sets, and does not call."""
    read = [site for site in source.sites if not _is_called(site)]
    names = [site.node.attr for site in read if isinstance(site.node, ast.Attribute)]
    return list(dict.fromkeys(names))[:8]


def constant(source: Source, site: Site) -> Iterator[Change]:
    """Yield another constant, or one in place of a name."""
    node, alone = site.node, site.parent is site.statement
    if not is_value(site):
        return
    if alone:
        yield from _exchanged(source, site)
    initial = isinstance(site.statement, ast.Assign) and alone
    if initial:
        yield from (("seed", text) for text in _seeds(source, site))
    where = "initial" if initial else "inner"
    number = isinstance(node, ast.UnaryOp) and isinstance(node.operand, ast.Constant)
    if isinstance(node, ast.Constant) or number:
        if isinstance(site.parent, ast.UnaryOp) and isinstance(site.parent.op, ast.USub):
            return
        yield from _other_constants(source, site, where)
    elif initial or (isinstance(site.statement, ast.Return) and alone):
        if isinstance(node, ast.Name | ast.Subscript | ast.List | ast.Dict | ast.Call):
            for text in _DEFAULTS.get(outer(kind_at(source, site)), ()):
                yield f"{where}-for", text
    elif isinstance(node, ast.Name) and outer(kind_at(source, site)) == "number":
        for text in ("0", "1"):
            yield "for-name", text


_DIGITS = re.compile(r"(?<![\w.])\d+(?:\.\d+)?(?![\w.])")


def _exchanged(source: Source, site: Site) -> Iterator[Change]:
    """Yield two numbers of an expression exchanged; one more or less wherever a number stands."""
    text = source.text(site.node)
    places = [(match.start(), match[0]) for match in _DIGITS.finditer(text)]
    if "'" in text or '"' in text or not 1 < len(places) < 7:
        return
    for i, (at, value) in enumerate(places):
        for then, second in places[i + 1 :]:
            middle, tail = text[at + len(value) : then], text[then + len(second) :]
            yield "exchange", f"{text[:at]}{second}{middle}{value}{tail}"
    for number in sorted({value for _, value in places if value.isdigit()}):
        if sum(value == number for _, value in places) > 1:
            whole = re.compile(rf"(?<![\w.]){number}(?![\w.])")
            for other in (int(number) - 1, int(number) + 1):
                if other >= 0:
                    yield "everywhere", whole.sub(str(other), text)
    for ending in (" - 1", " + 1"):
        if text.count(ending) > 1:
            yield "everywhere", text.replace(ending, "")


def _seeds(source: Source, site: Site) -> Iterator[str]:
    """Yield what an empty collection could begin with."""
    node, text = site.node, source.text(site.node)
    names = [
        name
        for name in source.names(site.function)
        if name not in source.used(site.statement)
        and outer(source.kinds(site.function).name(name)) not in ("list", "dict", "set", "function")
    ][:4]
    if text == "[]":
        yield from (f"[{item}]" for item in (*names, "0", "1", "[]", '""'))
    elif text == "set()":
        yield from (f"{{{item}}}" for item in (*names, "0"))
    elif isinstance(node, ast.Dict) and not node.keys:
        for key in (*names, "0"):
            yield from (f"{{{key}: {value}}}" for value in ("0", "1", "None", "-1"))


_DEFAULTS = {
    "number": ("0", "1", 'float("inf")', 'float("-inf")', "-1"),
    "": ("None", "0", "1", "[]", '""', "True", "False"),
    "list": ("[]",),
    "str": ('""',),
    "dict": ("{}",),
    "bool": ("True", "False"),
}


def _other_constants(source: Source, site: Site, where: str) -> Iterator[Change]:
    value = getattr(site.node, "value", -1)
    if isinstance(value, bool):
        yield f"{where}-flip", str(not value)
        return
    if value is None:
        choices = ["0", "False", "True", "[]", '""', "1", "-1"]
    elif isinstance(value, str):
        choices = ['""', '" "', *_flips(value)]
    else:
        choices = ["0", "1", "2", "-1", "10", 'float("inf")', 'float("-inf")', "None"]
        if isinstance(value, float):
            choices += [repr(value * factor) for factor in (10, 0.1, 2, 0.5)]
        if isinstance(value, int) and abs(value) > 2:
            choices += [str(value * 10), str(value // 10), str(value * 2), str(value // 2)]
            digits = str(abs(value))
            for i in range(len(digits) - 1):
                turned = digits[:i] + digits[i + 1] + digits[i] + digits[i + 2 :]
                choices += [turned] if turned[0] != "0" else []
    for choice in choices:
        if choice != source.text(site.node):
            yield f"{where}-common", fit(site, choice) if choice.startswith("-") else choice
    for other in source.sites:
        if isinstance(other.node, ast.Constant) and type(other.node.value) is type(value):
            yield f"{where}-copy", source.text(other.node)
    if value is not None:
        for choice in _quoted(source) if isinstance(value, str) else _counted(source):
            yield f"{where}-quoted", choice


_BRACKETS = str.maketrans("()[]{}", "[]{}()")


def _flips(value: str) -> list[str]:
    """Return texts like this one: of other case, blanks or brackets, or a character shorter."""
    others = {
        value.upper(), value.lower(), value.capitalize(), value.title(), value.swapcase(),
        value + value.upper(), value.strip(), value + " ", " " + value, value[:-1], value[1:],
        value.translate(_BRACKETS), value.translate(_BRACKETS).translate(_BRACKETS),
    }  # fmt: skip
    return sorted(repr(other) for other in others if other != value)


_NUMBER = re.compile(r"(?<![\w.,-])\d{1,6}(?:\.\d{1,6})?(?![\w.]*\w|[,\]])")


def _documents(source: Source) -> list[str]:
    return [ast.get_docstring(node) or "" for node in (source.tree, *source.functions)]


def _counted(source: Source) -> list[str]:
    """Return numbers that the documentation's text names, not those of examples in it."""
    rows = [row for text in _documents(source) for row in text.split(">>>")[0].split("\n")]
    numbers = [text for row in rows for text in _NUMBER.findall(row)]
    return [text for text in dict.fromkeys(numbers) if text == "0" or text[0] != "0"][:8]


_QUOTED = re.compile(r"(?<!\w)'([^'\n]{1,20})'(?!\w)|\"([^\"\n]{1,20})\"")


def _quoted(source: Source) -> list[str]:
    """Return short texts that the documentation quotes, as a program writes them."""
    pairs = [pair for text in _documents(source) for pair in _QUOTED.findall(text)]
    quoted = dict.fromkeys(single or double for single, double in pairs)
    return [repr(text) for text in quoted][:12]


_UNFIT = ast.Name | ast.Constant | ast.Slice | ast.Starred | ast.GeneratorExp | ast.Tuple
"""What is not worth a copy elsewhere, or cannot stand there."""


def graft(source: Source, site: Site) -> Iterator[Change]:
    """Yield another expression of the function in this place."""
    yield from _other_target(source, site)
    if not is_value(site) or isinstance(site.node, ast.GeneratorExp):
        return
    node, kind, text = site.node, kind_at(source, site), source.text(site.node)
    if isinstance(node, ast.Slice | ast.Starred):
        return
    for other in source.sites:
        if other.function is not site.function or not is_value(other):
            continue
        if isinstance(other.node, _UNFIT):
            continue
        copy = source.text(other.node)
        if copy != text and len(copy) <= 60 and fits(kind, kind_at(source, other)):
            yield ("like" if type(other.node) is type(node) else "unlike"), fit(site, copy)
    if isinstance(node, ast.Call | ast.Subscript | ast.BinOp):
        for name in source.names(site.function):
            if fits(kind, source.kinds(site.function).name(name)):
                yield "name", name


def _other_target(source: Source, site: Site) -> Iterator[Change]:
    """Yield something else that the function sets, in place of what is assigned here."""
    stored = isinstance(getattr(site.node, "ctx", None), ast.Store)
    if not stored or not isinstance(site.statement, ast.Assign | ast.AugAssign):
        return
    for other in source.sites:
        if other.function is site.function and isinstance(other.node, ast.Subscript):
            if isinstance(other.node.slice, ast.Slice):
                continue
            yield "target", source.text(other.node)


def slices(source: Source, site: Site) -> Iterator[Change]:
    """Yield other ends of a slice, another index, a slice of what is used whole."""
    node = site.node
    yield from _cuts(source, site)
    if not isinstance(node, ast.Subscript):
        return
    value = source.text(node.value)
    if isinstance(node.slice, ast.Slice):
        lower, upper, step = (
            source.text(part) if part is not None else ""
            for part in (node.slice.lower, node.slice.upper, node.slice.step)
        )
        tail = f":{step}" if step else ""
        for start, end in _ends(lower, upper):
            if (start, end) != (lower, upper):
                yield "ends", f"{value}[{start}:{end}{tail}]"
        for other in ("", ":2", ":-1"):
            if other != tail:
                yield "step", f"{value}[{lower}:{upper}{other}]"
        return
    index = source.text(node.slice)
    kind = outer(kind_at(source, site, node.value))
    if kind in ("list", "str", "tuple", ""):
        for other in ("0", "-1", "1", f"-{index}", f"{index} + 1", f"{index} - 1"):
            if other != index and (other != f"-{index}" or index.isidentifier()):
                yield "index", f"{value}[{other}]"
        yield "slice", f"{value}[{index}:]"
        yield "slice", f"{value}[:{index}]"
    if kind == "dict" and isinstance(node.ctx, ast.Load):
        yield "get", f"{value}.get({index})"
        yield "get", f"{value}.get({index}, 0)"


def _cuts(source: Source, site: Site) -> Iterator[Change]:
    """Yield the site without its first or last items, or up to a number the function knows."""
    node, kinds = site.node, source.kinds(site.function)
    if not isinstance(node, ast.Name | ast.Call | ast.List | ast.ListComp | ast.Attribute):
        return
    if not is_value(site) or isinstance(site.parent, ast.Subscript | ast.Attribute):
        return
    if outer(kind_at(source, site)) not in ("list", "str", "tuple"):
        return
    text = source.text(node)
    for ends in ("1:", ":-1"):
        yield "cut", f"{text}[{ends}]"
    for name in source.names(site.function):
        if outer(kinds.name(name)) == "number" and name != text:
            yield "cut-at", f"{text}[:{name}]"
            yield "cut-at", f"{text}[{name}:]"


def _ends(lower: str, upper: str) -> Iterator[tuple[str, str]]:
    yield from ((upper, lower), (lower, ""), ("", upper), ("", lower), (upper, ""))
    for start in (lower, f"{lower} + 1" if lower else "1", "0"):
        for end in (upper, f"{upper} + 1", f"{upper} - 1") if upper else ("", "-1"):
            yield start, end
