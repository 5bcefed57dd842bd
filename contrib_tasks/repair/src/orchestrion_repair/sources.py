"""One source that holds a program and its tests, as people paste it: asserts, tests, doctests."""

from __future__ import annotations

import ast

from orchestrion_repair.bug import Bug, Case
from orchestrion_repair.rows import Malformed, doctests, entry_point, parsed
from orchestrion_repair.statements import from_module

__all__ = ["from_source"]


def from_source(text: str) -> Bug:
    """The program without its tests, and all tests as visible cases: nothing is hidden.

    Raises:
        Malformed: it is not Python, has no tests, or no function they are for.
    """
    tree = parsed("is no path or JSON, and", text)
    tests = [node for node in tree.body if _is_test(node)]
    found = from_module("\n".join(map(ast.unparse, tests)), set())
    examples = [case for node in tree.body for case in doctests(node)]
    statements = [*found.statements, *examples]
    if not statements:
        raise Malformed("has no tests; expected asserts, test functions or doctests in the source")
    code = _without(text, tests)
    used = [name for statement in [*statements, found.prelude] for name in _called(statement)]
    return Bug(
        id="input",
        name="input",
        entry_point=entry_point("input", parsed("the program", code), "", used),
        code=code,
        visible=tuple(Case(statement=statement) for statement in statements),
        hidden=(),
        prelude=found.prelude,
    )


def _is_test(node: ast.stmt) -> bool:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return node.name.startswith("test")
    if isinstance(node, ast.ClassDef):
        return node.name.startswith("Test")
    if isinstance(node, ast.Import | ast.ImportFrom):
        return "pytest" in ast.unparse(node)
    main = isinstance(node, ast.If) and "__main__" in ast.unparse(node.test)
    return main or any(isinstance(inner, ast.Assert) for inner in ast.walk(node))


def _without(text: str, tests: list[ast.stmt]) -> str:
    """The text without the lines of the tests."""
    lines = text.split("\n")
    for node in tests:
        decorators = getattr(node, "decorator_list", [])
        first = min([node.lineno, *(decorator.lineno for decorator in decorators)])
        for number in range(first, (node.end_lineno or first) + 1):
            lines[number - 1] = ""
    return "\n".join(lines).rstrip() + "\n"


def _called(source: str) -> list[str]:
    calls = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call))
    return [call.func.id for call in calls if isinstance(call.func, ast.Name)]
