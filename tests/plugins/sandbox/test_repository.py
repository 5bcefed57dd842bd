"""A project's tests in its own process: what is left out and told, and that nothing is proven."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from textwrap import dedent

import pytest
from orchestrion_sandbox.box import ZygoteBox
from orchestrion_sandbox.repository import UNPROVEN, judge_repository
from orchestrion_sandbox.verdict import Verdict

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
    return runner.run(judge_repository(box, TESTS, files, accept_unproven=True))


def test_a_right_project_passes_where_the_programs_word_is_accepted(
    runner: asyncio.Runner, box: ZygoteBox
) -> None:
    verdict = judged(runner, box, RIGHT)
    assert verdict.passed, verdict
    assert verdict.method == "shared"
    assert [outcome.name.partition("::")[2] for outcome in verdict.outcomes] == [
        "TestPrice::test_known[tea-3]",
        "TestPrice::test_known[milk-2]",
        "TestPrice::test_unknown",
        "Old::test_sum",
        "test_basket",
        "test_many",
    ]
    assert verdict.unproven == (UNPROVEN,)


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


LEAVES = "import os\nos._exit(0)\n"
EMPTY_REPORT = """
import os, sys, json
frame = sys._getframe()
while frame:
    word = frame.f_locals.get("word")
    if isinstance(word, str):
        report = {"collected": [], "reports": [], "errors": [], "exit": 0}
        os.write(frame.f_locals["out"], ("\\n" + word + json.dumps(report) + "\\n").encode())
    frame = frame.f_back
"""


@pytest.mark.parametrize("source", [LEAVES, EMPTY_REPORT])
def test_a_clumsy_forgery_is_told(runner: asyncio.Runner, box: ZygoteBox, source: str) -> None:
    files = {"shop/__init__.py": "", "shop/prices.py": BROKEN["shop/prices.py"] + source}
    verdict = judged(runner, box, files)
    assert verdict.forgeries
    assert verdict.share == 0


# ---------------------------------------------------------------- one process

READS_THE_TESTS = """
    import ast, glob
    def add(a, b):
        for path in glob.glob("test_*.py"):
            for node in ast.walk(ast.parse(open(path).read())):
                if isinstance(node, ast.Compare) and ast.unparse(node.left) == f"add({a}, {b})":
                    return ast.literal_eval(node.comparators[0])
"""


def judged_together(
    runner: asyncio.Runner, box: ZygoteBox, program: str, accept: bool = False
) -> Verdict:
    tests = {"test_add.py": "from solution import add\ndef test(): assert add(1, 2) == 3\n"}
    files = {"solution.py": dedent(program)}
    return runner.run(judge_repository(box, tests, files, accept_unproven=accept))


def test_tests_in_the_programs_own_process_prove_nothing(
    runner: asyncio.Runner, box: ZygoteBox
) -> None:
    right, reader = "def add(a, b): return a + b", READS_THE_TESTS
    for program in (right, reader):
        verdict = judged_together(runner, box, program)
        assert (verdict.passed, verdict.share, verdict.unproven) == (False, 0, (UNPROVEN,))
        assert judged_together(runner, box, program, accept=True).passed
    assert not judged_together(runner, box, "def add(a, b): return 0", accept=True).passed
