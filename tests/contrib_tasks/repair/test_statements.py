"""Tests given as Python source become statements that raise on failure."""

from __future__ import annotations

import ast
from typing import Any

import pytest
from orchestrion_repair import statements

RIGHT = "def twice(x):\n    return x + x\n"
WRONG = "def twice(x):\n    return x + 1\n"


def passing(found: statements.Tests, code: str) -> list[bool]:
    """Which statements pass, each in a namespace of its own, as `bug.py` says."""
    return [_passes(found, code, statement) for statement in texts(found)]


def _passes(found: statements.Tests, code: str, statement: str) -> bool:
    namespace: dict[str, Any] = {}
    exec(code, namespace)
    exec(found.prelude, namespace)
    try:
        exec(statement, namespace)
    except Exception:
        return False
    return True


def module(source: str, parameters: Any = None) -> statements.Tests:
    return statements.from_module(ast.parse(source), {"buggy", "twice"}, parameters)


def from_check(source: str, entry_point: str) -> statements.Tests:
    return statements.from_check(ast.parse(source), entry_point)


def texts(found: statements.Tests) -> list[str]:
    return [case.statement for case in found.cases]


# ---------------------------------------------------------------- check(candidate)


def test_each_assert_of_check_is_a_statement_and_the_rest_is_kept() -> None:
    found = from_check(
        "METADATA = {'author': 'x'}\nimport math\n\n"
        "def check(candidate):\n"
        "    '''Simple cases.'''\n"
        "    assert candidate(2) == 4\n"
        "    big = [candidate(n) for n in range(9)]\n"
        "    assert big[1] == 2, 'one'\n"
        "    for n in (5, 6):\n"
        "        assert candidate(n) == math.floor(2 * n)\n"
        "check(twice)\n",
        "twice",
    )
    assert len(texts(found)) == 3
    assert texts(found)[0] == "assert candidate(2) == 4"
    assert passing(found, RIGHT) == [True, True, True]
    assert passing(found, WRONG) == [False, True, False]


def test_what_is_set_up_in_check_does_not_hide_names_of_the_program() -> None:
    code = "limit = 3\n\ndef capped(x):\n    return min(x, limit)\n"
    found = from_check(
        "def check(f):\n    limit = 9\n    assert f(limit) == 3\n    assert f(1) == 1\n", "capped"
    )
    assert passing(found, code) == [True, True]


def test_calls_count_as_tests_where_nothing_asserts() -> None:
    found = from_check(
        "def must(a, b):\n    assert a == b\n\n"
        "def check(candidate):\n    must(candidate(1), 2)\n    must(candidate(3), 6)\n",
        "twice",
    )
    assert passing(found, RIGHT) == [True, True]
    assert passing(found, WRONG) == [True, False]


def test_plain_asserts_will_do_without_check() -> None:
    found = from_check("assert twice(1) == 2\nassert twice(4) == 8\n", "twice")
    assert passing(found, WRONG) == [True, False]


# ---------------------------------------------------------------- test files


def test_functions_asserts_and_helpers_of_a_test_file() -> None:
    found = module(
        '"""Tests of twice."""\n'
        "import math\n"
        "from buggy import twice\n\n"
        "STEP = math.factorial(3)\n\n"
        "def helper(n):\n    return n * 2\n\n"
        "assert twice(0) == 0\n\n"
        "def test_one():\n    assert twice(1) == helper(1)\n\n"
        "def test_step():\n    assert twice(STEP) == 12\n"
        "if __name__ == '__main__':\n    raise SystemExit\n"
    )
    assert texts(found) == ["assert twice(0) == 0", "test_one()", "test_step()"]
    assert found.names == ("twice",)
    assert passing(found, RIGHT) == [True, True, True]
    assert passing(found, WRONG) == [False, True, False]


@pytest.mark.parametrize(
    ("line", "call"),
    [
        ("from buggy import twice as t", "t(3)"),
        ("import buggy", "buggy.twice(3)"),
        ("import buggy as b", "b.twice(3)"),
        ("from .buggy import twice", "twice(3)"),
        ("from . import buggy", "buggy.twice(3)"),
        ("from programs.twice import twice", "twice(3)"),
    ],
)
def test_the_program_is_there_however_it_is_imported(line: str, call: str) -> None:
    found = module(f"{line}\nassert {call} == 6\nassert {call} > 0\n")
    assert passing(found, RIGHT) == [True, True]
    assert passing(found, WRONG) == [False, True]


def test_parametrize_gives_one_statement_a_row_and_a_product_when_stacked() -> None:
    found = module(
        "import pytest\n\n"
        "@pytest.mark.parametrize('x, want', [(1, 2), pytest.param(5, 10, id='five')])\n"
        "def test_rows(x, want):\n    assert twice(x) == want\n\n"
        "@pytest.mark.parametrize(['sign'], [[1], [-1]])\n"
        "@pytest.mark.parametrize('x', [3, 4])\n"
        "def test_signs(x, sign, offset=0):\n    assert twice(sign * x) == sign * 2 * x\n"
    )
    assert texts(found)[:2] == ["test_rows(x=1, want=2)", "test_rows(x=5, want=10)"]
    assert len(texts(found)) == 6
    assert all(passing(found, RIGHT))
    assert passing(found, WRONG) == [True] + [False] * 5


def test_values_of_parametrize_may_have_a_name_or_be_handed_in() -> None:
    named = "import pytest\nROWS = [1, pytest.param(2)]\n@pytest.mark.parametrize('x', ROWS)\n"
    computed = (
        "import pytest\nfrom load_testdata import load_json_testcases\n"
        "testdata = load_json_testcases(twice.__name__)\n"
        "@pytest.mark.parametrize('x, want', testdata)\n"
    )
    body = "def test_it(x, want=None):\n    assert twice(*x if isinstance(x, list) else [x])\n"
    assert texts(module(named + body)) == ["test_it(x=1)", "test_it(x=2)"]
    handed = module(computed + body, [[[1], 2], [[4], 8]])
    assert texts(handed) == ["test_it(x=[1], want=2)", "test_it(x=[4], want=8)"]
    assert passing(handed, RIGHT) == [True, True]


def test_approx_raises_and_skip_work_without_pytest() -> None:
    code = (
        "def root(x):\n    if x < 0:\n        raise ValueError('negative')\n    return x ** 0.5\n"
    )
    found = module(
        "import pytest\nfrom pytest import raises\nfrom buggy import root\n\n"
        "def test_close():\n    assert root(2) == pytest.approx(1.41421356)\n\n"
        "def test_list():\n    assert [root(4)] == pytest.approx([2.1], abs=0.2)\n\n"
        "def test_far():\n    assert root(2) == pytest.approx(1.5)\n\n"
        "def test_raises():\n    with raises(ValueError, match='neg') as info:\n        root(-1)\n"
        "    assert 'negative' in str(info.value)\n\n"
        "def test_not_raised():\n    with pytest.raises(ValueError):\n        root(1)\n\n"
        "def test_skipped():\n    pytest.skip('slow')\n"
    )
    assert passing(found, code) == [True, True, False, True, False, True]


def test_a_lone_test_function_is_taken_apart_at_its_asserts() -> None:
    found = module(
        "from buggy import twice\ndef test_all():\n    x = 3\n    assert twice(1) == 2\n"
        "    assert twice(x) == 6\n"
    )
    assert len(texts(found)) == 2
    assert passing(found, WRONG) == [True, False]


def test_classes_of_tests_and_of_unittest() -> None:
    found = module(
        "import unittest\nfrom buggy import twice\n\n"
        "class TestTwice:\n    def test_one(self):\n        assert twice(1) == 2\n\n"
        "class Cases(unittest.TestCase):\n"
        "    def setUp(self):\n        self.x = 3\n\n"
        "    def test_three(self):\n        self.assertEqual(twice(self.x), 6)\n"
    )
    assert texts(found) == ["TestTwice().test_one()", "Cases('test_three').debug()"]
    assert passing(found, RIGHT) == [True, True]
    assert passing(found, WRONG) == [True, False]


@pytest.mark.parametrize(
    ("test", "reason"),
    [
        ("def test_x(tmp_path):\n    assert twice(1)", "needs the fixture 'tmp_path'"),
        ("@pytest.mark.skipif(True)\ndef test_x():\n    pass", "pytest.mark.skipif"),
        ("@pytest.mark.parametrize('x', range(3))\ndef test_x(x):\n    pass", "are computed"),
        ("@pytest.mark.parametrize('x, y', [1])\ndef test_x(x, y):\n    pass", "2 names, but 1"),
        ("async def test_x():\n    pass", "asynchronous"),
        ("def test_x():\n    pytest.importorskip('numpy')", "uses pytest.importorskip"),
        ("class TestX:\n    def setup_method(self):\n        pass", "needs setup_method"),
        ("class TestX:\n    def test_x(self, tmp_path):\n        pass", "needs fixtures"),
    ],
)
def test_a_test_that_needs_more_is_left_out_and_the_rest_still_works(
    test: str, reason: str
) -> None:
    found = module(
        f"import pytest\n\n@pytest.fixture\ndef thing():\n    return 1\n\n{test}\n\n"
        "@pytest.mark.timeout(5)\ndef test_good():\n    assert twice(2) == 4\n"
    )
    assert len(found.left_out) == 1
    assert reason in found.left_out[0]
    assert texts(found) == ["test_good()"]
    assert passing(found, RIGHT) == [True]
