"""Operators on calls: arguments, the function, a call too much or missing."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import combinations

from orchestrion_repair.operators.kinds import fits, outer
from orchestrion_repair.operators.source import (
    Change,
    Site,
    Source,
    fit,
    is_value,
    kind_at,
    loose,
    operand_text,
)

_GROUPS = (
    "min max sum len", "any all", "append extend add insert", "pop popleft", "sorted reversed list",
    "lower upper title capitalize swapcase", "find rfind index", "startswith endswith",
    "strip lstrip rstrip", "keys values items", "int float round abs str", "list set tuple dict",
    "floor ceil", "isdigit isalpha isalnum isspace isupper islower isnumeric", "split rsplit",
    "union intersection difference symmetric_difference", "ljust rjust center zfill",
    "update add", "remove discard pop", "discard remove add", "heappush heappushpop",
    "heappop heapreplace",
    "bisect_left bisect_right", "get setdefault pop", "clear pop",
    "permutations combinations product",
    "partition rpartition", "enumerate range zip", "lower casefold", "count index",
    "append appendleft", "ord chr int str",
)  # fmt: skip
_WRAPS = {
    "number": ("abs({})", "int({})", "str({})", "round({})", "max({}, 0)", "-{}"),
    "bool": ("not {}",),
    "": ("not {}", "len({})", "sorted({})", "reversed({})", "str({})", "list({})", "int({})",
         "abs({})", "{}[0]", "{}[-1]"),
    "str": ("{}.lower()", "{}.strip()", "int({})", "len({})", "{}.split()", "{}.upper()",
            "{}.rstrip()", "{}[::-1]", "list({})", "{}.lstrip()"),
    "list": ("sorted({})", "len({})", "list({})", "set({})", "{}[::-1]", "sum({})", "{}[0]",
             "{}[-1]", "reversed({})", "{}[:]", "max({})", "min({})", "sorted({}, reverse=True)",
             "sorted({}, key=len)", "sorted({}, key=abs)",
             "[{}]"),
    "dict": ("sorted({})", "{}.items()", "{}.values()", "len({})", "dict({})"),
    "set": ("sorted({})", "list({})", "len({})", "set({})"),
    "tuple": ("list({})", "{}[0]", "{}[1]", "sorted({})"),
}  # fmt: skip


def argument(source: Source, site: Site) -> Iterator[Change]:
    """Yield arguments, items or alternatives in another order, one less, one more."""
    node = site.node
    if isinstance(node, ast.IfExp):
        test, first, second = map(source.text, (node.test, node.body, node.orelse))
        yield "swap", fit(site, f"{second} if {test} else {first}")
    elif isinstance(node, ast.Tuple | ast.List):
        yield from _reordered(source, site, node.elts)
    elif isinstance(node, ast.Call):
        yield from _reordered(source, site, node.args)
        parts, called = _argument_texts(source, node), source.text(node.func)
        for index in range(len(parts)):
            yield "drop", f"{called}({', '.join(parts[:index] + parts[index + 1 :])})"
        yield from _more(source, site, node)
        if isinstance(node.func, ast.Name) and node.func.id == "range" and len(node.args) == 2:
            yield from _whole_range(source, node)
        match node:
            case ast.Call(_, [ast.Constant()]):
                pass
            case ast.Call(ast.Attribute(held, name), [given]):
                yield "receiver", f"{operand_text(source, given)}.{name}({source.text(held)})"


def _reordered(source: Source, site: Site, items: list[ast.expr]) -> Iterator[Change]:
    if len(items) > 5:
        return
    begin, end = source.span(site.node)
    for first, second in combinations(items, 2):
        (start, stop), (start_2, stop_2) = source.span(first), source.span(second)
        head, middle, tail = (begin, start), (stop, start_2), (stop_2, end)
        order = (head, (start_2, stop_2), middle, (start, stop), tail)
        yield "swap", "".join(source.code[slice(*span)] for span in order)


def _more(source: Source, site: Site, node: ast.Call) -> Iterator[Change]:
    parts = _argument_texts(source, node)
    function = source.text(node.func)
    name = _name(node)
    first = kind_at(source, site, node.args[0]) if node.args else ""
    extras: list[str] = []
    if name in ("sorted", "sort", "max", "min") and not any("reverse" in p for p in parts):
        extras += ["reverse=True"] if name.startswith("sort") else []
        extras += _keys(source, site) if not any("key" in p for p in parts) else []
    if name in ("range", "enumerate", "sum", "get", "pop", "int", "split", "round", "insert"):
        extras += {"range": ["2", "-1"], "enumerate": ["1"], "pop": ["0", "-1"]}.get(name, ["0"])
        extras += ["1", "None"] if name in ("get", "pop") else []
    if name == "range" and len(parts) == 1:
        for start in ("1", "2", *_numbers_in_scope(source, site)):
            yield "start", f"{function}({start}, {parts[0]})"
    if name in ("min", "max", "append", "replace", "get", "pop", "index", "find", "join"):
        kinds = source.kinds(site.function)
        if not node.keywords:
            extras += [n for n in source.names(site.function) if fits(kinds.name(n), first)][:6]
    if name in ("min", "max"):
        extras += ["default=0"]
    for extra in extras:
        if extra not in parts and ("=" in extra or not node.keywords):
            yield "add", f"{function}({', '.join([*parts, extra])})"


def _keys(source: Source, site: Site) -> list[str]:
    """Return what to order by, instead of the items themselves."""
    kinds, names = source.kinds(site.function), source.names(site.function)
    tables = [f"key={name}.get" for name in names if outer(kinds.name(name)) == "dict"]
    own = [f"key={function.name}" for function in source.functions[:4]]
    common = ["key=len", "key=abs", "key=str", "key=lambda item: item[0]"]
    common += ["key=lambda item: item[1]", "key=lambda item: (len(item), item)"]
    return [*common, *tables, *own]


def _whole_range(source: Source, node: ast.Call) -> Iterator[Change]:
    """Yield a range from 0, or up to a number itself instead of one more or less."""
    last = node.args[1]
    ends = [source.text(last)]
    if isinstance(last, ast.BinOp) and isinstance(last.right, ast.Constant):
        ends.append(source.text(last.left))
    for end in ends:
        yield "range", f"range({end})"
        yield "range", f"range(1, {end})"


def _numbers_in_scope(source: Source, site: Site) -> list[str]:
    kinds = source.kinds(site.function)
    return [n for n in source.names(site.function) if outer(kinds.name(n)) == "number"]


def _name(node: ast.Call) -> str:
    """Return the name of the function or method; "" if it has none."""
    return getattr(node.func, "id", "") or getattr(node.func, "attr", "")


def _argument_texts(source: Source, node: ast.Call) -> list[str]:
    texts = [source.text(argument) for argument in node.args]
    if len(texts) == 1 and isinstance(node.args[0], ast.GeneratorExp):
        texts = [text if text.startswith("(") else f"({text})" for text in texts]
    for keyword in node.keywords:
        value = source.text(keyword.value)
        texts.append(f"{keyword.arg}={value}" if keyword.arg else f"**{value}")
    return texts


def function(source: Source, site: Site) -> Iterator[Change]:
    """Yield another function or method of the same sort."""
    node = site.node
    if not isinstance(node, ast.Call):
        return
    name = _name(node)
    others = [o for group in _GROUPS if name in group.split() for o in group.split() if o != name]
    others += [
        other.name
        for other in source.functions
        if other.name != name and isinstance(node.func, ast.Name) and len(others) < 12
    ]
    if isinstance(node.func, ast.Attribute):
        held, given = source.text(node.func.value), [source.text(a) for a in node.args]
        if name == "insert" and len(given) == 2:
            yield "end", f"{held}.append({given[1]})"
        elif name == "append" and len(given) == 1:
            yield "end", f"{held}.insert(0, {given[0]})"
    whole, start = source.text(node), source.span(node)[0]
    end = source.span(node.func)[1] - start
    for rank, other in enumerate(dict.fromkeys(others)):
        text = f"{whole[: end - len(name)]}{other}{whole[end:]}"
        yield f"group-{min(rank, 2)}", text


def unwrap(source: Source, site: Site) -> Iterator[Change]:
    """Yield a call, sign or index that is too much."""
    node = site.node
    if not is_value(site):
        return
    match node:
        case ast.Call(ast.Name(), [first, *_]) if not isinstance(
            first, ast.GeneratorExp | ast.Starred
        ):
            yield "call", operand_text(source, first) if loose(site) else source.text(first)
        case ast.Call(ast.Attribute(value), arguments):
            yield "method", source.text(value)
            if arguments and isinstance(value, ast.Name) and not kind_at(source, site, value):
                yield "call", source.text(arguments[0])
        case ast.Subscript(value):
            yield "index", source.text(value)
        case ast.UnaryOp(ast.USub() | ast.Not(), value):
            yield "sign", source.text(value)
        case ast.IfExp(_, one, two):
            yield "branch", fit(site, source.text(one))
            yield "branch", fit(site, source.text(two))
        case ast.List([item]) | ast.Tuple([item]):
            yield "item", source.text(item)


def wrap(source: Source, site: Site) -> Iterator[Change]:
    """Yield a missing call, sign or index."""
    node = site.node
    if not is_value(site) or isinstance(node, ast.Slice | ast.Starred | ast.Lambda):
        return
    kind = kind_at(source, site)
    text, whole = operand_text(source, node), source.text(node)
    if isinstance(node, ast.Constant) and not isinstance(node.value, str):
        return
    for rank, form in enumerate(_WRAPS.get(outer(kind), ())):
        done = form.format(text if form.startswith(("{", "-", "not")) else whole)
        yield f"{outer(kind) or 'any'}-{min(rank, 3)}", fit(site, done) if done[0] in "-n" else done
    if isinstance(node, ast.Subscript):
        held, table = source.text(node.value), outer(kind_at(source, site, node.value))
        if table in ("list", "tuple", "dict"):
            for call in ("sum", "max", "min", "len"):  # of all items, not one of them
                yield "all-items", f"{call}({held})"
    for other in source.functions:  # the result of a recursive call, not what it is called with
        if isinstance(node, ast.Name | ast.Subscript) and len(other.args.args) == 1:
            yield "own", f"{other.name}({whole})"
    if isinstance(node, ast.Subscript) and not isinstance(node.slice, ast.Slice):
        may_be_dict = table == "" and not isinstance(node.slice, ast.Constant)
        if table == "dict" or may_be_dict:
            for value in ("0", "1", "None", "[]", "''"):  # for a key that is missing
                yield "default", f"{held}.get({source.text(node.slice)}, {value})"
    if isinstance(node, ast.Name) and outer(kind) in ("number", ""):
        for name in source.names(site.function):
            holder = outer(source.kinds(site.function).name(name))
            if holder in ("list", "dict", "str") and name != text:
                yield "lookup", f"{name}[{whole}]"
