"""What failing tests look like: numbers that mean the same for every function.

Each symptom is the share of the failing tests that show it, from 0 to 1. `got` and `want` are
plain values; what a program raised instead of giving a value counts by its name.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from orchestrion_repair.operators.kinds import kinds_of_arguments

_ERRORS = {
    "TypeError": "type error",
    "IndexError": "index error",
    "KeyError": "key error",
    "ValueError": "value error",
    "AttributeError": "attribute error",
    "NameError": "unbound name",
    "UnboundLocalError": "unbound name",
    "ZeroDivisionError": "division by zero",
    "RecursionError": "endless",
    "OutOfSteps": "endless",
    "OutOfTime": "endless",
    "MemoryError": "endless",
}
_WRONG = (
    "gave nothing", "other type", "bool flipped", "one too high", "one too low", "too high",
    "too low", "sign", "shorter", "longer", "other order", "prefix of wanted", "wanted is prefix",
    "one item differs", "empty", "should be empty", "items off by one", "some items missing",
    "some items too many", "is an argument", "blank or case",
)  # fmt: skip
_INPUTS = ("empty input", "single input", "zero input", "negative input", "repeated input")
SYMPTOMS: tuple[str, ...] = (
    *dict.fromkeys(_ERRORS.values()), "other error", *_WRONG,
    *(f"fails with {name}" for name in _INPUTS), *(f"passes with {name}" for name in _INPUTS),
)  # fmt: skip


def symptoms(
    results: Sequence[Mapping[str, Any]], cases: Sequence[Mapping[str, Any]], entry_point: str
) -> dict[str, float]:
    """Return the share of failing tests with each symptom; of passing ones for "passes with"."""
    totals = dict.fromkeys(SYMPTOMS, 0.0)
    failed = sum(not result["passed"] for result in results)
    passed = len(results) - failed
    for result, case in zip(results, cases, strict=True):
        arguments = arguments_of(case, entry_point)
        word, number = ("passes", passed) if result["passed"] else ("fails", failed)
        for name in _inputs(arguments):
            totals[f"{word} with {name}"] += 1 / number
        if not result["passed"]:
            for name in _of(result, case, arguments):
                totals[name] += 1 / failed
    return totals


def _inputs(arguments: Sequence[Any]) -> set[str]:
    names = set()
    for value in arguments:
        if isinstance(value, str | list | tuple | dict) and len(value) < 2:
            names.add("single input" if value else "empty input")
        if isinstance(value, list | tuple):
            names |= _inputs([item for item in value if _number(item)])
            if len(set(map(repr, value))) < len(value):
                names.add("repeated input")
        elif _number(value) and value <= 0:
            names.add("negative input" if value else "zero input")
    return names


def _of(result: Mapping[str, Any], case: Mapping[str, Any], arguments: Sequence[Any]) -> set[str]:
    error = result["error"]
    if error and error != "AssertionError":
        return {_ERRORS.get(error, "other error")}
    got = _plain(result["got"])
    if "want" in result:  # of an assert that compares two values
        want = _plain(result["want"])
    elif "want" in case and not error:
        want = case["want"]
    else:
        return set()
    names = _compared(got, want)
    if any(type(got) is type(value) and got == value for value in arguments):
        names.add("is an argument")
    return names


def _plain(data: Any) -> Any:
    """Return an encoded value (see `orchestrion_sandbox.inside.plain`) as a case would hold it."""
    match data:
        case list():
            return [_plain(item) for item in data]
        case {"$": "dict", "v": list(pairs), **others} if not others:
            return {str(_plain(key)): _plain(value) for key, value in pairs}
        case {"$": _, "v": value, **others} if not others:
            return _plain(value) if isinstance(value, list) else value
    return data


def _compared(got: Any, want: Any) -> set[str]:
    if got is None:
        return {"gave nothing"}
    if isinstance(got, bool) and isinstance(want, bool):
        return {"bool flipped"}
    if _number(got) and _number(want):
        return _numbers(got, want)
    if isinstance(got, str) and isinstance(want, str):
        names = _sequences(got, want)
        if "".join(got.lower().split()) == "".join(want.lower().split()):
            names.add("blank or case")
        return names
    if isinstance(got, list) and isinstance(want, list):
        names = _sequences(got, want)
        pairs = [(g, w) for g, w in zip(got, want, strict=False) if g != w]
        if pairs and all(_number(g) and _number(w) and abs(g - w) == 1 for g, w in pairs):
            names.add("items off by one")
        return names
    if isinstance(got, dict) and isinstance(want, dict):
        return _mappings(got, want)
    return {"other type"}


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _numbers(got: float, want: float) -> set[str]:
    if got - want in (1, -1):
        return {"one too high" if got > want else "one too low"}
    if got == -want:
        return {"sign"}
    return {"too high" if got > want else "too low"}


def _sequences(got: Any, want: Any) -> set[str]:
    names = set()
    if len(got) != len(want):
        names.add("shorter" if len(got) < len(want) else "longer")
    elif sum(g != w for g, w in zip(got, want, strict=True)) == 1:
        names.add("one item differs")
    if not got and want:
        names.add("empty")
    if got and not want:
        names.add("should be empty")
    if got and want[: len(got)] == got:
        names.add("prefix of wanted")
    if want and got[: len(want)] == want:
        names.add("wanted is prefix")
    mine, theirs = sorted(map(repr, got)), sorted(map(repr, want))
    if mine == theirs:
        names.add("other order")
    elif got and set(mine) < set(theirs):
        names.add("some items missing")
    elif want and set(theirs) < set(mine):
        names.add("some items too many")
    return names


def _mappings(got: dict[str, Any], want: dict[str, Any]) -> set[str]:
    names = set()
    if not got and want:
        names.add("empty")
    if got.keys() < want.keys():
        names |= {"some items missing", "shorter"}
    elif want.keys() < got.keys():
        names |= {"some items too many", "longer"}
    differing = [key for key in got.keys() & want.keys() if got[key] != want[key]]
    if len(differing) == 1:
        names.add("one item differs")
    for key in sorted(differing)[:5]:
        names |= _compared(got[key], want[key]) - {"gave nothing"}
    return names


# ---------------------------------------------------------------- arguments of test cases


def arguments_of(case: Mapping[str, Any], entry_point: str) -> Sequence[Any]:
    """Return the arguments a case passes; of a statement those of its first call, if literal."""
    return case["call"] if "call" in case else _literal_arguments(case["assert"], entry_point)


def kinds_of_cases(cases: Sequence[Mapping[str, Any]], entry_point: str) -> tuple[str, ...]:
    """Return the kind of each argument, as far as the cases tell."""
    return kinds_of_arguments(arguments_of(case, entry_point) for case in cases)


@lru_cache(maxsize=4_000)
def _literal_arguments(statement: str, entry_point: str) -> tuple[Any, ...]:
    try:
        for node in ast.walk(ast.parse(statement)):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == entry_point:
                return tuple(ast.literal_eval(argument) for argument in node.args)
    except (ValueError, SyntaxError, TypeError, RecursionError):
        pass
    return ()
