"""A program as the operators see it: its text, its syntax tree, and where each part stands."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cached_property

from attrs import frozen

from orchestrion_repair.operators.kinds import Kinds

Function = ast.FunctionDef | ast.AsyncFunctionDef


@frozen
class Site:
    """An expression, the expression or statement right above it, and its statement."""

    node: ast.expr
    parent: ast.AST
    statement: ast.stmt
    function: Function | None

    @property
    def line(self) -> int:
        """The first line of the statement: what tests cover, and what is suspicious."""
        return self.statement.lineno


@frozen
class Place:
    """A statement in its block."""

    node: ast.stmt
    block: list[ast.stmt]
    index: int
    owner: ast.AST
    function: Function | None
    loop: bool


class Source:
    """A parsed program. `arguments` are the kinds of the entry point's arguments.

    `conditions` is a memory of the operators: what they suggest for each statement.

    Raises:
        SyntaxError: if the program cannot be parsed.
    """

    def __init__(self, code: str, entry_point: str = "", arguments: tuple[str, ...] = ()) -> None:
        self.code = code
        self.entry_point, self.arguments = entry_point, arguments
        self.tree = ast.parse(code)
        self._lines = code.splitlines(keepends=True)
        self._texts: dict[ast.AST, str] = {}
        self.conditions: dict[ast.stmt, list[tuple[str, str]]] = {}
        self._ascii = code.isascii()
        self._starts = [0]
        for line in self._lines:
            self._starts.append(self._starts[-1] + len(line))

    # ------------------------------------------------------------ text

    def offset(self, line: int, column: int) -> int:
        """Return the index in the text of a line (from 1) and a column in UTF-8 bytes."""
        if not self._ascii:
            text = self._lines[line - 1] if line <= len(self._lines) else ""
            column = len(text.encode()[:column].decode(errors="ignore"))
        return self._starts[line - 1] + column

    def span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        """Start and end of a node in the text."""
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return (
            self.offset(node.lineno, node.col_offset),
            self.offset(node.end_lineno, node.end_col_offset),
        )

    def text(self, node: ast.expr | ast.stmt) -> str:
        """Return the node as written."""
        text = self._texts.get(node)
        if text is None:
            start, end = self.span(node)
            text = self._texts[node] = self.code[start:end]
        return text

    def rows(self, first: ast.stmt, last: ast.stmt | None = None) -> tuple[int, int]:
        """Start and end of the whole lines from one statement to another, newline included."""
        last = last or first
        assert last.end_lineno is not None
        start = first.lineno
        for decorator in getattr(first, "decorator_list", ()):
            start = min(start, decorator.lineno)
        return self._starts[start - 1], self._starts[min(last.end_lineno, len(self._lines))]

    def block_text(self, first: ast.stmt, last: ast.stmt | None = None) -> str:
        """Whole lines, always ended by a newline."""
        start, end = self.rows(first, last)
        text = self.code[start:end]
        return text if text.endswith("\n") else text + "\n"

    def indent(self, node: ast.stmt) -> str:
        """Return the white space before a statement."""
        line = self._lines[node.lineno - 1]
        return line[: len(line) - len(line.lstrip())]

    def own_line(self, node: ast.stmt) -> bool:
        """Return whether a statement shares its first and last line with nothing else."""
        assert node.end_lineno is not None
        first, last = self._lines[node.lineno - 1], self._lines[node.end_lineno - 1]
        before = first[: len(first) - len(first.lstrip())]
        end = self.span(node)[1] - self._starts[node.end_lineno - 1]
        after = last[end:].strip()
        return len(before.encode()) == node.col_offset and (not after or after.startswith("#"))

    # ------------------------------------------------------------ structure

    @cached_property
    def places(self) -> list[Place]:
        """All statements but documentation, in the order they are written."""
        return list(_places(self.tree.body, self.tree, None, False))

    @cached_property
    def sites(self) -> list[Site]:
        """All expressions, in the order they are written; those of annotations are left out."""
        sites: list[Site] = []
        for place in self.places:
            function = place.function
            if isinstance(place.node, Function):
                function = place.node
            for expression in _own_expressions(place.node):
                sites.extend(_sites(expression, place.node, place.node, function))
        return sites

    @cached_property
    def functions(self) -> list[Function]:
        """All functions, outer ones first."""
        return [node for node in ast.walk(self.tree) if isinstance(node, Function)]

    def names(self, function: Function | None) -> tuple[str, ...]:
        """Parameters and variables of a function, in the order they first appear."""
        return self._names.get(function, ())

    @cached_property
    def _names(self) -> dict[Function | None, tuple[str, ...]]:
        return {function: tuple(_bound(function)) for function in self.functions}

    def used(self, node: ast.stmt) -> frozenset[str]:
        """Return the names a statement uses, with all that stands below it."""
        if node not in self._used:
            names = (n.id for n in ast.walk(node) if isinstance(n, ast.Name))
            self._used[node] = frozenset(names)
        return self._used[node]

    @cached_property
    def _used(self) -> dict[ast.stmt, frozenset[str]]:
        return {}

    def kinds(self, function: Function | None) -> Kinds:
        """Return what kind of value each of a function's names holds, as far as it can be told."""
        if function not in self._kinds:
            known = function is not None and function.name == self.entry_point
            self._kinds[function] = Kinds(function, self.arguments if known else ())
        return self._kinds[function]

    @cached_property
    def _kinds(self) -> dict[Function | None, Kinds]:
        return {}


def _bound(function: Function) -> dict[str, None]:
    names: dict[str, None] = {}
    arguments = function.args
    for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
        names[argument.arg] = None
    for extra in (arguments.vararg, arguments.kwarg):
        if extra is not None:
            names[extra.arg] = None
    stores = [
        node
        for node in ast.walk(function)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    ]
    for node in sorted(stores, key=lambda n: (n.lineno, n.col_offset)):
        names[node.id] = None
    return names


def _places(
    block: list[ast.stmt], owner: ast.AST, function: Function | None, loop: bool
) -> Iterator[Place]:
    for index, node in enumerate(block):
        if is_text(node):
            continue
        yield Place(node, block, index, owner, function, loop)
        inner = node if isinstance(node, Function) else function
        inside = isinstance(node, ast.For | ast.While) or (
            loop and not isinstance(node, Function | ast.ClassDef)
        )
        for name in ("body", "orelse", "finalbody"):
            yield from _places(getattr(node, name, None) or [], node, inner, inside)
        for part in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
            yield from _places(part.body, part, inner, inside)


def is_text(node: ast.stmt) -> bool:
    """Return whether a statement is documentation."""
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def _own_expressions(node: ast.stmt) -> Iterator[ast.expr]:
    """Yield the expressions of a statement's own line, not those of the blocks below it."""
    if isinstance(node, Function):
        yield from node.args.defaults
        yield from (default for default in node.args.kw_defaults if default is not None)
        return
    if isinstance(node, ast.ClassDef | ast.Import | ast.ImportFrom):
        return
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "type_comment"):
            continue
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, ast.expr):
                yield item
            elif isinstance(item, ast.withitem):
                yield item.context_expr


def _sites(
    node: ast.expr, parent: ast.AST, statement: ast.stmt, function: Function | None
) -> Iterator[Site]:
    if isinstance(node, ast.JoinedStr):  # the parts of an f-string have no places of their own
        return
    yield Site(node, parent, statement, function)
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr):
            yield from _sites(child, node, statement, function)
        elif isinstance(child, ast.comprehension):
            for part in (child.target, child.iter, *child.ifs):
                yield from _sites(part, child, statement, function)
        elif isinstance(child, ast.keyword):
            yield from _sites(child.value, child, statement, function)


# ---------------------------------------------------------------- texts for a site


Change = tuple[str, str]
"""A sub-kind, by which changes of a family are ranked, and the text for the site's span."""


def loose(site: Site) -> bool:
    """Return whether what stands around a site would take a new operand for its own."""
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
    """Return the text for this place, in parentheses if what stands around could tear it apart."""
    return f"({text})" if loose(site) else text


def operand_text(source: Source, node: ast.expr) -> str:
    """Return an expression's text that can be an operand of anything."""
    text = source.text(node)
    simple = (ast.Name, ast.Constant, ast.Call, ast.Attribute, ast.Subscript, ast.List, ast.Dict)
    return text if isinstance(node, simple) else f"({text})"


def is_value(site: Site) -> bool:
    """Return whether a site is read, and a thing of its own: no target, no called function."""
    if isinstance(site.parent, ast.Call) and site.parent.func is site.node:
        return False
    return not isinstance(getattr(site.node, "ctx", ast.Load()), ast.Store | ast.Del)


def kind_at(source: Source, site: Site, node: ast.expr | None = None) -> str:
    return source.kinds(site.function).of(node or site.node)
