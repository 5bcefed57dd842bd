"""Which lines are suspicious, what is tried first, and what failing tests look like."""

from __future__ import annotations

from math import sqrt
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from orchestrion_repair.ranking import ochiai, program, propose
from orchestrion_repair.symptoms import SYMPTOMS, symptoms

from tests.contrib_tasks.repair.support import TOTAL

PROGRAM = program(TOTAL)


def test_suspicion_is_ochiais_coefficient() -> None:
    runs = [(False, {1, 2}), (False, {1, 2, 3}), (True, {1, 3}), (True, {1, 4})]
    found = ochiai(runs)
    assert found[1] == pytest.approx(2 / sqrt(2 * 4))
    assert found[2] == pytest.approx(2 / sqrt(2 * 2))
    assert found[3] == pytest.approx(1 / sqrt(2 * 2))
    assert found[4] == 0


def test_only_the_asked_families_and_lines_are_proposed_in_the_order_given() -> None:
    mine = [c.number for c in PROGRAM.candidates if (c.family, c.line) == ("comparison", 4)]
    order = [*range(len(PROGRAM.candidates) - 1, -1, -1), 999_999]
    found = propose(PROGRAM, ["comparison"], [4], order)
    assert [c.number for c in found] == mine[::-1]
    assert propose(PROGRAM, ["comparison"], [4], order[:0]) == []


# ---------------------------------------------------------------- symptoms


def shown(got: Any, want: Any, error: str = "", call: Any = ("?",)) -> set[str]:
    case = {"call": list(call), "want": want}
    found = symptoms([{"passed": False, "error": error, "got": got}], [case], "f")
    return {name for name, share in found.items() if share and " with " not in name}


@pytest.mark.parametrize(
    ("got", "want", "names"),
    [
        (3, 2, {"one too high"}),
        (1, 2, {"one too low"}),
        (9, 2, {"too high"}),
        (-9, 9, {"sign"}),
        (True, False, {"bool flipped"}),
        (None, 2, {"gave nothing"}),
        ("a", 2, {"other type"}),
        ([1], [1, 2], {"shorter", "prefix of wanted", "some items missing"}),
        ([1, 2, 3], [1, 2], {"longer", "wanted is prefix", "some items too many"}),
        ([9, 1, 5], [1, 5, 9], {"other order"}),
        ([], [1], {"shorter", "empty"}),
        ([1, 5], [1, 2], {"one item differs"}),
        ([2, 3], [1, 2], {"items off by one"}),
        ("Ab", "ab", {"blank or case", "one item differs"}),
        ({"a": 1}, {"a": 1, "b": 2}, {"some items missing", "shorter"}),
        ({"a": 2}, {"a": 1}, {"one item differs", "one too high"}),
        ({"$": "tuple", "v": [1, 2]}, [1, 3], {"one item differs", "items off by one"}),
    ],
)
def test_a_wrong_value_has_symptoms(got: Any, want: Any, names: set[str]) -> None:
    assert shown(got, want) == names


@pytest.mark.parametrize(
    ("error", "name"),
    [
        ("IndexError", "index error"),
        ("UnboundLocalError", "unbound name"),
        ("OutOfSteps", "endless"),
        ("RecursionError", "endless"),
        ("MyOwnError", "other error"),
    ],
)
def test_an_exception_is_a_symptom(error: str, name: str) -> None:
    assert shown(None, 1, error) == {name}


def test_a_result_that_is_an_argument_is_noticed() -> None:
    assert "is an argument" in shown([1], [2], call=([1],))


def test_an_assert_that_compares_has_the_same_symptoms() -> None:
    result = {"passed": False, "error": "AssertionError", "got": 3, "want": 2}
    found = symptoms([result], [{"assert": "assert f([]) == 2"}], "f")
    assert {name for name, share in found.items() if share} == {
        "one too high", "fails with empty input",
    }  # fmt: skip


def test_shares_are_of_the_failing_tests() -> None:
    results = [
        {"passed": False, "error": "", "got": 3},
        {"passed": False, "error": "KeyError", "got": None},
        {"passed": True, "error": "", "got": 0},
    ]
    tests = [{"call": [1], "want": 2}, {"call": [[]], "want": 1}, {"call": [-1], "want": 0}]
    found = symptoms(results, tests, "f")
    assert found["one too high"] == found["key error"] == found["fails with empty input"] == 0.5
    assert found["passes with negative input"] == 1


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(st.lists(st.tuples(json_values, json_values, st.booleans()), max_size=4))
def test_symptoms_are_shares(rows: list[tuple[Any, Any, bool]]) -> None:
    results = [{"passed": passed, "error": "", "got": got} for got, _, passed in rows]
    tests = [{"call": [got], "want": want} for got, want, _ in rows]
    found = symptoms(results, tests, "f")
    assert tuple(found) == SYMPTOMS
    assert all(0 <= share <= 1 + 1e-9 for share in found.values())
