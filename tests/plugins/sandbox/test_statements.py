"""Tests that are code in one sandbox, the program in another: what crosses, and what does not."""

from __future__ import annotations

import asyncio
from textwrap import dedent

import pytest
from attrs import evolve, frozen
from orchestrion_sandbox.judge import JUDGE_LIMITS, judge_calls, judge_statements
from orchestrion_sandbox.verdict import Case, Verdict
from orchestrion_sandbox.warm import WarmBox

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
    runner: asyncio.Runner, box: WarmBox, statement: str
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
    runner: asyncio.Runner, box: WarmBox, program: str, why: str
) -> None:
    cases = [Case((), raises=name) for name in ("TypeError", "KeyError", "NameError", "Exception")]
    assert runner.run(judge_calls(box, program, "f", cases)).share == 0, why
    statement = "try:\n    f()\nexcept (TypeError, KeyError, NameError):\n    pass"
    assert not runner.run(judge_statements(box, program, "f", [statement])).passed, why


def test_a_statement_that_never_ends_is_no_forgery_of_the_program(
    runner: asyncio.Runner, box: WarmBox
) -> None:
    limits = evolve(JUDGE_LIMITS, cpu_seconds=1, wall_seconds=300)
    judging = judge_statements(
        box, FUNCTIONS, "f", ["while True: pass", "assert f(1) == 2"], limits=limits
    )
    verdict = runner.run(judging)
    assert verdict.forgeries == ()
    assert [outcome.passed for outcome in verdict.outcomes] == [False, True]


def test_many_verdicts_at_once_do_not_wait_for_one_another(
    runner: asyncio.Runner, box: WarmBox
) -> None:
    source = "def f(n):\n    return n + 1\n"

    async def all_of_them() -> list[Verdict]:
        statements = [judge_statements(box, source, "f", ["assert f(1) == 2"]) for _ in range(6)]
        calls = [judge_calls(box, source, "f", [Case((1,), 2)]) for _ in range(6)]
        async with asyncio.timeout(60):
            return list(await asyncio.gather(*statements, *calls))

    assert all(verdict.passed for verdict in runner.run(all_of_them()))


# ---------------------------------------------------------------- objects instead of answers


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
    runner: asyncio.Runner, box: WarmBox, name: str
) -> None:
    attack = POSING[name]
    for source, passes in ((attack.right, True), (attack.wrong, False)):
        verdict = runner.run(judge_statements(box, dedent(source), "f", [attack.test]))
        assert verdict.passed is passes, (source, verdict)
    with_both: dict[str, object] = {}
    exec(dedent(attack.wrong) + "\n" + attack.test, with_both)  # it does fool a naive judge


@pytest.mark.parametrize("error", ["KeyboardInterrupt", "GeneratorExit", "SystemExit(0)"])
def test_an_exception_that_ends_more_than_a_loop_fails_the_test(
    runner: asyncio.Runner, box: WarmBox, error: str
) -> None:
    verdict = runner.run(judge_statements(box, f"def f(n): raise {error}", "f", [EACH]))
    assert not verdict.passed


def test_an_iterator_is_gone_through_once_and_items_are_plain_data(
    runner: asyncio.Runner, box: WarmBox
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


def test_cases_are_compared_outside_whatever_an_answer_claims(
    runner: asyncio.Runner, box: WarmBox
) -> None:
    for name in ("equal to everything", "a float that is near to everything"):
        source = dedent(POSING[name].wrong)
        assert not runner.run(judge_calls(box, source, "f", [Case((3,), 4)])).passed
