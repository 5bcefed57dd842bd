"""Static measures: what lowers them, and what does not raise them."""

from __future__ import annotations

import asyncio

import pytest
from orchestrion_code_review.static import StaticTools

TIDY = "def add(a: int, b: int) -> int:\n    return a + b\n"
BARE = "import os\ndef add(a, b):\n    x = 1\n    return a + b\n"
BRANCHES = "def pick(n: int) -> int:\n" + "".join(
    f"    if n == {i}:\n        return {i * i}\n" for i in range(9)
)


def measure(code: str, complexity: int = 5) -> dict[str, float]:
    async def run() -> dict[str, float]:
        with StaticTools(["ruff", "complexity", "types"]).opened() as tools:
            return await tools.measure(code, complexity)

    return asyncio.run(run())


def test_tidy_code_has_full_marks() -> None:
    assert measure(TIDY) == {"ruff": 1.0, "complexity": 1.0, "types": 1.0}


def test_findings_cost_their_lines_and_missing_types_the_function() -> None:
    found = measure(BARE)
    assert found["ruff"] == pytest.approx(2 / 4)  # the import, and the variable
    assert found["types"] == 0


def test_comments_that_silence_tools_change_nothing() -> None:
    silenced = (
        "# ruff: noqa\n# mypy: ignore-errors\nimport os  # noqa\n"
        "def add(a, b):  # type: ignore\n    x = 1  # noqa\n    return a + b\n"
    )
    assert measure(silenced) == measure(BARE)


def test_types_that_do_not_hold_or_say_nothing_do_not_count() -> None:
    wrong = "def add(a: int, b: int) -> str:\n    return a + b\n"
    assert measure(wrong)["types"] == 0.5
    empty = "from typing import Any\n\n\ndef add(a: Any, b: Any) -> int:\n    return int(a + b)\n"
    assert measure(empty)["types"] == 0.5


def test_complexity_beyond_the_reference_costs_its_share() -> None:
    assert measure(BRANCHES, complexity=5)["complexity"] == 0.5
    assert measure(BRANCHES, complexity=10)["complexity"] == 1


@pytest.mark.parametrize("code", ["def add(:", "\x00", "(" * 500, "x = 1\n" + "é" * 3 + "= ("])
def test_what_is_no_python_measures_nothing(code: str) -> None:
    assert set(measure(code).values()) == {0.0}


def test_code_without_functions_has_no_types() -> None:
    assert measure("X = 1\n")["types"] == 0
