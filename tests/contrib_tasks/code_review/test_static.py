"""Static measures: what lowers them, and what does not raise them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from orchestrion_code_review.static import StaticTools, opened_tools

TIDY = "def add(a: int, b: int) -> int:\n    return a + b\n"
BARE = "import os\ndef add(a, b):\n    x = 1\n    return a + b\n"
BRANCHES = "def pick(n: int) -> int:\n" + "".join(
    f"    if n == {i}:\n        return {i * i}\n" for i in range(9)
)


@pytest.fixture(scope="module", autouse=True)
def tools() -> Iterator[StaticTools]:
    """One set for all tests, since mypy reads the standard library once for each."""
    with opened_tools(["ruff", "complexity", "types"]) as opened:
        TOOLS.append(opened)
        yield opened
        TOOLS.clear()


TOOLS: list[StaticTools] = []


def measure(code: str, complexity: int = 5) -> dict[str, float]:
    return asyncio.run(TOOLS[0].measure(code, complexity))


def test_tidy_code_has_full_marks() -> None:
    assert measure(TIDY) == {"ruff": 1.0, "complexity": 1.0, "types": 1.0}


def test_findings_are_counted_and_missing_types_cost_all() -> None:
    found = measure(BARE)
    assert found["ruff"] == pytest.approx(10 / 12)  # the import, and the variable
    assert found["types"] == 0


PADDING = "".join(f"def pad{i}(a: int) -> int:\n    return a + {i}\n" for i in range(50))


def test_no_line_that_is_added_raises_a_measure() -> None:
    for code in (TIDY, BARE, BRANCHES):
        plain, padded = measure(code), measure(code + PADDING)
        assert all(padded[name] <= plain[name] for name in plain)


def test_what_is_not_typed_costs_wherever_it_stands() -> None:
    lambdas = "pick = {1: lambda n: n}\n" + TIDY
    given = "def order(a: list[int]) -> list[int]:\n    return sorted(a, key=lambda n: -n)\n"
    assert (measure(lambdas)["types"], measure(given)["types"]) == (0, 1)
    method = "class A:\n    def __init__(self) -> None:\n        self.n = 1\n"
    assert measure(method)["types"] == 1
    assert measure(method + "    def add(self, n):\n        return n\n")["types"] == 0


HIDING = {
    "text": "exec('x = 1')\n",
    "names": "def f(n: int) -> int:\n    return int(globals()['g'](n))\n",
    "a module": "from builtins import eval as e\n",
    "an attribute": "def f() -> None:\n    print(f.__code__)\n",
    "branches": "import typing\nif typing.TYPE_CHECKING:\n    x = 1\n",
}


def test_what_the_tools_cannot_read_measures_nothing() -> None:
    for code in HIDING.values():
        assert set(measure(TIDY + code).values()) == {0.0}


def test_imports_for_the_checker_and_methods_of_such_names_hide_nothing() -> None:
    imports = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import re\n"
    compiled = "import re\nWORD = re.compile('a')\n"
    assert measure(imports + TIDY)["types"] == measure(compiled + TIDY)["types"] == 1


def test_comments_that_silence_tools_change_nothing() -> None:
    silenced = (
        "# ruff: noqa\n# mypy: ignore-errors\nimport os  # noqa\n"
        "def add(a, b):  # type: ignore\n    x = 1  # noqa\n    return a + b\n"
    )
    assert measure(silenced) == measure(BARE)


def test_types_that_do_not_hold_or_say_nothing_do_not_count() -> None:
    wrong = "def add(a: int, b: int) -> str:\n    return a + b\n"
    assert measure(wrong)["types"] == 0
    empty = "from typing import Any\n\n\ndef add(a: Any, b: Any) -> int:\n    return int(a + b)\n"
    assert measure(empty)["types"] == 0


def test_complexity_beyond_the_reference_costs_its_share() -> None:
    assert measure(BRANCHES, complexity=5)["complexity"] == 0.5
    assert measure(BRANCHES, complexity=10)["complexity"] == 1


def test_what_is_no_python_measures_nothing() -> None:
    for code in ("def add(:", "\x00", "(" * 500, "x = 1\n" + "é" * 3 + "= ("):
        assert set(measure(code).values()) == {0.0}


def test_code_without_functions_has_no_types() -> None:
    assert measure("X = 1\n")["types"] == 0
