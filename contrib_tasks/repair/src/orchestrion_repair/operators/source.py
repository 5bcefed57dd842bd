"""A program as the operators see it: its text, its syntax tree, and where each part stands."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cached_property
from itertools import accumulate

from attrs import frozen

from orchestrion_repair.harness import is_text
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
        """Return the first line of the statement: what tests cover, and what is suspicious."""
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

    `conditions` keeps what the operators suggest for each statement; `functions` are all
    functions, outer ones first.

    Raises:
        SyntaxError: if the program cannot be parsed.
    """

    def __init__(self, code: str, entry_point: str = "", arguments: tuple[str, ...] = ()) -> None:
        self.code = code
        self.entry_point, self.arguments = entry_point, arguments
        self.tree = ast.parse(code)
        self.functions = [node for node in ast.walk(self.tree) if isinstance(node, Function)]
        self.conditions: dict[ast.stmt, list[tuple[str, str]]] = {}
        self._lines = code.splitlines(keepends=True)
        self._starts = list(accumulate(map(len, self._lines), initial=0))
        self._ascii = code.isascii()
        self._names = {function: tuple(_bound(function)) for function in self.functions}
        self._texts: dict[ast.AST, str] = {}
        self._used: dict[ast.stmt, frozenset[str]] = {}
        self._kinds: dict[Function | None, Kinds] = {}

    # ------------------------------------------------------------ text

    def offset(self, line: int, column: int) -> int:
        """Return the index in the text of a line (from 1) and a column in UTF-8 bytes."""
        if not self._ascii:
            text = self._lines[line - 1] if line <= len(self._lines) else ""
            column = len(text.encode()[:column].decode(errors="ignore"))
        return self._starts[line - 1] + column

    def span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        """Return the start and the end of a node in the text."""
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        start = self.offset(node.lineno, node.col_offset)
        return start, self.offset(node.end_lineno, node.end_col_offset)

    def text(self, node: ast.expr | ast.stmt) -> str:
        """Return the node as written."""
        text = self._texts.get(node)
        if text is None:
            text = self._texts[node] = self.code[slice(*self.span(node))]
        return text

    def rows(self, first: ast.stmt, last: ast.stmt | None = None) -> tuple[int, int]:
        """Return start and end of the whole lines of some statements, newline included."""
        last = last or first
        assert last.end_lineno is not None
        decorators = getattr(first, "decorator_list", ())
        start = min([first.lineno, *(decorator.lineno for decorator in decorators)])
        return self._starts[start - 1], self._starts[min(last.end_lineno, len(self._lines))]

    def block_text(self, first: ast.stmt, last: ast.stmt | None = None) -> str:
        """Return the whole lines of some statements, always ended by a newline."""
        text = self.code[slice(*self.rows(first, last))]
        return text if text.endswith("\n") else text + "\n"

    def indent(self, node: ast.stmt) -> str:
        """Return the white space before a statement."""
        line = self._lines[node.lineno - 1]
        return line[: len(line) - len(line.lstrip())]

    def own_line(self, node: ast.stmt) -> bool:
        """Return whether a statement shares its first and last line with nothing else."""
        assert node.end_lineno is not None
        end, end_of_line = self.span(node)[1], self._starts[node.end_lineno]
        after = self.code[end:end_of_line].strip()
        alone = len(self.indent(node).encode()) == node.col_offset
        return alone and (not after or after.startswith("#"))

    # ------------------------------------------------------------ structure

    @cached_property
    def places(self) -> list[Place]:
        """Return all statements but documentation, in the order they are written."""
        return list(_places(self.tree.body, self.tree, None, False))

    @cached_property
    def sites(self) -> list[Site]:
        """Return all expressions but those of annotations, in the order they are written."""
        sites: list[Site] = []
        for place in self.places:
            function = place.node if isinstance(place.node, Function) else place.function
            for expression in _own_expressions(place.node):
                sites.extend(_sites(expression, place.node, place.node, function))
        return sites

    def names(self, function: Function | None) -> tuple[str, ...]:
        """Return parameters and variables of a function, in the order they first appear."""
        return self._names.get(function, ()) if function is not None else ()

    def used(self, node: ast.stmt) -> frozenset[str]:
        """Return the names a statement uses, with all that stands below it."""
        if node not in self._used:
            names = (n.id for n in ast.walk(node) if isinstance(n, ast.Name))
            self._used[node] = frozenset(names)
        return self._used[node]

    def kinds(self, function: Function | None) -> Kinds:
        """Return what kind of value each of a function's names holds, as far as it can be told."""
        if function not in self._kinds:
            known = function is not None and function.name == self.entry_point
            self._kinds[function] = Kinds(function, self.arguments if known else ())
        return self._kinds[function]


def _bound(function: Function) -> dict[str, None]:
    args = function.args
    parameters = (*args.posonlyargs, *args.args, *args.kwonlyargs, args.vararg, args.kwarg)
    names = [parameter.arg for parameter in parameters if parameter is not None]
    nodes = (node for node in ast.walk(function) if isinstance(node, ast.Name))
    stores = [node for node in nodes if isinstance(node.ctx, ast.Store)]
    stores.sort(key=lambda node: (node.lineno, node.col_offset))
    return dict.fromkeys([*names, *(node.id for node in stores)])


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


def _own_expressions(node: ast.stmt) -> Iterator[ast.expr]:
    """Yield the expressions of a statement's own line, not those of the blocks below it."""
    if isinstance(node, Function):
        yield from node.args.defaults
        yield from (default for default in node.args.kw_defaults if default is not None)
        return
    if isinstance(node, ast.ClassDef):
        return
    for name, value in ast.iter_fields(node):
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, ast.expr) and name != "annotation":
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
