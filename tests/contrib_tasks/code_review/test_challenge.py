"""Tests as text become cases that are judged outside, wherever they compare plain data."""

from __future__ import annotations

import pytest
from orchestrion_code_review.challenge import Test, constant_share
from orchestrion_sandbox import Case


@pytest.mark.parametrize(
    ("text", "case"),
    [
        ("f(1, 'a') == [2]", Case((1, "a"), [2])),
        ("f(x=1) == None", Case((), None, {"x": 1})),
        ("f(-1) raises ValueError", Case((-1,), raises="ValueError")),
        ("f(' raises X') == 1", Case((" raises X",), 1)),
        ("assert f((1,)) == {2}", Case(((1,),), {2}, equal="python")),
        ("assert g(1) == 2, 'a message'", Case((1,), 2, equal="python")),
        ("assert 2 == f(1)", Case((1,), 2, equal="python")),
        ("assert f(1) is True", Case((1,), True)),
    ],
)
def test_comparisons_of_plain_data_are_cases(text: str, case: Case) -> None:
    assert Test(text).case("f", ["g"]) == case


@pytest.mark.parametrize(
    "text",
    [
        "assert f(1)",
        "assert not f(1)",
        "assert sorted(f(1)) == [1]",
        "assert f(f(1)) == 2",
        "assert f(value) == 2",
        "assert f(*[1]) == 2",
        "assert f(**{'a': 1}) == 2",
        "assert abs(f(1) - 2) < 1e-6",
        "assert other(1) == 2",
        "assert f(1) == f(2)",
        "assert f(1) != 2",
        "for i in range(3):\n    assert f(i) == i",
        "this is no Python",
    ],
)
def test_everything_else_has_to_be_executed(text: str) -> None:
    assert Test(text).case("f") is None


def test_every_test_can_be_written_as_a_statement() -> None:
    space = {"f": lambda n: 1 // n}
    for text in ("f(1) == 1", "f(0) raises ZeroDivisionError", "assert f(1) == 1"):
        exec(Test(text).statement, space)
    for text in ("f(1) == 2", "f(1) raises ZeroDivisionError", "assert f(1) == 2"):
        with pytest.raises(AssertionError):
            exec(Test(text).statement, space)


def test_a_constant_is_worth_the_most_frequent_answer_unless_all_want_the_same() -> None:
    yes, no = Test("f(1) == True"), Test("f(2) == False")
    assert constant_share([yes, no, Test("f(3) == True")], "f") == pytest.approx(2 / 3)
    assert constant_share([yes, Test("f(3) == True")], "f") == 0
    assert constant_share([Test("assert f(1)")], "f") == 0
    assert constant_share([Test("f(1) == 1"), Test("f(2) == True")], "f") == 0.5
