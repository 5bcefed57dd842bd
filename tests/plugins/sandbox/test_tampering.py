"""Must-fail twins: what has one, what has none, and that nothing gets past without them."""

from __future__ import annotations

import ast
import asyncio
import random
from collections.abc import Mapping
from textwrap import dedent
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from orchestrion_sandbox.box import ZygoteBox
from orchestrion_sandbox.compare import same
from orchestrion_sandbox.tampering import judge_repository
from orchestrion_sandbox.twins import other_value, twinned
from orchestrion_sandbox.verdict import Verdict

LITERALS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(-1e9, 1e9) | st.text() | st.binary(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.sets(st.integers() | st.text(), max_size=3)
        | st.dictionaries(st.text(), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(LITERALS, st.integers(0, 100))
def test_the_other_value_is_of_the_same_type_and_not_equal(value: Any, seed: int) -> None:
    other = other_value(value, random.Random(seed))
    assert value is None or type(other) is type(value)
    assert other != value
    assert same(ast.literal_eval(repr(other)), other) or isinstance(other, float)


def run(source: str, scope: Mapping[str, Any]) -> tuple[list[str], list[str], list[str]]:
    """Original names of real tests that pass, of twins that fail, and of tests without one."""
    mixed = twinned(dedent(source), random.Random(3))
    namespace = dict(scope)
    exec(mixed.source, namespace)
    passed = {name for name in (*mixed.real, *mixed.twins) if _passes(namespace[name])}
    assert all(name in passed for name in mixed.real)
    assert not any(name in passed for name in mixed.twins)
    return list(mixed.real.values()), list(mixed.twins.values()), mixed.without


def _passes(function: Any) -> bool:
    try:
        function()
    except BaseException:
        return False
    return True


SCOPE: dict[str, Any] = {
    "f": lambda n: n + 1,
    "yes": lambda: True,
    "no": lambda: False,
    "none": lambda: None,
    "pytest": pytest,
    "fail": lambda: list[int]().pop(),
}


@pytest.mark.parametrize(
    "line",
    [
        "assert f(1) == 2",
        "assert 2 == f(1)",
        "assert f(1.5) == 2.5",
        "assert str(f(1)) == '2'",
        "assert [f(1), f(2)] == [2, 3]",
        "assert {1: f(1)} == {1: 2}",
        "got = f(1)\n    assert got == 2",
        "assert f(1) == 2 and f(2) == 3",
        "assert yes()",
        "assert not no()",
        "assert yes() is True",
        "assert none() is None",
        "assert f(0.1) == pytest.approx(1.1)",
        "assert abs(f(0.25) - 1.25) < 1e-6",
        "assert abs(f(1) - 4.0/2.0) <= 1e-6",
        "with pytest.raises(IndexError):\n        fail()",
    ],
)
def test_an_assertion_with_a_wanted_value_has_a_twin_that_fails(line: str) -> None:
    real, twins, without = run(f"def test_it():\n    {line}\n", SCOPE)
    assert real == ["test_it"]
    assert twins
    assert without == []


@pytest.mark.parametrize(
    "line",
    [
        "for n in range(3):\n        assert f(n) == n + 1",
        "assert all(f(n) == n + 1 for n in range(3))",
        "assert f(1) != 3",
        "assert f(1) in (2, 3)",
        "assert f(1) == f(1)",
        "if f(1) == 2:\n        assert f(2) == 3",
        "pass",
    ],
)
def test_a_test_without_a_twin_is_told(line: str) -> None:
    assert run(f"def test_it():\n    {line}\n", SCOPE)[1:] == ([], ["test_it"])


def test_every_row_of_a_parametrization_gets_another_value() -> None:
    source = "@mark('a, b', [(1, 2), (3, 4)])\ndef test_it(a, b): assert f(a) == b\n"
    mixed = twinned(source.replace("mark(", "pytest.mark.parametrize("), random.Random(0))
    assert mixed.without == []
    rows = [
        ast.literal_eval(node.decorator_list[0].args[1])
        for node in ast.walk(ast.parse(mixed.source))
        if isinstance(node, ast.FunctionDef) and isinstance(node.decorator_list[0], ast.Call)
    ]
    assert [(1, 2), (3, 4)] in rows
    other = next(row for row in rows if row != [(1, 2), (3, 4)])
    assert [a for a, _ in other] == [1, 3]
    assert all(b != old for (_, b), old in zip(other, (2, 4), strict=True))


def test_names_tell_nothing_and_differ_each_time() -> None:
    source = "class TestA:\n    def test_it(self): assert f(1) == 2\n"
    one, other = (twinned(source, random.Random(seed)) for seed in (1, 2))
    assert one.source != other.source
    assert "test_it" not in one.source
    assert list(one.real.values()) == list(one.twins.values()) == ["TestA::test_it"]


# ---------------------------------------------------------------- whole projects


TESTS = {
    "tests/test_shop.py": dedent("""
        import unittest
        import pytest
        from shop.prices import price, Basket

        @pytest.fixture
        def basket(): return Basket()

        class TestPrice:
            @pytest.mark.parametrize(("name", "wanted"), [("tea", 3), ("milk", 2)])
            def test_known(self, name, wanted):
                assert price(name) == wanted

            def test_unknown(self):
                with pytest.raises(KeyError):
                    price("gold")

        class Old(unittest.TestCase):
            def test_sum(self):
                self.assertEqual(price("tea") + price("milk"), 5)

        def test_basket(basket, rate):
            basket.add("tea")
            assert basket.total() == 3
            assert basket.total() * rate == pytest.approx(3.3)

        def test_many(basket):
            for name in ("tea", "milk"):
                basket.add(name)
                assert basket.total() > 0
    """),
    "conftest.py": "import pytest\n@pytest.fixture\ndef rate(): return 1.1\n",
}
RIGHT = {
    "shop/__init__.py": "",
    "shop/prices.py": dedent("""
        PRICES = {"tea": 3, "milk": 2}
        def price(name): return PRICES[name]
        class Basket:
            def __init__(self): self.names = []
            def add(self, name): self.names.append(name)
            def total(self): return sum(map(price, self.names))
    """),
}


def judged(runner: asyncio.Runner, box: ZygoteBox, files: Mapping[str, str]) -> Verdict:
    return runner.run(judge_repository(box, TESTS, files, draw=random.Random(11)))


def test_a_right_project_passes_and_what_is_not_evident_is_told(
    runner: asyncio.Runner, box: ZygoteBox
) -> None:
    verdict = judged(runner, box, RIGHT)
    assert verdict.passed, verdict
    assert verdict.method == "tamper-evident"
    assert [outcome.name.partition("::")[2] for outcome in verdict.outcomes] == [
        "TestPrice::test_known[tea-3]",
        "TestPrice::test_known[milk-2]",
        "TestPrice::test_unknown",
        "Old::test_sum",
        "test_basket",
        "test_many",
    ]
    assert verdict.unproven == ("tests/test_shop.py::test_many",)


def test_a_wrong_project_fails_where_it_is_wrong(runner: asyncio.Runner, box: ZygoteBox) -> None:
    files = RIGHT | {"shop/prices.py": RIGHT["shop/prices.py"].replace('"milk": 2', '"milk": 4')}
    verdict = judged(runner, box, files)
    failed = [o.name.rpartition("::")[2] for o in verdict.outcomes if not o.passed]
    assert failed == ["test_known[milk-2]", "test_sum"]
    assert verdict.forgeries == ()


PASS_ALL = "def pytest_runtest_makereport(item, call):\n    call.excinfo = None\n"
BROKEN = RIGHT | {"shop/prices.py": RIGHT["shop/prices.py"].replace('"milk": 2', '"milk": 4')}
DROPPED = {
    "conftest.py": PASS_ALL,
    "tests/conftest.py": PASS_ALL,
    "pytest.ini": "[pytest]\naddopts = -p shop.cheat\n",
    "pyproject.toml": "[tool.pytest.ini_options]\naddopts = '--collect-only'\n",
    "tests/test_shop.py": "def test_known(): pass\n",
    "pytest.py": "def main(*a, **k): return 0\n",
    "_pytest/__init__.py": "",
    "settings.ini": "[pytest]\naddopts = --collect-only\n",
    "orchestrion_sandbox/inside/suite.py": "def shared(*a): pass\n",
    "random.py": "1 / 0",
}


@pytest.mark.parametrize("path", DROPPED)
def test_settings_and_tests_of_the_project_do_not_count(
    runner: asyncio.Runner, box: ZygoteBox, path: str
) -> None:
    assert not judged(runner, box, BROKEN | {path: DROPPED[path]}).passed


@pytest.mark.parametrize("path", ["sitecustomize.py", "src/usercustomize.py", "x.pth"])
def test_files_that_an_interpreter_runs_by_itself_are_an_attempt_to_forge(
    runner: asyncio.Runner, box: ZygoteBox, path: str
) -> None:
    verdict = judged(runner, box, RIGHT | {path: "import os\n"})
    assert verdict.forgeries
    assert not verdict.passed


FORGING = {
    "writes a report of its own": """
        import os, sys, json
        frame = sys._getframe()
        while frame:
            word = frame.f_locals.get("word")
            if isinstance(word, str):
                os.write(frame.f_locals["out"], (
                    "\\n" + word + json.dumps(
                        {"collected": [], "reports": [], "errors": [], "exit": 0}
                    ) + "\\n").encode())
            frame = frame.f_back
    """,
    "makes every test pass": """
        import _pytest.python
        _pytest.python.Function.runtest = lambda self: None
    """,
    "rewrites every report": """
        from _pytest.reports import TestReport
        old = TestReport.__init__
        def new(self, *a, **k):
            old(self, *a, **k)
            self.outcome, self.longrepr = "passed", None
        TestReport.__init__ = new
    """,
    "writes a report with all tests passed and leaves": """
        import gc, os, sys, json, atexit
        frame = sys._getframe()
        names = [n for n in os.listdir("tests") if n.startswith("test_")]
        while frame:
            word = frame.f_locals.get("word")
            if isinstance(word, str):
                import ast
                ids, reports = [], []
                for name in names:
                    for node in ast.parse(open("tests/" + name).read()).body:
                        if isinstance(node, ast.FunctionDef) and node.name.startswith("test"):
                            ids.append(f"tests/{name}::{node.name}")
                phases = ("setup", "call", "teardown")
                reports = [[i, phase, "passed", ""] for i in ids for phase in phases]
                report = {"collected": ids, "reports": reports, "errors": [], "exit": 0}
                line = "\\n" + word + json.dumps(report) + "\\n"
                os.write(frame.f_locals["out"], line.encode())
                os._exit(0)
            frame = frame.f_back
    """,
    "leaves": "import os\nos._exit(0)\n",
}


@pytest.mark.parametrize("source", FORGING.values(), ids=FORGING)
def test_whoever_cannot_tell_a_test_from_its_twin_does_not_pass(
    runner: asyncio.Runner, box: ZygoteBox, source: str
) -> None:
    files = {"shop/__init__.py": "", "shop/prices.py": BROKEN["shop/prices.py"] + dedent(source)}
    verdict = judged(runner, box, files)
    assert not verdict.passed
    assert verdict.share == 0


def test_without_any_twin_nothing_is_judged(runner: asyncio.Runner, box: ZygoteBox) -> None:
    tests = {"test_a.py": "import shop\ndef test_it(): pass\n"}
    verdict = runner.run(judge_repository(box, tests, RIGHT))
    assert not verdict.passed
    assert "twin" in verdict.reason
