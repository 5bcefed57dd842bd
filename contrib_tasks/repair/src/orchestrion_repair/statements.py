"""Tests written in Python, as statements that raise on failure.

`from_check` takes HumanEval's form, a function `check(candidate)`; `from_module` a file of plain
asserts, pytest functions, and unittest classes. Nothing is executed here and pytest is not
needed: sources are taken apart as syntax trees, and what the statements need goes to a prelude.
"""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterable, Iterator, Sequence

from attrs import Factory, define, frozen

from orchestrion import JSON
from orchestrion_repair.bug import Case

PYTEST = """
class pytest:
    class _Skipped(Exception):
        pass

    use_correct = run_slow = False

    def param(*values, **ignored):
        return values

    def skip(reason="", **ignored):
        raise pytest._Skipped(reason)

    def fail(reason="", **ignored):
        raise AssertionError(reason)

    class raises:
        def __init__(self, expected, match=None):
            self.expected, self.match, self.value = expected, match, None

        def __enter__(self):
            return self

        def __exit__(self, kind, error, trace):
            assert error is not None, "nothing was raised"
            self.value = error
            if self.match is not None and isinstance(error, self.expected):
                import re

                assert re.search(self.match, str(error)), str(error)
            return isinstance(error, self.expected)

    class approx:
        def __init__(self, expected, rel=None, abs=None):
            self.expected, self.rel, self.abs = expected, rel, abs

        def __eq__(self, got):
            return self._close(got, self.expected)

        def _close(self, got, want):
            if isinstance(want, dict):
                return got.keys() == want.keys() and all(self._close(got[k], want[k]) for k in want)
            if isinstance(want, (list, tuple)):
                return len(got) == len(want) and all(map(self._close, got, want))
            if got == want or not isinstance(want, (int, float)):
                return got == want
            least = 1e-12 if self.abs is None else self.abs
            share = (1e-6 if self.abs is None else 0.0) if self.rel is None else self.rel
            return abs(got - want) <= max(least, share * abs(want))
"""
"""What tests use of pytest, in little. (`use_correct` and `run_slow` are options of QuixBugs.)"""

KNOWN = frozenset("use_correct run_slow skip fail raises approx param".split())
"""What a test may use of pytest."""


@frozen
class Tests:
    """The tests of a row.

    Args:
        cases: the visible ones, or all where the row does not divide them.
        hidden: the hidden ones; None where the row does not divide them.
        prelude: source that statements among the cases need, run after the program.
        names: functions that the tests import, in order; the first is the likeliest entry point.
        left_out: tests that cannot be run here, each with its reason.
    """

    cases: tuple[Case, ...]
    hidden: tuple[Case, ...] | None = None
    prelude: str = ""
    names: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()


class Unsupported(Exception):
    """Raised for a test that needs more than a plain call: fixtures, marks, computed parameters."""


def parse(source: str) -> ast.Module:
    """Return the syntax tree; whatever is wrong with the source is a SyntaxError."""
    try:
        return ast.parse(source)
    except (ValueError, RecursionError, MemoryError) as error:
        raise SyntaxError(str(error) or type(error).__name__) from None


# ---------------------------------------------------------------- check(candidate)


def from_check(tree: ast.Module, entry_point: str) -> Tests:
    """Return a statement for each assert of `check(candidate)`, with what is set up before it."""
    before: list[ast.stmt] = []
    check: ast.FunctionDef | None = None
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == "check":
            check = node
        elif not _calls(node, "check"):
            before.append(node)
    if check is None:
        return from_module(tree, {entry_point})
    if check.args.args:
        before.append(_assign(check.args.args[0].arg, entry_point))
    return Tests(_cases(_asserts(check.body)), prelude=_unparse(before))


def _asserts(body: Sequence[ast.stmt]) -> Iterator[str]:
    """Yield the asserts of a function's body as statements of their own.

    What stands before an assert and asserts nothing itself is repeated in front of it. If
    nothing asserts, every expression counts as a test: it may call something that does.
    """
    tests = [node for node in body if _has(node, ast.Assert)]
    if not tests:
        tests = [n for n in body if isinstance(n, ast.Expr) and isinstance(n.value, ast.Call)]
    before: list[ast.stmt] = []
    for node in body:
        if node in tests:
            yield _in_function([*before, node]) if before else ast.unparse(node)
        elif not _is_text(node):
            before.append(node)


def _in_function(body: list[ast.stmt]) -> str:
    """Return statements in a function, so that names they bind hide none of the program."""
    module = ast.parse("def _case():\n    pass\n_case()")
    function = module.body[0]
    assert isinstance(function, ast.FunctionDef)
    function.body = body
    return ast.unparse(module)


# ---------------------------------------------------------------- test files


def from_module(
    tree: ast.Module, modules: set[str], parameters: Sequence[Sequence[JSON]] | None = None
) -> Tests:
    """Return the tests of a file.

    Args:
        tree: the file; this changes it.
        modules: names the module under test may be imported by; the last part of a dotted one
            counts. What is imported from it is there already.
        parameters: values of a parametrize whose list is computed, one row a test.
    """
    file = _File(modules, parameters)
    for node in tree.body:
        file.take(node)
    return file.read()


@define
class _File:
    modules: set[str]
    parameters: Sequence[Sequence[JSON]] | None
    prelude: list[ast.stmt] = Factory(list)
    asserts: list[str] = Factory(list)
    functions: list[ast.FunctionDef] = Factory(list)
    tests: list[str] = Factory(list)
    left_out: list[str] = Factory(list)
    values: dict[str, ast.expr] = Factory(dict)
    names: list[str] = Factory(list)
    uses_pytest: bool = False

    def take(self, node: ast.stmt) -> None:
        """Put a statement of the file where it belongs."""
        if isinstance(node, ast.Import | ast.ImportFrom):
            self.prelude += self._imported(node)
        elif isinstance(node, ast.If) and all(isinstance(n, _IMPORTS) for n in node.body):
            for line in node.orelse or node.body:  # which module to import; both are here already
                self.take(line)
        elif isinstance(node, ast.If) and "__main__" in ast.unparse(node.test):
            pass
        elif isinstance(node, ast.AsyncFunctionDef) and node.name.startswith("test"):
            self.left_out.append(f"{node.name}: is asynchronous")
        elif isinstance(node, ast.FunctionDef) and node.name.startswith("test"):
            self._function(node)
        elif isinstance(node, ast.ClassDef) and (
            _is_unittest(node) or node.name.startswith("Test")
        ):
            self._class(node)
        elif not isinstance(node, ast.FunctionDef | ast.ClassDef) and _has(node, ast.Assert):
            self.asserts.append(ast.unparse(node))
        elif not _is_text(node) and not _foreign(node):
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                self.values[node.targets[0].id] = node.value
            self.prelude.append(node)

    def read(self) -> Tests:
        """Return all that was taken."""
        tests = self.asserts + self.tests
        if len(tests) == len(self.functions) == 1 and not self.functions[0].args.args:
            split = list(_asserts(self.functions[0].body))
            tests = split if len(split) > 1 else tests
        prelude = _unparse([n for n in self.prelude if not _calls(n, "load_json_testcases")])
        if self.uses_pytest:
            prelude = f"{PYTEST.strip()}\n\n{prelude}"
            if "pytest.skip" in prelude:
                tests = [_unless_skipped(test) for test in tests]
        names = tuple(dict.fromkeys(self.names))
        return Tests(_cases(tests), None, prelude, names, tuple(self.left_out))

    def _imported(self, node: ast.Import | ast.ImportFrom) -> list[ast.stmt]:
        module = (getattr(node, "module", "") or "").split(".")[-1]
        if isinstance(node, ast.Import) or not module:
            return [line for alias in node.names for line in self._module(alias)]
        if module == "pytest":
            self.uses_pytest = True
            lines = [(alias.asname or alias.name, f"pytest.{alias.name}") for alias in node.names]
        elif module in self.modules:
            self.names += [alias.name for alias in node.names if alias.name != "*"]
            lines = [(alias.asname, alias.name) for alias in node.names if alias.asname]
        else:
            ours = node.level > 0 or module in ("load_testdata", "node")
            return [] if ours else [node]
        return [_assign(name, value) for name, value in lines]

    def _module(self, alias: ast.alias) -> list[ast.stmt]:
        module = alias.name.split(".")[-1]
        if module == "pytest":
            self.uses_pytest = True
            return [_assign(alias.asname, "pytest")] if alias.asname else []
        if module not in self.modules:
            return [ast.Import([alias])]
        name = alias.asname or alias.name
        return ast.parse(f"import types\n{name} = types.SimpleNamespace(**globals())").body

    def _function(self, node: ast.FunctionDef) -> None:
        try:
            calls = [f"{node.name}({arguments})" for arguments in self._arguments(node)]
        except Unsupported as error:
            self.left_out.append(f"{node.name}: {error}")
            return
        node.decorator_list = []
        self.functions.append(node)
        self.prelude.append(node)
        self.tests += calls

    def _arguments(self, node: ast.FunctionDef) -> list[str]:
        """Return the arguments of each call of a test."""
        rows: list[dict[str, str]] = [{}]
        for decorator in node.decorator_list:
            if not _is_label(decorator):
                rows = [row | more for more in self._parametrized(decorator) for row in rows]
        if foreign := next(filter(None, map(_foreign, node.body)), ""):
            raise Unsupported(f"uses {foreign}")
        wanted = node.args.args[: len(node.args.args) - len(node.args.defaults)]
        missing = [arg.arg for arg in wanted if arg.arg not in rows[0]] if rows else []
        if missing:
            raise Unsupported(f"needs the fixture {missing[0]!r}")
        return [", ".join(f"{name}={value}" for name, value in row.items()) for row in rows]

    def _parametrized(self, decorator: ast.expr) -> list[dict[str, str]]:
        call = decorator if isinstance(decorator, ast.Call) else None
        if call is None or not ast.unparse(call.func).endswith("mark.parametrize"):
            raise Unsupported(f"is decorated with {ast.unparse(decorator)}")
        if len(call.args) < 2:
            raise Unsupported("parametrize has no list of values")
        names = _names(call.args[0])
        values = call.args[1]
        if isinstance(values, ast.Name):
            values = self.values.get(values.id, values)
        if isinstance(values, ast.List | ast.Tuple):
            alone = isinstance(call.args[0], ast.Constant) and len(names) == 1
            return [_row(names, element, alone) for element in values.elts]
        if self.parameters is None:
            raise Unsupported(f"its parameters are computed: {ast.unparse(call.args[1])}")
        return [dict(zip(names, map(repr, row), strict=True)) for row in self.parameters]

    def _class(self, node: ast.ClassDef) -> None:
        """Take the methods of a class without state, or of a unittest.TestCase."""
        methods = [item for item in node.body if isinstance(item, ast.FunctionDef)]
        for method in methods:
            if method.name in ("setup_method", "setUpClass", "setup_class") or _foreign(method):
                self.left_out.append(f"{node.name}: needs {_foreign(method) or method.name}")
                return
        self.prelude.append(node)
        for method in methods:
            if not method.name.startswith("test"):
                continue
            if len(method.args.args) > 1 or method.decorator_list:
                self.left_out.append(f"{node.name}.{method.name}: needs fixtures or parameters")
            elif _is_unittest(node):
                self.tests.append(f"{node.name}({method.name!r}).debug()")
            else:
                self.tests.append(f"{node.name}().{method.name}()")


_IMPORTS = (ast.Import, ast.ImportFrom)


def _names(node: ast.expr) -> list[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return [name.strip() for name in node.value.split(",") if name.strip()]
    if isinstance(node, ast.List | ast.Tuple):
        return [str(item.value) for item in node.elts if isinstance(item, ast.Constant)]
    raise Unsupported("parametrize has computed names")


def _row(names: list[str], element: ast.expr, alone: bool) -> dict[str, str]:
    """Return a row of parametrize's values by name; `alone`: it stands in no list of its own."""
    if isinstance(element, ast.Call) and ast.unparse(element.func).endswith("param"):
        values = element.args
    elif alone:
        values = [element]
    else:
        values = element.elts if isinstance(element, ast.List | ast.Tuple) else []
    if len(values) != len(names):
        raise Unsupported(f"{len(names)} names, but {ast.unparse(element)}")
    return {name: ast.unparse(value) for name, value in zip(names, values, strict=True)}


def _is_unittest(node: ast.ClassDef) -> bool:
    return any("TestCase" in ast.unparse(base) for base in node.bases)


def _is_label(decorator: ast.expr) -> bool:
    """Return whether a mark changes nothing here, such as a time limit of the tests' own."""
    text = ast.unparse(decorator)
    changing = ("parametrize", "skip", "xfail", "usefixtures")
    return "pytest.mark." in text and not any(f"mark.{name}" in text for name in changing)


def _foreign(node: ast.AST) -> str:
    """Return the first thing used of pytest that is not known here, or ""."""
    for inner in ast.walk(node):
        match inner:
            case ast.Attribute(value, name) if name not in KNOWN:
                if ast.unparse(value) == "pytest":
                    return f"pytest.{name}"
    return ""


def _unless_skipped(test: str) -> str:
    return f"try:\n{textwrap.indent(test, '    ')}\nexcept pytest._Skipped:\n    pass"


def _assign(name: str, value: str) -> ast.stmt:
    return ast.parse(f"{name} = {value}").body[0]


def _has(node: ast.AST, kind: type[ast.AST]) -> bool:
    return any(isinstance(inner, kind) for inner in ast.walk(node))


def _calls(node: ast.stmt, name: str) -> bool:
    """Return whether a statement is a call of `name`, or stores its result."""
    value = node.value if isinstance(node, ast.Expr | ast.Assign) else None
    called = value.func if isinstance(value, ast.Call) else None
    return isinstance(called, ast.Name) and called.id == name


def _is_text(node: ast.stmt) -> bool:
    """Return whether a statement is a docstring or `pass`."""
    text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return text or isinstance(node, ast.Pass)


def _cases(statements: Iterable[str]) -> tuple[Case, ...]:
    return tuple(Case(statement=statement) for statement in statements)


def _unparse(body: Sequence[ast.stmt]) -> str:
    return "\n".join(ast.unparse(node) for node in body)
