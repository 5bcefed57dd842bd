"""Cases, and when a result counts as the wanted one."""

from __future__ import annotations

import math
from collections import deque
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from orchestrion_repair.bug import Case, same
from orchestrion_repair.harness import plain

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(JSON)
def test_a_value_is_the_same_as_itself(value: Any) -> None:
    assert same(value, value)


@given(st.lists(JSON), JSON)
def test_a_case_survives_its_json_form(args: list[Any], want: Any) -> None:
    case = Case(tuple(args), want)
    assert Case.from_json(case.to_json()) == case


def test_a_statement_survives_its_json_form() -> None:
    case = Case(statement="assert f(1) == 2")
    assert case.to_json() == {"assert": "assert f(1) == 2"}
    assert Case.from_json(case.to_json()) == case


@pytest.mark.parametrize(
    ("got", "want"),
    [
        ((1, (2, 3)), [1, [2, 3]]),
        ((n * n for n in range(4)), [0, 1, 4, 9]),
        (range(3), [0, 1, 2]),
        ({"a": 1}.keys(), ["a"]),
        (deque([1, 2]), [1, 2]),
        ({3, 10, 2}, [2, 3, 10]),
        ({1: "x"}, {"1": "x"}),
        ({1, "a"}, ["a", 1]),
        (0.1 + 0.2, 0.3),
        (2.0, 2),
        (math.nan, math.nan),
        (-math.inf, -math.inf),
    ],
)
def test_forms_that_json_does_not_tell_apart_are_the_same(got: Any, want: Any) -> None:
    assert same(got, want)


@pytest.mark.parametrize(
    ("got", "want"),
    [
        (True, 1),
        (0, False),
        (None, False),
        ("1", 1),
        ([], None),
        ([1, 2], [1, 2, 3]),
        ([], {}),
        ({"a": 1}, {"a": 1, "b": None}),
        (1.001, 1.0),
        (10**20, 10**20 + 1),
        (object(), None),
        (list, []),
        (b"ab", "ab"),
    ],
)
def test_different_values_and_types_are_not_the_same(got: Any, want: Any) -> None:
    assert not same(got, want)


def test_an_endless_iterator_is_cut_and_wanted_by_nobody() -> None:
    from itertools import count

    assert not same(count(), [0, 1, 2])
    assert len(plain(count())) == 100_000
