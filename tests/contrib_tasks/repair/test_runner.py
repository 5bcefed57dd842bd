"""Running programs: every way a program can misbehave is a failed test, never more."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from orchestrion_repair.runner import (
    CachedRunner,
    Limits,
    Outcome,
    ProcessRunner,
    Trial,
    shared_runner,
)
from orchestrion_repair.worker import may_share
from orchestrion_sandbox.inside.plain import decode, encode

from tests.contrib_tasks.repair.support import FAST, TOTAL, TOTAL_CASES, cases, outcomes

ONE = cases(([1], 1))
RIGHT = "def f(x):\n    return x\n"

MISBEHAVIOURS = {
    "raises": "def f(x): raise ValueError('no')",
    "is no program": "def f(x",
    "has no such function": "def g(x): return 1",
    "never ends": "def f(x):\n    while True: pass",
    "never ends and catches everything": """
def f(x):
    while True:
        try:
            while True: pass
        except BaseException: pass
""",
    "recurses for ever": "def f(x): return f(x)",
    "recurses twice": "def f(x): return f(x) + f(x) if x < 10**9 else 1",
    "raises the limit and recurses": """
import sys
def f(x):
    sys.setrecursionlimit(10**9)
    return f(x)
""",
    "takes all memory": "def f(x): return len([0] * 10**12)",
    "takes memory bit by bit": "def f(x):\n    y = 'x'\n    while True: y += y",
    "exits": "import sys\ndef f(x): sys.exit(0)",
    "exits at once": "import os\ndef f(x): os._exit(0)",
    "exits when it is loaded": "raise SystemExit(0)",
    "closes all files": "import os\ndef f(x):\n    os.closerange(0, 256)\n    return 1",
    "kills its parent": "import os\ndef f(x):\n    os.kill(os.getppid(), 9)\n    return 1",
    "forks": "import os\ndef f(x):\n    os.fork()\n    return 1",
    "writes files": "def f(x):\n    open('/tmp/left-behind', 'w')\n    return 1",
    "reads files": "def f(x): return len(open('/etc/passwd').read())",
    "waits for input": "def f(x): return input()",
    "opens sockets": "import socket\ndef f(x): return socket.socket() and 1",
    "gives what is no data": "def f(x): return object()",
    "gives itself": "def f(x):\n    y = []\n    y.append(y)\n    return y",
    "gives without end": "import itertools\ndef f(x): return itertools.count()",
    "gives far too much": "def f(x): return 'x' * 10**7",
    "gives an endless number": "def f(x): return 10**10**5",
    "gives half a character": "def f(x): return '\\ud800'",
}


@pytest.fixture(scope="module")
def pool_outcomes() -> dict[str, tuple[Outcome, ...]]:
    """All of them in one batch, each followed by a program that is right."""

    async def run() -> list[tuple[Outcome, ...]]:
        pool = ProcessRunner(1)
        trials = []
        for code in MISBEHAVIOURS.values():
            trials += [Trial(code, "f", ONE), Trial(RIGHT, "f", ONE)]
        try:
            return await pool.run(trials, FAST)
        finally:
            await pool.close()

    found = asyncio.run(run())
    assert all(after[0].passed for after in found[1::2]), "a program spoilt the one after it"
    return dict(zip(MISBEHAVIOURS, found[::2], strict=True))


@pytest.mark.parametrize("name", MISBEHAVIOURS)
def test_a_program_that_misbehaves_fails_and_the_next_one_runs(
    name: str, pool_outcomes: dict[str, tuple[Outcome, ...]]
) -> None:
    (outcome,) = pool_outcomes[name]
    assert not outcome.passed


def test_printing_without_end_is_ignored() -> None:
    code = "import sys\ndef f(x):\n    for _ in range(99): print('PASS' * 9999)\n    return x"
    assert [one.passed for one in outcomes(code, ONE)] == [True]


def test_what_steps_cannot_count_ends_by_cpu_seconds() -> None:
    code = "import itertools\ndef f(x): return sum(itertools.repeat(1))"
    (outcome,) = outcomes(code, ONE, isolated=True)
    assert (outcome.passed, outcome.error) == (False, "OutOfTime")
    (outcome,) = outcomes(code, ONE)
    assert (outcome.passed, outcome.error) == (False, "OutOfTime")


# ---------------------------------------------------------------- what is counted and told


def test_every_case_has_an_outcome() -> None:
    found = outcomes(TOTAL.replace("> 0", "> 3"), TOTAL_CASES, "total")
    assert [one.passed for one in found] == [False, True, True, True, False]


def test_a_trial_that_stops_has_no_outcome_after_its_first_failure() -> None:
    found = outcomes(TOTAL.replace("> 0", "> 3"), TOTAL_CASES[1:], "total", stop=True)
    assert [one.passed for one in found] == [True, True, True, False]
    assert len(outcomes(TOTAL.replace("> 0", "> 3"), TOTAL_CASES, "total", stop=True)) == 1


def test_lines_are_those_each_case_ran() -> None:
    found = outcomes(TOTAL, TOTAL_CASES, "total", lines=True)
    assert found[0].lines == (1, 2, 3, 4, 5, 6)
    assert found[1].lines == (1, 2, 3, 6)


def test_lines_are_told_of_a_program_that_never_ends() -> None:
    code = "def f(x):\n    y = x\n    while y:\n        x = y\n    return x\n"
    (outcome,) = outcomes(code, ONE, lines=True)
    assert (outcome.error, outcome.lines) == ("OutOfSteps", (1, 2, 3, 4))


def test_an_exception_is_told_with_its_line_in_the_program() -> None:
    (outcome,) = outcomes("def f(x):\n    y = {}\n    return y[x]\n", ONE)
    assert (outcome.error, outcome.line) == ("KeyError", 3)


def test_steps_are_counted_for_each_case_alone() -> None:
    code = "def f(n):\n    for _ in range(n): pass\n    return n\n"
    tests = cases(*[([900], 900)] * 5, ([1200], 1200))
    found = outcomes(code, tests, limits=Limits(steps=1_000))
    assert [one.passed for one in found] == [True] * 5 + [False]


def test_cases_do_not_see_what_another_left_behind() -> None:
    code = "a = []\ndef f(x, b=[]):\n    a.append(x)\n    b.append(x)\n    return [a, b]"
    tests = cases(([1], [[1], [1]]), ([2], [[2], [2]]))
    assert all(one.passed for one in outcomes(code, tests))


def test_arguments_are_copies() -> None:
    code = "def f(x):\n    x.append(0)\n    return x"
    assert all(one.passed for one in outcomes(code, cases(([[1]], [1, 0]), ([[1]], [1, 0]))))


@pytest.mark.parametrize(
    ("code", "want", "passes"),
    [
        ("def f(): return True", 1, False),
        ("def f(): return 1.0", 1, True),
        ("def f(): return 0.1 + 0.2", 0.3, True),
        ("def f(): return (1, 2)", [1, 2], True),
        ("def f(): return iter([1, 2])", [1, 2], True),
        ("def f(): return {2, 1}", [1, 2], True),
        ("def f(): return {1: 'a'}", {"1": "a"}, True),
        ("def f(): return '1'", 1, False),
        ("def f(): return float('nan')", 1, False),
        ("def f(): return float('inf')", 1, False),
        ("def f(): return None", None, True),
    ],
)
def test_values_are_compared_by_type_and_value(code: str, want: Any, passes: bool) -> None:
    assert outcomes(code, cases(([], want)))[0].passed is passes


# ---------------------------------------------------------------- statements


def test_a_statement_that_fails_tells_the_values_it_compared() -> None:
    (outcome,) = outcomes(RIGHT, [{"assert": "assert f([1]) == [2]"}])
    assert (outcome.passed, outcome.got, outcome.want) == (False, [1], ([2],))


@pytest.mark.parametrize(
    ("statement", "apart"),
    [
        ("assert f(3) == 3", True),
        ("assert not f(0)", True),
        ("import math\nassert math.isclose(f(.1) + f(.2), .3)", True),
        ("assert f((1, 2)) == (1, 2)", True),
        ("try:\n    f()\nexcept TypeError:\n    pass\nelse:\n    assert False", True),
        ("assert f(helper) is helper", False),
    ],
)
def test_statements_are_judged_apart_from_the_program_where_that_is_possible(
    statement: str, apart: bool
) -> None:
    code = RIGHT + "\ndef helper(): pass\n"
    (outcome,) = outcomes(code, [{"assert": statement}], split=True, isolated=True)
    assert (outcome.passed, outcome.apart) == (True, apart)


CLASHING = """
from collections.abc import Mapping
class Equal(Mapping):
    def __getitem__(self, key): return 0
    def __len__(self): return 1
    def __iter__(self): return iter(())
    def __eq__(self, other): return True
    def __hash__(self): return 0
    def items(self): return ((i * (2**61 - 1), 0) for i in range(1, 30_000))
def f(x): return Equal()
"""
NESTED = """
class Equal(list):
    def __eq__(self, other): return True
def f(x):
    value = Equal()
    for _ in range(58): value = Equal([value])
    return value
"""


@pytest.mark.parametrize(
    ("code", "statement"),
    [
        # Its value takes the tests' process longer to read than that may work.
        (CLASHING, "assert f(1) == 2"),
        # Its value is plain data, but not when it is sent back within another.
        (NESTED, "assert f([f(1)]) == 2"),
    ],
    ids=["a value that is slow to read", "a value that cannot be sent back"],
)
def test_a_program_that_stops_its_tests_has_failed_them(code: str, statement: str) -> None:
    """Nobody asks its own process instead, where it could say that anything is equal."""
    (outcome,) = outcomes(code, [{"assert": statement}], isolated=True, split=True)
    assert not outcome.passed
    assert outcome.apart


def test_a_prelude_serves_the_statements() -> None:
    tests = [{"assert": "assert near(f(1), 1)"}]
    prelude = "def near(a, b): return abs(a - b) < 1e-6"
    for split in (False, True):
        assert outcomes(RIGHT, tests, prelude=prelude, split=split)[0].passed


# ---------------------------------------------------------------- the same everywhere


def test_results_do_not_depend_on_the_company() -> None:
    wrong = [TOTAL.replace("> 0", other) for other in ("> 1", ">= 0", "< 0", "> None")]
    alone = [outcomes(code, TOTAL_CASES, "total", isolated=True) for code in wrong]

    async def together() -> list[tuple[Outcome, ...]]:
        pool = ProcessRunner(2)
        trials = [Trial(code, "total", TOTAL_CASES) for code in wrong]
        try:
            halves = await asyncio.gather(pool.run(trials[::-1], FAST), pool.run(trials, FAST))
        finally:
            await pool.close()
        assert halves[0][::-1] == halves[1]
        return halves[1]

    assert asyncio.run(together()) == alone


def test_a_system_without_fork_gives_the_same_results() -> None:
    async def fresh() -> list[tuple[Outcome, ...]]:
        pool = ProcessRunner(1, "fresh")
        codes = [TOTAL, TOTAL.replace("> 0", "> 3"), "import os; os._exit(0)"]
        try:
            return await pool.run([Trial(c, "total", TOTAL_CASES[:2]) for c in codes], FAST)
        finally:
            await pool.close()

    found = asyncio.run(fresh())
    assert [[one.passed for one in trial] for trial in found] == [
        [True, True], [False, True], [False, False],
    ]  # fmt: skip


def test_randomness_without_a_seed_is_the_same_every_time() -> None:
    code = "import random\ndef f(x): return random.random()"
    first, second = outcomes(code, ONE), outcomes(code, ONE)
    assert first[0].got == second[0].got


@pytest.mark.parametrize(
    ("code", "shares"),
    [
        ("import math, re\nfrom collections import deque", True),
        ("import random", False),
        ("import sys", False),
        ("def f(): __import__('sys')", False),
        ("def f(): return globals()", False),
        ("class A:\n    def __init__(self): pass", True),
    ],
)
def test_only_programs_that_leave_nothing_behind_share_a_process(code: str, shares: bool) -> None:
    assert may_share(code) is shares


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
    | st.binary() | st.complex_numbers(allow_nan=False),
    lambda inner: st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(st.text(), inner)
    | st.frozensets(st.integers()) | st.sets(st.text()),
    max_leaves=12,
)  # fmt: skip


@given(plain)
def test_values_arrive_as_they_were_sent(value: Any) -> None:
    found = decode(encode(value))
    assert found == value
    assert type(found) is type(value)


# ---------------------------------------------------------------- results by content


class Counting:
    """A runner that says how often it was asked for what."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def run(
        self, trials: Sequence[Trial], limits: Limits = FAST
    ) -> list[tuple[Outcome, ...]]:
        self.asked += [trial.code for trial in trials]
        return [(Outcome(trial.code == "a"),) for trial in trials]


def test_equal_trials_are_run_once() -> None:
    inner = Counting()
    runner = CachedRunner(inner)
    a, b = Trial("a", "f", ONE), Trial("b", "f", ONE)

    async def ask() -> list[bool]:
        first = await runner.run([a, b, a])
        second = await runner.run([b, a])
        return [one[0].passed for one in (*first, *second)]

    assert asyncio.run(ask()) == [True, False, True, False, True]
    assert inner.asked == ["a", "b"]


def test_other_limits_are_another_trial() -> None:
    inner = Counting()
    runner = CachedRunner(inner)

    async def ask() -> None:
        for limits in (FAST, Limits(), FAST):
            await runner.run([Trial("a", "f", ONE)], limits)

    asyncio.run(ask())
    assert inner.asked == ["a", "a"]


def test_it_forgets_the_oldest_when_it_is_full() -> None:
    inner = Counting()
    runner = CachedRunner(inner, most=1)

    async def ask() -> None:
        for code in "aba":
            await runner.run([Trial(code, "f", ONE)])

    asyncio.run(ask())
    assert inner.asked == ["a", "b", "a"]


def test_everybody_in_one_loop_shares_one_pool() -> None:
    async def ask() -> bool:
        async with shared_runner() as one, shared_runner() as other:
            return one is other and (await one.run([Trial(RIGHT, "f", ONE)]))[0][0].passed

    assert asyncio.run(ask())


def test_a_sandbox_that_is_killed_costs_nobody_a_verdict() -> None:
    """Its worker ends with it, and the batch is run again by another."""

    async def ask() -> tuple[bool, int]:
        pool = ProcessRunner(1)
        slow = Trial("def f(x):\n    for _ in range(150_000): pass\n    return x", "f", ONE * 30)
        kills = 0
        try:
            await pool.run([Trial(RIGHT, "f", ONE)])
            working = asyncio.create_task(pool.run([slow]))
            while not kills:
                await asyncio.sleep(0)
                kills = sum(map(_kill, _sandboxes_of_workers())) if pool._idle == [] else 0
            (outcomes,) = await working
            return all(one.passed for one in outcomes), kills
        finally:
            await pool.close()

    passed, kills = asyncio.run(ask())
    assert passed
    assert kills


def _sandboxes_of_workers() -> list[int]:
    """The processes that workers, which are children of this one, have started."""
    return [pid for worker in _children(os.getpid()) for pid in _children(worker)]


def _children(pid: int) -> list[int]:
    try:
        return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def _kill(pid: int) -> bool:
    os.kill(pid, signal.SIGKILL)
    return True


def test_a_cancelled_batch_leaves_the_pool_usable() -> None:
    async def ask() -> bool:
        pool = ProcessRunner(1)
        slow = Trial("def f(x):\n    while True: pass", "f", ONE * 50)
        try:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.3):
                    await pool.run([slow] * 50, Limits(steps=10_000_000, cpu_seconds=1))
            return (await pool.run([Trial(RIGHT, "f", ONE)]))[0][0].passed
        finally:
            await pool.close()

    assert asyncio.run(ask())
