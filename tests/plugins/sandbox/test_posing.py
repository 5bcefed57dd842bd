"""Answers that are another value at each look, and exceptions that end the tests' own loops.

Every wrong program here passes its test where both share a process; every right one passes it here.
"""

from __future__ import annotations

import asyncio
from textwrap import dedent

import pytest
from attrs import evolve, frozen
from orchestrion_sandbox.box import ZygoteBox
from orchestrion_sandbox.judge import judge_calls, judge_statements
from orchestrion_sandbox.split import PYTEST_LIMITS, judge_pytest
from orchestrion_sandbox.verdict import Case


@frozen
class Attack:
    """A test, a program that is right, and one that is wrong and passes in the same process."""

    test: str
    right: str
    wrong: str


def _looks(special: str, answers: str) -> str:
    """A program whose answer gives the next of these at each look."""
    return f"""
        import itertools
        class Answer:
            looks = itertools.cycle({answers})
            def {special}(self, *args): return next(self.looks)
        def f(*args): return Answer()
    """


ITERATES = """
    class Each:
        looks = [[3, 1, 2], []]
        def __iter__(self): return iter(self.looks.pop(0) if self.looks else [])
        def __len__(self): return 3
        def __getitem__(self, index): return self
    def f(items): return Each()
"""
SORTS = "def f(items): return sorted(items)"
ADDS = "def f(n): return n + 1"
PAIR = "def f(n): return (n, n + 1)"
EVEN = "def f(n): return n % 2 == 0"
OBJECT = "def f(n): return object()"
EACH = "assert all(map(lambda n: f(n) == n + 1, range(5)))"

POSING = {
    "iteration that differs": Attack(
        "r = f([3, 1, 2])\nassert sorted(r) == [1, 2, 3]\n"
        "assert all(a <= b for a, b in zip(r, r[1:]))",
        SORTS,
        ITERATES,
    ),
    "a length that differs": Attack(
        "r = f([2, 1])\nassert len(r) == 2 and (len(r) == 2 or r[0] == 1)",
        SORTS,
        _looks("__len__", "[2]"),
    ),
    "float() that follows what is asked": Attack(
        "r = f(3)\nassert 4 - float(r) == 0 and 8 - 2 * float(r) == 0",
        ADDS,
        _looks("__float__", "[4.0]"),
    ),
    "truth that alternates": Attack(
        "assert f(2)\nassert not f(3)", EVEN, _looks("__bool__", "[True, False]")
    ),
    "an index that differs": Attack(
        "r = f(3)\nassert len(range(r)) == 4 and [0, 0, 0, 0, 7][r] == 7",
        ADDS,
        _looks("__index__", "[4]"),
    ),
    "a whole number at each look": Attack(
        "r = f(3)\nassert int(r) == 4 and int(r) + 1 == 5", ADDS, _looks("__int__", "[4]")
    ),
    "text that differs": Attack(
        "r = f(3)\nassert str(r) == '4' and str(r)[::-1] == '4'", ADDS, _looks("__str__", "'4'")
    ),
    "a format of its own": Attack(
        "assert f'{f(3)}' == '4'",
        ADDS,
        """
        class Answer:
            def __format__(self, spec): return "4"
            def __str__(self): return "4"
        def f(n): return Answer()
        """,
    ),
    "a name that a test looks up": Attack(
        "assert f([1, 2]).count(1) == 1",
        SORTS,
        """
        class Answer:
            def __getattr__(self, name): return lambda *a: 1
        def f(items): return Answer()
        """,
    ),
    "a property that differs": Attack(
        "r = f(3)\nassert r.real == 4 and r.imag == 0",
        ADDS,
        """
        class Answer:
            real, imag = property(lambda self: 4), property(lambda self: 0)
        def f(n): return Answer()
        """,
    ),
    "equal to everything": Attack(
        "assert f(3) == 4", ADDS, _looks("__eq__", "[True]") + "\n        Answer.__hash__ = id"
    ),
    "never unequal": Attack("assert not f(3) != 4", ADDS, _looks("__ne__", "[False]")),
    "less and more than everything": Attack(
        "assert 3 < f(3) < 5",
        ADDS,
        """
        class Answer:
            __lt__ = __gt__ = lambda self, other: True
        def f(n): return Answer()
        """,
    ),
    "contains everything": Attack("assert 2 in f([1, 2])", SORTS, _looks("__contains__", "[True]")),
    "reflected arithmetic": Attack(
        "assert abs(4.0 - f(3)) < 1e-6", ADDS, _looks("__rsub__", "[0.0]")
    ),
    "addition in place": Attack("r = f(3)\nr += 1\nassert r == 5", ADDS, _looks("__iadd__", "[5]")),
    "rounding": Attack("assert round(f(3), 2) == 4", ADDS, _looks("__round__", "[4]")),
    "members of a set": Attack(
        "assert len({f(1), f(2), f(3)}) == 3", ADDS, "def f(n): return object()"
    ),
    "something instead of nothing": Attack(
        "assert f(3) is not None", ADDS, "def f(n): return object()"
    ),
    "a class that lies about itself": Attack(
        "r = f(3)\nassert isinstance(r, int) and int(r) == 4",
        ADDS,
        """
        class Answer:
            __class__ = int
            def __int__(self): return 4
        def f(n): return Answer()
        """,
    ),
    "unpacking": Attack("a, b = f(1)\nassert a < b", PAIR, _looks("__iter__", "[iter((1, 2))]")),
    "a class instead of a value": Attack(
        "r = f(1)\nassert len(r) == 2 and r[1] == 2",
        PAIR,
        """
        class Meta(type):
            def __len__(cls): return 2
            def __getitem__(cls, index): return 2
        class Answer(metaclass=Meta): pass
        def f(n): return Answer
        """,
    ),
    "a context that swallows the failure": Attack(
        "import contextlib\nr = f(3)\nwith contextlib.nullcontext() if isinstance(r, int) else r:\n"
        "    assert r == 4",
        ADDS,
        """
        class Answer:
            def __enter__(self): return self
            def __exit__(self, *error): return True
            def __eq__(self, other): return other is self
        def f(n): return Answer()
        """,
    ),
    "a function with a length": Attack(
        "r = f([1, 2])\nassert len(r) == 2",
        SORTS,
        """
        class Answer:
            __name__ = "answer"
            def __call__(self): pass
            def __len__(self): return 2
        def f(items): return Answer()
        """,
    ),
    "a reduction of its own": Attack(
        "import copy\nassert copy.copy(f(3)) == 4",
        ADDS,
        """
        class Answer:
            def __reduce_ex__(self, version): return (int, (4,))
        def f(n): return Answer()
        """,
    ),
    "awaiting": Attack(
        "import inspect\nr = f(3)\nassert r == 4 if not inspect.isawaitable(r) else True",
        ADDS,
        """
        class Answer:
            def __await__(self): yield
        def f(n): return Answer()
        """,
    ),
    "a dictionary that has every key": Attack(
        "r = f(3)\nassert r['n'] == 3 and r['m'] == 4",
        "def f(n): return {'n': n, 'm': n + 1}",
        """
        class Answer(dict):
            def __getitem__(self, key): return {"n": 3, "m": 4}[key]
        def f(n): return Answer()
        """,
    ),
    "a list that is longer than it is": Attack(
        "assert len(f([2, 1])) == 2",
        SORTS,
        """
        class Answer(list):
            def __len__(self): return 2
        def f(items): return Answer()
        """,
    ),
    "a float that is near to everything": Attack(
        "assert abs(f(3) - 4) < 1e-6",
        ADDS,
        """
        class Answer(float):
            def __sub__(self, other): return 0.0
        def f(n): return Answer(1.0)
        """,
    ),
    "a text that begins with everything": Attack(
        "assert f(3).startswith('n')",
        "def f(n): return 'n' * n",
        """
        class Answer(str):
            def startswith(self, other): return True
        def f(n): return Answer("x")
        """,
    ),
    "StopIteration ends the test's loop": Attack(EACH, ADDS, "def f(n): raise StopIteration"),
    "a StopIteration of its own": Attack(
        EACH,
        ADDS,
        """
        class Stop(StopIteration): pass
        def f(n): raise Stop
        """,
    ),
    "StopIteration in a filter": Attack(
        "assert not list(filter(lambda n: f(n) != n + 1, range(5)))",
        ADDS,
        "def f(n): raise StopIteration(n)",
    ),
    "StopAsyncIteration ends an asynchronous loop": Attack(
        """
import asyncio
class Each:
    def __init__(self): self.n = 0
    def __aiter__(self): return self
    async def __anext__(self):
        self.n += 1
        if self.n > 3: raise StopAsyncIteration
        return f(self.n) == self.n + 1
async def check():
    async for right in Each():
        assert right
asyncio.run(check())
        """,
        ADDS,
        "def f(n): raise StopAsyncIteration",
    ),
}


@pytest.mark.parametrize("name", POSING)
def test_an_answer_that_is_no_plain_data_proves_nothing(
    runner: asyncio.Runner, box: ZygoteBox, name: str
) -> None:
    attack = POSING[name]
    for source, passes in ((attack.right, True), (attack.wrong, False)):
        verdict = runner.run(judge_statements(box, dedent(source), "f", [attack.test]))
        assert verdict.passed is passes, (source, verdict)
    with_both: dict[str, object] = {}
    exec(dedent(attack.wrong) + "\n" + attack.test, with_both)  # it does fool a naive judge


def test_a_verdict_that_rests_on_the_programs_word_can_be_accepted(
    runner: asyncio.Runner, box: ZygoteBox
) -> None:
    attack = POSING["a whole number at each look"]
    judging = judge_statements(
        box, dedent(attack.wrong), "f", [attack.test, "assert 1"], accept_unproven=True
    )
    verdict = runner.run(judging)
    assert verdict.passed
    assert verdict.unproven == ("Answer", "Answer.__int__")
    refused = runner.run(judge_statements(box, dedent(attack.wrong), "f", [attack.test, "1"]))
    assert [(o.passed, o.error) for o in refused.outcomes] == [(False, "Unproven"), (True, "")]


@pytest.mark.parametrize("error", ["KeyboardInterrupt", "GeneratorExit", "SystemExit(0)"])
def test_an_exception_that_ends_more_than_a_loop_fails_the_test(
    runner: asyncio.Runner, box: ZygoteBox, error: str
) -> None:
    verdict = runner.run(judge_statements(box, f"def f(n): raise {error}", "f", [EACH]))
    assert not verdict.passed


def test_an_iterator_is_gone_through_once_and_items_are_plain_data(
    runner: asyncio.Runner, box: ZygoteBox
) -> None:
    source = """
        def f(n):
            yield from range(n)
        class Again:
            looks = 0
            def __iter__(self):
                self.looks += 1
                return iter([self.looks])
        def g(): return Again()
        def h():
            while True:
                yield object()
    """
    statements = [
        "r = f(3)\nassert next(r) == 0 and list(r) == [1, 2] and list(r) == []",
        "r = g()\nassert list(r) == list(r) == [1]",  # copied once
        "assert next(h()) is not None",
    ]
    verdict = runner.run(judge_statements(box, dedent(source), ["f", "g", "h"], statements))
    assert [outcome.error for outcome in verdict.outcomes] == ["", "", "Unproven"]


# ---------------------------------------------------------------- files of pytest

CLASSES = """
    class Box:
        def __init__(self, value): self.value = value
        def __enter__(self): return self
        def __exit__(self, *error): return True
        def each(self, item): raise StopIteration
    class Odd(Box): pass
    class answer:
        def __init__(self, value): pass
        def __float__(self): return 4.0
    def make(value): return Odd(value)
    def hidden(value):
        class Secret: pass
        secret = Secret()
        secret.value = value
        return secret
"""
PYTEST = {
    "a context does not take back a failure": (
        "with Box(1) as one:\n        assert one.value == 2",
        False,
    ),
    "a method does not end a loop": ("assert all(map(Box(1).each, [1, 2]))", False),
    "a class under the name of a function": ("assert float(solution.answer(4)) == 4", False),
    "an object of a class that is not named": ("assert solution.hidden(3).value == 3", False),
    "an object of a class that is named": ("assert Box(3).value == 3", True),
    "an object of a kind of it": ("assert solution.make(3).value == 3", True),
}


@pytest.mark.parametrize("name", PYTEST)
def test_objects_answer_for_themselves_where_the_tests_name_their_class(
    runner: asyncio.Runner, box: ZygoteBox, name: str
) -> None:
    claim, passes = PYTEST[name]
    tests = {"test_it.py": f"import solution\nfrom solution import Box\ndef test():\n    {claim}\n"}
    limits = evolve(PYTEST_LIMITS, cpu_seconds=4, wall_seconds=300)
    judging = judge_pytest(
        box, tests, {"solution.py": dedent(CLASSES)}, wanted=["test_it.py::test"], limits=limits
    )
    assert runner.run(judging).passed is passes


def test_cases_are_compared_outside_whatever_an_answer_claims(
    runner: asyncio.Runner, box: ZygoteBox
) -> None:
    for name in ("equal to everything", "a float that is near to everything"):
        source = dedent(POSING[name].wrong)
        assert not runner.run(judge_calls(box, source, "f", [Case((3,), 4)])).passed
