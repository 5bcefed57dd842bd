"""Operators that change an expression. Each yields (what kind of change, new text) for a site."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from orchestrion_repair.operators.kinds import element, fits, outer
from orchestrion_repair.operators.source import Site, Source

__all__ = ["EXPRESSION_FAMILIES", "Change"]

Change = tuple[str, str]
"""A sub-kind, by which changes of a family are ranked, and the text for the site's span."""

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
_ARITHMETIC: dict[type[ast.operator], str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%",
    ast.Pow: "**", ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^", ast.LShift: "<<",
    ast.RShift: ">>",
}  # fmt: skip
_OTHERS = {
    "+": ("-", "*", "//"), "-": ("+", "*", "%"), "*": ("+", "**", "//", "-", "/"),
    "/": ("//", "*", "%"), "//": ("%", "/", "*", "-"), "%": ("//", "-", "*"), "**": ("*",),
    "&": ("|", "^", "-"), "|": ("&", "^", "-"), "^": ("&", "|"), "<<": (">>",), ">>": ("<<",),
}  # fmt: skip
_GROUPS = (
    "min max sum len", "any all", "append extend add insert", "pop popleft", "sorted reversed list",
    "lower upper title capitalize swapcase", "find rfind index", "startswith endswith",
    "strip lstrip rstrip", "keys values items", "int float round abs str", "list set tuple dict",
    "floor ceil", "isdigit isalpha isalnum isspace isupper islower isnumeric", "split rsplit",
    "union intersection difference symmetric_difference", "ljust rjust center zfill",
    "update add", "remove discard pop", "heappush heappushpop", "heappop heapreplace",
    "bisect_left bisect_right", "get setdefault pop", "permutations combinations product",
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
             "{}[-1]", "reversed({})", "{}[:]", "max({})", "min({})"),
    "dict": ("sorted({})", "{}.items()", "{}.values()", "len({})", "dict({})"),
    "set": ("sorted({})", "list({})", "len({})"),
    "tuple": ("list({})", "{}[0]", "{}[1]", "sorted({})"),
}  # fmt: skip


def _loose(site: Site) -> bool:
    """Whether what stands around a site would take a new operand for its own."""
    parent = site.parent
    if isinstance(parent, ast.Subscript | ast.Attribute):
        return site.node is parent.value
    if isinstance(parent, ast.Call):
        return site.node is parent.func
    return isinstance(
        parent,
        ast.BinOp | ast.BoolOp | ast.Compare | ast.UnaryOp | ast.Starred | ast.IfExp
        | ast.comprehension,
    )  # fmt: skip


def fit(site: Site, text: str) -> str:
    """The text for this place, in parentheses if what stands around could tear it apart."""
    return f"({text})" if _loose(site) else text


def _operand(source: Source, node: ast.expr) -> str:
    """An expression's text that can be an operand of anything."""
    text = source.text(node)
    simple = (ast.Name, ast.Constant, ast.Call, ast.Attribute, ast.Subscript, ast.List, ast.Dict)
    return text if isinstance(node, simple) else f"({text})"


def _is_value(site: Site) -> bool:
    """Whether a site is read, and a thing of its own: no target, no called function."""
    if isinstance(site.parent, ast.Call) and site.parent.func is site.node:
        return False
    return not isinstance(getattr(site.node, "ctx", ast.Load()), ast.Store | ast.Del)


def _kind(source: Source, site: Site, node: ast.expr | None = None) -> str:
    return source.kinds(site.function).of(node or site.node)


# ---------------------------------------------------------------- operators


def comparison(source: Source, site: Site) -> Iterator[Change]:
    """Another comparison."""
    node = site.node
    if not isinstance(node, ast.Compare):
        return
    parts = [_operand(source, node.left)]
    for operation, right in zip(node.ops, node.comparators, strict=True):
        parts += [_COMPARE[type(operation)], _operand(source, right)]
    for index in range(1, len(parts), 2):
        for rank, other in enumerate(_SWAPS[parts[index]]):
            text = " ".join([*parts[:index], other, *parts[index + 1 :]])
            yield f"swap-{min(rank, 2)}", fit(site, text)


def arithmetic(source: Source, site: Site) -> Iterator[Change]:
    """Another operator, operands the other way round, or one operand less."""
    node = site.node
    if not isinstance(node, ast.BinOp):
        return
    left, right = _operand(source, node.left), _operand(source, node.right)
    name = _ARITHMETIC.get(type(node.op), "")
    for rank, other in enumerate(_OTHERS.get(name, ())):
        yield f"swap-{min(rank, 2)}", fit(site, f"{left} {other} {right}")
    if name in ("-", "/", "//", "%", "**", "+") and not (
        name == "+" and fits("number", _kind(source, site))
    ):
        yield "order", fit(site, f"{right} {name} {left}")
    yield "drop", left
    yield "drop", right
    if isinstance(node.left, ast.BinOp):  # a + b - c as it was meant: a + (b - c), and the reverse
        inner = node.left
        one, two = _operand(source, inner.left), _operand(source, inner.right)
        sign = _ARITHMETIC[type(inner.op)]
        yield "group", fit(site, f"{one} {sign} ({two} {name} {right})")
    if isinstance(node.right, ast.BinOp):
        inner = node.right
        one, two = _operand(source, inner.left), _operand(source, inner.right)
        sign = _ARITHMETIC[type(inner.op)]
        yield "group", fit(site, f"({left} {name} {one}) {sign} {two}")


def off_by_one(source: Source, site: Site) -> Iterator[Change]:
    """One more or one less."""
    node = site.node
    if not _is_value(site) or isinstance(node, ast.Starred | ast.Slice | ast.Tuple | ast.BoolOp):
        return
    match node:
        case ast.Constant(int(value)) if not isinstance(node.value, bool):
            negative = isinstance(site.parent, ast.UnaryOp)
            if not negative:
                yield "constant", str(value + 1)
                yield "constant", str(value - 1) if value else fit(site, "-1")
        case ast.UnaryOp(ast.USub(), ast.Constant(int(value))):
            yield "constant", fit(site, str(-value - 1))
            yield "constant", fit(site, str(1 - value))
        case ast.BinOp(left, ast.Add(), ast.Constant(1)):
            yield "drop", source.text(left)
            yield "sign", fit(site, f"{_operand(source, left)} - 1")
        case ast.BinOp(left, ast.Sub(), ast.Constant(1)):
            yield "drop", source.text(left)
            yield "sign", fit(site, f"{_operand(source, left)} + 1")
        case _:
            if outer(_kind(source, site)) not in ("number", ""):
                return
            where = "bound" if _is_bound(site) else "value"
            text = _operand(source, node)
            yield where, fit(site, f"{text} - 1")
            yield where, fit(site, f"{text} + 1")


def _is_bound(site: Site) -> bool:
    """Whether a site is an end of a range, a slice, an index or a comparison."""
    parent = site.parent
    if isinstance(parent, ast.Call) and isinstance(parent.func, ast.Name):
        return parent.func.id == "range"
    if isinstance(parent, ast.Subscript):
        return site.node is parent.slice
    return isinstance(parent, ast.Slice | ast.Compare)


def operand(source: Source, site: Site) -> Iterator[Change]:
    """A missing term."""
    if not _is_value(site) or isinstance(site.node, ast.Constant | ast.Compare | ast.BoolOp):
        return
    if isinstance(site.parent, ast.Compare) and not isinstance(site.node, ast.Name | ast.Call):
        return
    kind, text = outer(_kind(source, site)), _operand(source, site.node)
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
        else:
            yield "before", fit(site, f"{name} + {text}")
    if kind != "number":
        return
    for value in _factors(source, site):
        yield "factor", fit(site, f"{text} * {value}")
        yield "divisor", fit(site, f"{text} // {value}")
        yield "remainder", fit(site, f"{text} % {value}")
    for call in _atoms(source, site, "number"):
        yield "term", fit(site, f"{text} + {call}")
        yield "term", fit(site, f"{text} - {call}")


# ---------------------------------------------------------------- conditions


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
    """A condition the other way round, `and` for `or`, one part less."""
    node = site.node
    if isinstance(node, ast.BoolOp):
        parts = [_operand_of_bool(source, value) for value in node.values]
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
        yield "negate", fit(site, f"not {_operand(source, node)}")
        if isinstance(site.parent, ast.If | ast.While | ast.comprehension):
            yield "constant", "True"
            yield "constant", "False"


def _operand_of_bool(source: Source, node: ast.expr) -> str:
    text = source.text(node)
    return f"({text})" if isinstance(node, ast.BoolOp | ast.IfExp | ast.Lambda) else text


def extend(source: Source, site: Site) -> Iterator[Change]:
    """A missing part of a condition."""
    if not _is_test(site) or isinstance(site.node, ast.Constant):
        return
    text = source.text(site.node)
    inner = _operand_of_bool(source, site.node)
    parts = site.node.values if isinstance(site.node, ast.BoolOp) else []
    there = {text, *map(source.text, parts)}
    for sub, extra in _conditions(source, site):
        if extra in there:
            continue
        yield f"and-{sub}", fit(site, f"{inner} and {extra}")
        yield f"or-{sub}", fit(site, f"{inner} or {extra}")
        if sub == "truth":
            yield "and-not", fit(site, f"{inner} and not {extra}")
            yield "or-not", fit(site, f"{inner} or not {extra}")
            yield "guarded", fit(site, f"{extra} and {inner}")


def _conditions(source: Source, site: Site) -> list[tuple[str, str]]:
    """Conditions that the rest of the function suggests for a statement."""
    if site.statement not in source.conditions:
        source.conditions[site.statement] = list(_suggested(source, site))
    return source.conditions[site.statement]


def _suggested(source: Source, site: Site) -> Iterator[tuple[str, str]]:
    seen = set()
    for other in source.sites:
        if other.function is site.function and isinstance(other.node, ast.Compare):
            text = source.text(other.node)
            if text not in seen and not isinstance(other.parent, ast.comprehension):
                seen.add(text)
                yield "copy", text
    kinds, names = source.kinds(site.function), source.names(site.function)
    near = source.used(site.statement)
    for name in names:
        kind = outer(kinds.name(name))
        if kind != "function":
            yield "truth", name
        if kind == "number" and name in near:
            yield from (("zero", f"{name} > 0"), ("zero", f"{name} == 0"), ("zero", f"{name} != 0"))
        if kind == "" and name in near:
            yield from (("none", f"{name} is None"), ("none", f"{name} is not None"))
    for one in names:
        kind = outer(kinds.name(one))
        for two in names:
            if one == two or (one not in near and two not in near):
                continue
            if one < two and kind in ("number", "str") and kind == outer(kinds.name(two)):
                for sign in ("==", "!=", "<", ">", "<=", ">=")[: 6 if kind == "number" else 2]:
                    yield "pair", f"{one} {sign} {two}"
            held = kinds.name(two)
            if outer(held) in ("list", "set", "dict") and kind not in ("list", "dict", "set"):
                if one in near and fits(kind, element(held)):
                    yield "member", f"{one} in {two}"
                    yield "member", f"{one} not in {two}"


# ---------------------------------------------------------------- names and values


def variable(source: Source, site: Site) -> Iterator[Change]:
    """Another variable."""
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
    if not isinstance(node, ast.Name) or node.id not in names:
        return
    stored = isinstance(node.ctx, ast.Store)
    for name in names:
        if name == node.id or not fits(kinds.name(node.id), kinds.name(name)):
            continue
        known = "same" if kinds.name(name) and kinds.name(node.id) else "any"
        yield ("target" if stored else f"{known}-kind"), name


def constant(source: Source, site: Site) -> Iterator[Change]:
    """Another constant, or one in place of a name."""
    node = site.node
    if not _is_value(site):
        return
    initial = isinstance(site.statement, ast.Assign) and site.parent is site.statement
    where = "initial" if initial else "inner"
    number = isinstance(node, ast.UnaryOp) and isinstance(node.operand, ast.Constant)
    if isinstance(node, ast.Constant) or number:
        if isinstance(site.parent, ast.UnaryOp) and isinstance(site.parent.op, ast.USub):
            return
        yield from _other_constants(source, site, where)
    elif initial or isinstance(site.statement, ast.Return) and site.parent is site.statement:
        if isinstance(node, ast.Name | ast.Subscript | ast.List | ast.Dict | ast.Call):
            for text in _DEFAULTS.get(outer(_kind(source, site)), ()):
                if text != source.text(node):
                    yield f"{where}-for", text
    elif isinstance(node, ast.Name) and outer(_kind(source, site)) == "number":
        for text in ("0", "1"):
            yield "for-name", text


_DEFAULTS = {
    "number": ("0", "1", 'float("inf")', 'float("-inf")', "-1"),
    "": ("None", "0", "1", "[]", '""', "True", "False"),
    "list": ("[]",),
    "str": ('""',),
    "dict": ("{}",),
    "bool": ("True", "False"),
}


def _other_constants(source: Source, site: Site, where: str) -> Iterator[Change]:
    text = source.text(site.node)
    seen = {text}
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
        if isinstance(value, int) and abs(value) > 2:
            choices += [str(value * 10), str(value // 10), str(value * 2), str(value // 2)]
    for choice in choices:
        if choice not in seen:
            seen.add(choice)
            yield f"{where}-common", fit(site, choice) if choice.startswith("-") else choice
    for other in source.sites:
        if isinstance(other.node, ast.Constant) and type(other.node.value) is type(value):
            choice = source.text(other.node)
            if choice not in seen:
                seen.add(choice)
                yield f"{where}-copy", choice


def _flips(value: str) -> list[str]:
    """Strings like this one: other case, blanks at the ends or none, one character less."""
    others = {value.upper(), value.lower(), value.strip(), value + " ", " " + value, value[:-1]}
    return sorted(repr(other) for other in others if other != value)


# ---------------------------------------------------------------- calls


def argument(source: Source, site: Site) -> Iterator[Change]:
    """Arguments, items or alternatives in another order, one less, one more."""
    node = site.node
    if isinstance(node, ast.IfExp):
        test, one, two = map(source.text, (node.test, node.body, node.orelse))
        yield "swap", fit(site, f"{two} if {test} else {one}")
    elif isinstance(node, ast.Tuple | ast.List):
        yield from _reordered(source, site, node.elts)
    elif isinstance(node, ast.Call):
        yield from _reordered(source, site, node.args)
        yield from _fewer(source, site, node)
        yield from _more(source, site, node)
        if isinstance(node.func, ast.Attribute) and len(node.args) == 1 and not isinstance(
            node.args[0], ast.Constant
        ):
            one, two = _operand(source, node.args[0]), source.text(node.func.value)
            yield "receiver", f"{one}.{node.func.attr}({two})"


def _reordered(source: Source, site: Site, items: list[ast.expr]) -> Iterator[Change]:
    if len(items) > 5:
        return
    for i in range(len(items)):
        for j in range(i + 1, len(items)):
            yield "swap", _respelt(source, site, {id(items[i]): items[j], id(items[j]): items[i]})


def _respelt(source: Source, site: Site, new: dict[int, ast.expr]) -> str:
    """The site's text with some of its parts replaced by others."""
    start, _ = source.span(site.node)
    text, shift = source.text(site.node), -start
    children = [c for c in ast.walk(site.node) if id(c) in new]
    for child in sorted(children, key=lambda c: source.span(c)[0]):  # type: ignore[arg-type]
        first, last = source.span(child)  # type: ignore[arg-type]
        put = source.text(new[id(child)])
        text = text[: first + shift] + put + text[last + shift :]
        shift += len(put) - (last - first)
    return text


def _fewer(source: Source, site: Site, node: ast.Call) -> Iterator[Change]:
    parts = _argument_texts(source, node)
    function = source.text(node.func)
    for index in range(len(parts)):
        yield "drop", f"{function}({', '.join(parts[:index] + parts[index + 1 :])})"


def _more(source: Source, site: Site, node: ast.Call) -> Iterator[Change]:
    parts = _argument_texts(source, node)
    function = source.text(node.func)
    name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
    first = _kind(source, site, node.args[0]) if node.args else ""
    extras: list[str] = []
    if name in ("sorted", "sort", "max", "min") and not any("reverse" in p for p in parts):
        extras += ["reverse=True"] if name.startswith("sort") else []
        extras += ["key=len"] if not any("key" in p for p in parts) else []
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


def _numbers_in_scope(source: Source, site: Site) -> list[str]:
    kinds = source.kinds(site.function)
    return [n for n in source.names(site.function) if outer(kinds.name(n)) == "number"]


def _argument_texts(source: Source, node: ast.Call) -> list[str]:
    texts = [source.text(argument) for argument in node.args]
    if len(texts) == 1 and isinstance(node.args[0], ast.GeneratorExp):
        texts = [text if text.startswith("(") else f"({text})" for text in texts]
    for keyword in node.keywords:
        value = source.text(keyword.value)
        texts.append(f"{keyword.arg}={value}" if keyword.arg else f"**{value}")
    return texts


def function(source: Source, site: Site) -> Iterator[Change]:
    """Another function or method of the same sort."""
    node = site.node
    if not isinstance(node, ast.Call):
        return
    name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
    others = [o for group in _GROUPS if name in group.split() for o in group.split() if o != name]
    others += [
        other.name
        for other in source.functions
        if other.name != name and isinstance(node.func, ast.Name) and len(others) < 12
    ]
    whole, start = source.text(node), source.span(node)[0]
    end = source.span(node.func)[1] - start
    for rank, other in enumerate(dict.fromkeys(others)):
        text = f"{whole[: end - len(name)]}{other}{whole[end:]}"
        yield f"group-{min(rank, 2)}", text


def unwrap(source: Source, site: Site) -> Iterator[Change]:
    """A call, sign or index that is too much."""
    node = site.node
    if not _is_value(site):
        return
    match node:
        case ast.Call(ast.Name(), [first, *_]) if not isinstance(
            first, ast.GeneratorExp | ast.Starred
        ):
            yield "call", _operand(source, first) if _loose(site) else source.text(first)
        case ast.Call(ast.Attribute(value), arguments):
            yield "method", source.text(value)
            if arguments and isinstance(value, ast.Name) and not source.kinds(site.function).of(
                value
            ):
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
    """A missing call, sign or index."""
    node = site.node
    if not _is_value(site) or isinstance(node, ast.Slice | ast.Starred | ast.Lambda):
        return
    kind = _kind(source, site)
    text, whole = _operand(source, node), source.text(node)
    if isinstance(node, ast.Constant) and not isinstance(node.value, str):
        return
    for rank, form in enumerate(_WRAPS.get(outer(kind), ())):
        done = form.format(text if form.startswith(("{", "-", "not")) else whole)
        yield f"{outer(kind) or 'any'}-{min(rank, 3)}", fit(site, done) if done[0] in "-n" else done
    kinds = source.kinds(site.function)
    for name in source.names(site.function):
        holder = kinds.name(name)
        if outer(holder) in ("list", "dict", "str") and outer(kind) in ("number", "") and (
            isinstance(node, ast.Name) and name != text
        ):
            yield "lookup", f"{name}[{whole}]"


# ---------------------------------------------------------------- parts of the function


def graft(source: Source, site: Site) -> Iterator[Change]:
    """Another expression of the function in this place."""
    if not _is_value(site) or isinstance(site.node, ast.GeneratorExp):
        return
    node, kind, text = site.node, _kind(source, site), source.text(site.node)
    if isinstance(node, ast.Slice | ast.Starred):
        return
    seen = {text}
    for other in source.sites:
        if other.function is not site.function or not _is_value(other):
            continue
        if isinstance(
            other.node,
            ast.Name | ast.Constant | ast.Slice | ast.Starred | ast.GeneratorExp | ast.Tuple,
        ):
            continue
        copy = source.text(other.node)
        if copy in seen or len(copy) > 60 or not fits(kind, _kind(source, other)):
            continue
        seen.add(copy)
        same = type(other.node) is type(node)
        yield ("like" if same else "unlike"), fit(site, copy)
    if isinstance(node, ast.Call | ast.Subscript | ast.BinOp):
        for name in source.names(site.function):
            if fits(kind, source.kinds(site.function).name(name)):
                yield "name", name


def slices(source: Source, site: Site) -> Iterator[Change]:
    """Other ends of a slice, another index."""
    node = site.node
    if not isinstance(node, ast.Subscript):
        return
    value = source.text(node.value)
    if isinstance(node.slice, ast.Slice):
        lower, upper, step = (
            source.text(part) if part is not None else ""
            for part in (node.slice.lower, node.slice.upper, node.slice.step)
        )
        tail = f":{step}" if step else ""
        for one, two in _ends(lower, upper):
            if (one, two) != (lower, upper):
                yield "ends", f"{value}[{one}:{two}{tail}]"
        for other in ("", ":2", ":-1"):
            if other != tail:
                yield "step", f"{value}[{lower}:{upper}{other}]"
        return
    index = source.text(node.slice)
    kind = outer(_kind(source, site, node.value))
    if kind in ("list", "str", "tuple", ""):
        for other in ("0", "-1", "1", f"-{index}", f"{index} + 1", f"{index} - 1"):
            if other != index and (other != f"-{index}" or index.isidentifier()):
                yield "index", f"{value}[{other}]"
        yield "slice", f"{value}[{index}:]"
        yield "slice", f"{value}[:{index}]"
    if kind == "dict" and isinstance(node.ctx, ast.Load):
        yield "get", f"{value}.get({index})"
        yield "get", f"{value}.get({index}, 0)"


def _ends(lower: str, upper: str) -> list[tuple[str, str]]:
    ends = [(upper, lower), (lower, ""), ("", upper), ("", lower), (upper, "")]
    for one in dict.fromkeys((lower, f"{lower} + 1" if lower else "1", "0")):
        for two in dict.fromkeys((upper, f"{upper} + 1" if upper else "-1", f"{upper} - 1")):
            ends.append((one, two if upper or two == "-1" else upper))
    return list(dict.fromkeys(ends))


def _factors(source: Source, site: Site) -> list[int]:
    """Numbers from 2 on that stand in the function."""
    found = {
        other.node.value
        for other in source.sites
        if other.function is site.function
        and isinstance(other.node, ast.Constant)
        and type(other.node.value) is int
        and other.node.value > 1
    }
    return sorted({2, 10, *found})[:6]


def _atoms(source: Source, site: Site, kind: str) -> list[str]:
    """Short expressions of one kind that stand elsewhere in the function."""
    found: dict[str, None] = {}
    for other in source.sites:
        if other.function is site.function and isinstance(other.node, ast.Call | ast.Subscript):
            text = source.text(other.node)
            if len(text) <= 24 and _is_value(other) and outer(_kind(source, other)) == kind:
                found[text] = None
    return list(found)[:6]


EXPRESSION_FAMILIES = {
    "comparison": comparison,
    "off-by-one": off_by_one,
    "arithmetic": arithmetic,
    "condition": condition,
    "extend": extend,
    "variable": variable,
    "constant": constant,
    "argument": argument,
    "function": function,
    "unwrap": unwrap,
    "wrap": wrap,
    "operand": operand,
    "graft": graft,
    "slice": slices,
}
