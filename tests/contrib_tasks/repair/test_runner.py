"""Running programs: every way a program can misbehave is a failed test, never more."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from orchestrion_repair.edit_search import EditSearch, may_share
from orchestrion_repair.runner import Runner, shared_runner
from orchestrion_repair.trial import Outcome, ProgramTrial, RepairLimits
from orchestrion_sandbox import choose

from orchestrion import RunError
from tests.contrib_tasks.repair.support import (
    FAST,
    TOTAL,
    TOTAL_CASES,
    cases,
    outcomes,
    with_runner,
)

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
    "forks": "import os\ndef f(x):\n    os.fork()\n    return 1",
    "writes files of the machine": "def f(x):\n    open('/etc/left-behind', 'w')\n    return 1",
    "reads files": "def f(x): return len(open('/etc/passwd').read())",
    "waits for input": "def f(x): return input()",
    "opens sockets": "import socket\ndef f(x): return socket.socket() and 1",
    "gives what is no data": "def f(x): return object()",
    "gives itself": "def f(x):\n    y = []\n    y.append(y)\n    return y",
    "gives without end": "import itertools\ndef f(x): return itertools.count()",
    "gives far too much": "def f(x): return 'x' * 10**7",
    "gives an endless number": "def f(x): return 10**10**5",
    "answers in the place of the harness": """
import gc, socket
def f(x):
    for found in gc.get_objects():
        if isinstance(found, socket.socket): found.sendall(b'{"id": -1, "value": 1}\\n')
    return 2
""",
    "answers what is no reply": """
import gc, socket
def f(x):
    for found in gc.get_objects():
        if isinstance(found, socket.socket): found.sendall(b'[1]\\n')
    return 2
""",
    "gives half a character": "def f(x): return '\\ud800'",
}


def test_programs_that_misbehave_fail_and_spoil_nothing() -> None:
    """All of them in one batch, each followed by a program that is right."""

    trials: list[ProgramTrial] = []
    for code in MISBEHAVIOURS.values():
        trials += [ProgramTrial(code, "f", ONE), ProgramTrial(f"{RIGHT}# {len(trials)}", "f", ONE)]
    found = with_runner(lambda runner: runner.run(trials, FAST))
    assert all(after[0].passed for after in found[1::2]), "a program spoilt the one after it"
    fooled = [name for name, (o,) in zip(MISBEHAVIOURS, found[::2], strict=True) if o.passed]
    assert not fooled


def test_printing_without_end_is_ignored() -> None:
    code = "import sys\ndef f(x):\n    for _ in range(99): print('PASS' * 9999)\n    return x"
    assert [one.passed for one in outcomes(code, ONE)] == [True]


def test_what_steps_cannot_count_ends_by_cpu_seconds() -> None:
    code = "import itertools\ndef f(x): return sum(itertools.repeat(1))"
    for judge in (True, False):
        (outcome,) = outcomes(code, ONE, judge=judge)
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
    found = outcomes(code, tests, limits=RepairLimits(steps=1_000))
    assert [one.passed for one in found] == [True] * 5 + [False]


def test_cases_do_not_see_what_another_left_behind() -> None:
    code = "a = []\ndef f(x, b=[]):\n    a.append(x)\n    b.append(x)\n    return [a, b]"
    tests = cases(([1], [[1], [1]]), ([2], [[2], [2]]))
    assert all(one.passed for one in outcomes(code, tests))


def test_arguments_are_copies() -> None:
    code = "def f(x):\n    x.append(0)\n    return x"
    assert all(one.passed for one in outcomes(code, cases(([[1]], [1, 0]), ([[1]], [1, 0]))))


VALUES: dict[str, tuple[Any, bool]] = {
    "True": (1, False),
    "1.0": (1, True),
    "0.1 + 0.2": (0.3, True),
    "[2.9999999999]": ([3], True),
    "(1, 2)": ([1, 2], True),
    "iter([1, 2])": ([1, 2], True),
    "{2, 1}": ([1, 2], True),
    "{1: 'a'}": ({"1": "a"}, True),
    "'1'": (1, False),
    "float('nan')": (1, False),
    "float('inf')": (1, False),
    "None": (None, True),
}


@pytest.mark.parametrize("judge", [False, True])
def test_values_are_compared_by_type_and_value(judge: bool) -> None:
    code = f"def f(i):\n    return [lambda: {', lambda: '.join(VALUES)}][i]()"
    tests = cases(*(([i], want) for i, (want, _) in enumerate(VALUES.values())))
    found = outcomes(code, tests, judge=judge)
    assert [one.passed for one in found] == [passes for _, passes in VALUES.values()]


# ---------------------------------------------------------------- statements


def test_a_statement_that_fails_tells_the_values_it_compared() -> None:
    (outcome,) = outcomes(RIGHT, [{"assert": "assert f([1]) == [2]"}])
    assert (outcome.passed, outcome.got, outcome.want) == (False, [1], ([2],))


NODE = """
class Node:
    def __init__(self, value): self.value = value
"""
APART = {
    "assert f(3) == 3": True,
    "assert not f(0)": True,
    "import math\nassert math.isclose(f(.1) + f(.2), .3)": True,
    "assert f((1, 2)) == (1, 2)": True,
    "try:\n    f()\nexcept TypeError:\n    pass\nelse:\n    assert False": True,
    "assert f(helper) is helper": False,
    "node = Node(1)\nassert f(node) is node": False,
}


def test_statements_are_judged_apart_from_the_program_where_that_is_possible() -> None:
    code = RIGHT + "\ndef helper(): pass\n"
    found = outcomes(code, [{"assert": one} for one in APART], prelude=NODE, judge=True)
    assert [(one.passed, one.apart) for one in found] == [(True, one) for one in APART.values()]


def test_no_test_sees_what_another_left_behind_nor_decides_who_judges_it() -> None:
    code = "a = []\ndef f(x):\n    a.append(x)\n    return a if x else object()"
    tests = ["b.append(1)\nassert b == f(1) == [1]"] * 2 + ["assert f(0) == 1"]
    found = outcomes(code, [{"assert": one} for one in tests], prelude="b = []", judge=True)
    assert [(one.passed, one.apart) for one in found] == [(True, True)] * 2 + [(False, True)]


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
    (outcome,) = outcomes(code, [{"assert": statement}], judge=True)
    assert not outcome.passed
    assert outcome.apart


def test_a_prelude_serves_the_statements_and_their_calls_are_of_one_program() -> None:
    code = "calls = []\ndef f(x):\n    calls.append(x)\n    return len(calls)"
    tests = [{"assert": "assert near(f(1), 1) and f(1) == 2"}]
    prelude = "def near(a, b): return abs(a - b) < 1e-6"
    for judge in (False, True):
        assert outcomes(code, tests, prelude=prelude, judge=judge)[0].passed


# ---------------------------------------------------------------- the same everywhere


def test_results_do_not_depend_on_the_company() -> None:
    wrong = [TOTAL.replace("> 0", other) for other in ("> 1", ">= 0", "< 0", "> None")]
    alone = [outcomes(code, TOTAL_CASES, "total") for code in wrong]

    async def together(runner: Runner) -> list[tuple[Outcome, ...]]:
        trials = [ProgramTrial(code, "total", TOTAL_CASES) for code in wrong]
        halves = await asyncio.gather(runner.run(trials[:2], FAST), runner.run(trials[2:], FAST))
        return [*halves[0], *halves[1]]

    assert with_runner(together) == alone
    judged = [outcomes(code, TOTAL_CASES, "total", judge=True) for code in wrong]
    assert [[o.passed for o in one] for one in judged] == [[o.passed for o in x] for x in alone]


def test_randomness_without_a_seed_is_the_same_every_time() -> None:
    code = "import random\ndef f(x): return random.random()"
    first, second = outcomes(code, ONE), outcomes(code, ONE)
    assert first[0].got == second[0].got


def test_only_programs_that_leave_nothing_behind_share_a_process() -> None:
    assert may_share("import math, re\nfrom collections import deque")
    assert may_share("class A:\n    def __init__(self): self.x = 1")
    for code in (
        "import random",
        "import sys",
        "__import__('sys')",
        "globals()",
        "open('x')",
        "import math\nmath.floor = abs",
        "import json\nj = json\nj.dumps, x = str, 1",
        "import typing\ntyping.sys.modules.clear()",
    ):
        assert not may_share(f"{code}\ndef f(): pass")


# ---------------------------------------------------------------- results by content


def test_equal_trials_are_run_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    async def run(
        self: EditSearch, trials: list[ProgramTrial], limits: RepairLimits
    ) -> list[tuple[Outcome, ...]]:
        asked.extend(trial.code for trial in trials)
        return [(Outcome(trial.code == "a"),) for trial in trials]

    monkeypatch.setattr(EditSearch, "outcomes", run)
    monkeypatch.setattr("orchestrion_repair.runner.MOST_KNOWN", 2)
    a, b, c = (ProgramTrial(code, "f", ONE) for code in "abc")

    async def ask(runner: Runner) -> list[bool]:
        async with shared_runner() as other:
            assert runner is other
        first = await runner.run([a, b, a], FAST)
        second = await runner.run([b, a], FAST)
        await runner.run([a], RepairLimits())  # other limits are another trial
        await runner.run([c], FAST)
        await runner.run([b], FAST)  # forgotten: the oldest go first
        return [one[0].passed for one in (*first, *second)]

    assert with_runner(ask) == [True, False, True, False, True]
    assert asked == ["a", "b", "a", "c", "b"]


def test_everybody_runs_in_the_sandbox_that_one_demanded_and_nobody_in_another() -> None:
    runner, landlock = Runner(), choose("landlock")
    runner.demand(landlock, 2)
    runner.demand(None, 3)
    assert (runner._sandbox, runner._level) == (landlock, 3)
    with pytest.raises(RunError, match="two components ask for different sandboxes"):
        runner.demand(choose("namespaces"), 2)


def test_a_cancelled_batch_leaves_the_runner_usable() -> None:
    async def ask(runner: Runner) -> bool:
        slow = ProgramTrial("def f(x):\n    while True: pass", "f", ONE * 50)
        await runner.where()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await runner.run([slow] * 50, RepairLimits(steps=10_000_000, cpu_seconds=1))
        return (await runner.run([ProgramTrial(RIGHT, "f", ONE)]))[0][0].passed

    assert with_runner(ask)


def test_a_sandbox_that_is_killed_costs_nobody_an_outcome() -> None:
    async def ask(runner: Runner) -> list[bool]:
        box: Any = (await runner._opened())[0]
        await runner.run([ProgramTrial(RIGHT, "f", ONE)])  # its process waits for the next program
        box._process.kill()
        searched = await runner.run([ProgramTrial(TOTAL, "total", TOTAL_CASES)])
        box._process.kill()
        judged = await runner.judge(ProgramTrial(TOTAL, "total", TOTAL_CASES))
        return [one.passed for one in (*searched[0], *judged)]

    assert with_runner(ask) == [True] * 2 * len(TOTAL_CASES)
