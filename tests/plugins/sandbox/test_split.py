"""Tests in one sandbox, the program in another: what can be said across, and what cannot."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from textwrap import dedent

import pytest
from attrs import evolve
from orchestrion_sandbox.box import ZygoteBox
from orchestrion_sandbox.judge import JUDGE_LIMITS, judge_calls, judge_statements
from orchestrion_sandbox.split import PYTEST_LIMITS, judge_pytest
from orchestrion_sandbox.verdict import Case, Verdict

PROGRAM = """
    from helper import STEP

    LIMIT = 5

    class Bad(ValueError):
        code = 7

    class Worse(Bad):
        pass

    class Stack:
        kind = "stack"

        def __init__(self, *items):
            self.items = list(items)

        def push(self, item):
            self.items.append(item)

        def pop(self):
            return self.items.pop()

        def __len__(self):
            return len(self.items)

        def __iter__(self):
            return iter(self.items)

        def __getitem__(self, index):
            return self.items[index]

        def __add__(self, other):
            return Stack(*self.items, *other.items)

        def __eq__(self, other):
            return self.items == other.items

        def __enter__(self):
            return self

        def __exit__(self, *error):
            self.items.clear()

        @classmethod
        def of(cls, number):
            return cls(*range(number))

    def add(a, b):
        return a + b

    def fail(worse=False):
        raise (Worse if worse else Bad)("boo")

    def divide():
        return 1 / 0

    def count():
        number = 0
        while True:
            yield number
            number += STEP

    def each(function, items):
        return [function(item) for item in items]

    def adder(number):
        return lambda other: number + other

    def clear(items):
        items.clear()
"""
LIMITS = evolve(PYTEST_LIMITS, cpu_seconds=3, wall_seconds=300)
FILES = {"solution.py": dedent(PROGRAM), "helper.py": "STEP = 1\n"}


class Judged:
    """Runs test functions written as text."""

    def __init__(self, runner: asyncio.Runner, box: ZygoteBox) -> None:
        self._runner, self.box = runner, box

    def __call__(
        self,
        tests: str,
        files: Mapping[str, str] = FILES,
        wanted: Sequence[str] | None = None,
        more: Mapping[str, str] | None = None,
        accept_unproven: bool = False,
    ) -> Verdict:
        written = {"test_it.py": "import pytest\nimport solution\n" + dedent(tests), **(more or {})}
        judging = judge_pytest(
            self.box, written, files, wanted=wanted, limits=LIMITS, accept_unproven=accept_unproven
        )
        return self._runner.run(judging)


@pytest.fixture
def judged(runner: asyncio.Runner, box: ZygoteBox) -> Judged:
    """The split judge."""
    return Judged(runner, box)


WORKS = {
    "parametrized": """
        @pytest.mark.parametrize(("a", "b"), [(1, 2), ("x", "y"), ([1], [2.5])])
        def test(a, b):
            assert solution.add(a, b) == a + b
    """,
    "objects": """
        def test():
            stack = solution.Stack(1)
            stack.push(3)
            assert stack.pop() == 3 and len(stack) == 1 and stack[0] == 1 and list(stack) == [1]
            assert stack.kind == "stack" and solution.Stack.kind == "stack"
            stack.kind = "other"
            assert stack.kind == "other" and stack.items == [1]
            assert isinstance(stack, solution.Stack) and not isinstance(3, solution.Stack)
            assert list(solution.Stack.of(2) + stack) == [0, 1, 1]
            with stack as same:
                assert same is stack
            assert not list(stack)
    """,
    "exceptions": """
        def test():
            with pytest.raises(solution.Bad, match="^boo$") as caught:
                solution.fail(worse=True)
            assert caught.value.code == 7 and type(caught.value) is solution.Worse
            with pytest.raises(ValueError):
                solution.fail()
            with pytest.raises(ZeroDivisionError):
                solution.divide()
            with pytest.raises(AttributeError):
                solution.missing
    """,
    "functions both ways": """
        def test():
            assert solution.adder(2)(3) == 5
            assert solution.each(lambda n: n * 2, [1, 2]) == [2, 4]
            assert solution.each(lambda n: solution.add(n, 1), (1, 2)) == [2, 3]
            assert solution.each(solution.adder(1), [1]) == [2]
            def failing(item):
                raise KeyError(item)
            with pytest.raises(KeyError):
                solution.each(failing, [1])
    """,
    "endless generators": """
        def test():
            numbers = solution.count()
            assert [next(numbers) for _ in range(3)] == [0, 1, 2]
    """,
    "fixtures": """
        @pytest.fixture
        def three():
            return 3
        def test(three, tmp_path, monkeypatch, capsys):
            print(three)
            assert capsys.readouterr().out == "3\\n"
            assert solution.add(three, solution.LIMIT) == 8
    """,
    "unittest": """
        import unittest
        class TestAdd(unittest.TestCase):
            def test(self):
                self.assertEqual(solution.add(1, 2), 3)
    """,
    "star": """
        from solution import *
        def test():
            assert add(1, LIMIT) == 6
    """,
}


@pytest.mark.parametrize("tests", WORKS.values(), ids=WORKS)
def test_tests_work_as_in_one_process(judged: Judged, tests: str) -> None:
    verdict = judged(tests)
    assert verdict.passed, verdict
    assert verdict.method == "split"


DOES_NOT_PASS = {
    "skipped": "def test(): pytest.skip('no')",
    "marked as skipped": "@pytest.mark.skip\ndef test(): pass",
    "expected to fail": "@pytest.mark.xfail\ndef test(): assert False",
    "unexpectedly passing": "@pytest.mark.xfail\ndef test(): pass",
    "failing at the end": "@pytest.fixture\ndef f():\n    yield\n    1/0\ndef test(f): pass",
    "failing at the start": "@pytest.fixture\ndef f():\n    1/0\ndef test(f): pass",
    "leaving": "def test():\n    import os\n    os._exit(0)",
    "ending the session": "def test(): pytest.exit('enough', 0)",
    "no tests": "x = 1",
    "not collected": "1 / 0",
    "too long": "def test():\n    while True: pass",
}


@pytest.mark.parametrize("tests", DOES_NOT_PASS.values(), ids=DOES_NOT_PASS)
def test_whatever_is_not_a_pass_is_none(judged: Judged, tests: str) -> None:
    verdict = judged(tests)
    assert not verdict.passed
    assert verdict.share == 0
    assert verdict.forgeries == ()


def test_other_tests_than_the_wanted_ones_are_none(judged: Judged) -> None:
    tests = "def test(): pass"
    assert judged(tests, wanted=["test_it.py::test"]).passed
    assert not judged(tests, wanted=["test_it.py::test", "test_it.py::test_more"]).passed
    assert not judged(tests, wanted=[]).passed


def test_a_test_that_fails_is_told_with_its_name_and_reason(judged: Judged) -> None:
    verdict = judged("def test_a(): assert solution.add(1, 1) == 3\ndef test_b(): pass")
    assert [(o.name, o.passed) for o in verdict.outcomes] == [
        ("test_it.py::test_a", False),
        ("test_it.py::test_b", True),
    ]
    assert "2 == 3" in verdict.outcomes[0].text
    assert verdict.share == 0.5


LIAR = """
    class Liar:
        def __eq__(self, other): return True
        def __getattr__(self, name): return lambda *a: True
        def __sub__(self, other): return 0.0
        __rsub__ = __contains__ = __sub__
        def __lt__(self, other): return True
    def f(*a): return Liar()
    def g(): return [Liar(), {"a": Liar()}]
"""


@pytest.mark.parametrize(
    "claim",
    [
        "solution.f() == 3",
        "3 == solution.f()",
        "solution.f() in (3, 4)",
        "3 in solution.f()",
        "abs(solution.f() - 1.33) < 1e-6",
        "abs(1.33 - solution.f()) < 1e-6",
        "solution.f() == pytest.approx(1.33)",
        "solution.f().startswith('abc')",
        "solution.f() < 4",
        "solution.g() == [3, {'a': 4}]",
        "solution.f() == solution.f(1)",
        "[solution.f()] == [3]",
        "{'a': solution.f()} == {'a': 3}",
        "not solution.f() != 3",
        "sorted([solution.f(), solution.f(1)]) == [1, 2]",
    ],
)
def test_an_object_that_poses_as_data_decides_nothing(judged: Judged, claim: str) -> None:
    files = {"solution.py": dedent(LIAR)}
    verdict = judged(f"def test(): assert {claim}", files, wanted=["test_it.py::test"])
    assert not verdict.passed


def test_two_objects_of_the_class_under_test_are_compared_there_and_that_proves_nothing(
    judged: Judged,
) -> None:
    tests = "def test(): assert solution.Stack(1) == solution.Stack(1)\ndef test_more(): pass"
    verdict = judged(tests)
    assert verdict.unproven == ("Stack.__eq__",)
    assert [outcome.error for outcome in verdict.outcomes] == ["Unproven", ""]
    assert judged(tests, accept_unproven=True).passed


def test_an_object_that_builds_an_expression_when_compared_is_no_lie(judged: Judged) -> None:
    source = """
        class Condition:
            def __init__(self, name, value): self.name, self.value = name, value
        class Field:
            def __init__(self, name): self.name = name
            def __eq__(self, value): return Condition(self.name, value)
            def equals(self, value): return self == value
    """
    tests = "from solution import *\ndef test(): assert Field('a').equals(3).name == 'a'"
    verdict = judged(tests, {"solution.py": dedent(source)})
    assert verdict.passed
    assert verdict.forgeries == ()


def test_what_the_program_does_to_its_arguments_is_not_seen(judged: Judged) -> None:
    tests = "def test():\n    items = [1]\n    solution.clear(items)\n    assert items == [1]"
    assert judged(tests).passed


def test_the_authors_conftest_is_used_and_the_programs_is_not(judged: Judged) -> None:
    conftest = "import pytest\n@pytest.fixture\ndef five(): return 5\n"
    tests = "def test(five): assert solution.LIMIT == five"
    assert judged(tests, more={"conftest.py": conftest}).passed
    hooks = "def pytest_runtest_makereport(): return None\n"
    failing = judged("def test(): assert 0", {**FILES, "conftest.py": hooks})
    assert not failing.passed


def test_a_program_that_dies_in_one_test_is_asked_again_in_the_next(judged: Judged) -> None:
    files = {"solution.py": "import ctypes\ndef die(): ctypes.string_at(0)\ndef one(): return 1\n"}
    verdict = judged(
        "def test_a(): solution.die()\ndef test_b(): assert solution.one() == 1", files
    )
    assert [outcome.passed for outcome in verdict.outcomes] == [False, True]
    assert "Crashed" in verdict.outcomes[0].text


def test_many_verdicts_at_once_do_not_wait_for_one_another(
    runner: asyncio.Runner, box: ZygoteBox
) -> None:
    source = "def f(n):\n    return n + 1\n"

    async def all_of_them() -> list[Verdict]:
        statements = [judge_statements(box, source, "f", ["assert f(1) == 2"]) for _ in range(6)]
        calls = [judge_calls(box, source, "f", [Case((1,), 2)]) for _ in range(6)]
        async with asyncio.timeout(60):
            return list(await asyncio.gather(*statements, *calls))

    assert all(verdict.passed for verdict in runner.run(all_of_them()))


# ---------------------------------------------------------------- statements

STATEMENTS = {
    "loops": "for i in range(20):\n    assert f(i) == i + 1",
    "floats": "assert abs(f(0.33) - 1.33) < 1e-6 and math.isclose(f(1.5), 2.5)",
    "check": "check(f)",
    "errors": "try:\n    f('a')\nexcept TypeError:\n    pass\nelse:\n    assert False",
    "sets": "assert set(map(f, {1, 2})) == {2, 3}",
    "several functions": "assert g(f(1)) == [2, 3]",
    "views": "assert list(views(3)) == [0, 1, 2] and len(views(3)) == 3",
    "an error of its own": "try:\n    own()\nexcept ValueError as e:\n    assert 'x' in str(e)",
}
PRELUDE = """
import math
METADATA = {"author": "x"}
def check(candidate):
    assert candidate(1) == 2, "one"
    assert [candidate(i) for i in range(3)] == [1, 2, 3]
"""
FUNCTIONS = """
class Own(ValueError): pass
def f(n): return n + 1
def g(n): return [n, n + 1]
def views(n): return range(n)
def own(): raise Own("x")
"""


@pytest.mark.parametrize("statement", STATEMENTS.values(), ids=STATEMENTS)
def test_statements_say_what_tests_of_public_problem_sets_say(
    runner: asyncio.Runner, box: ZygoteBox, statement: str
) -> None:
    names = ("f", "g", "views", "own")
    judging = judge_statements(box, FUNCTIONS, names, [statement], prelude=PRELUDE)
    verdict = runner.run(judging)
    assert verdict.passed, verdict


@pytest.mark.parametrize(
    ("program", "why"),
    [
        ("raise TypeError", "loading fails with what was wanted"),
        ("def g(): pass", "no such function"),
    ],
)
def test_a_program_that_cannot_be_asked_raises_nothing_that_was_wanted(
    runner: asyncio.Runner, box: ZygoteBox, program: str, why: str
) -> None:
    cases = [Case((), raises=name) for name in ("TypeError", "KeyError", "NameError", "Exception")]
    assert runner.run(judge_calls(box, program, "f", cases)).share == 0, why
    statement = "try:\n    f()\nexcept (TypeError, KeyError, NameError):\n    pass"
    assert not runner.run(judge_statements(box, program, "f", [statement])).passed, why


def test_a_statement_that_never_ends_is_no_forgery_of_the_program(
    runner: asyncio.Runner, box: ZygoteBox
) -> None:
    limits = evolve(JUDGE_LIMITS, cpu_seconds=1, wall_seconds=300)
    judging = judge_statements(
        box, FUNCTIONS, "f", ["while True: pass", "assert f(1) == 2"], limits=limits
    )
    verdict = runner.run(judging)
    assert verdict.forgeries == ()
    assert [outcome.passed for outcome in verdict.outcomes] == [False, True]
