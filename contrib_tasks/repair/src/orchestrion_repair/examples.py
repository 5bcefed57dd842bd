"""What test cases tell about the entry point's arguments, whatever form the cases have."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from orchestrion_repair.operators.kinds import kinds_of_arguments

__all__ = ["arguments_of", "kinds_of_cases"]


def arguments_of(case: Mapping[str, Any], entry_point: str) -> Sequence[Any]:
    """The arguments a case passes; of a statement those of its first call, if they are literal."""
    if "call" in case:
        found: Sequence[Any] = case["call"]
        return found
    return _literal_arguments(case["assert"], entry_point)


def kinds_of_cases(cases: Sequence[Mapping[str, Any]], entry_point: str) -> tuple[str, ...]:
    """The kind of each argument, as far as the cases tell."""
    return kinds_of_arguments(arguments_of(case, entry_point) for case in cases)


@lru_cache(maxsize=4_000)
def _literal_arguments(statement: str, entry_point: str) -> tuple[Any, ...]:
    try:
        tree = ast.parse(statement)
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == entry_point:
                return tuple(ast.literal_eval(argument) for argument in node.args)
    except (ValueError, SyntaxError, TypeError, RecursionError):
        pass
    return ()
