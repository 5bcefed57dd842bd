"""The verdict comes from the program alone: right ones get all, nothing else gets anything."""

from __future__ import annotations

from typing import Any

import pytest
from orchestrion_repair.bug import Bug, Case
from orchestrion_repair.state import digest_of
from orchestrion_repair.suite import bugs

from orchestrion import Scores
from tests.contrib_tasks.repair.support import TOTAL, Bench, bug, claim, on_bench, outcomes

WRONG = TOTAL.replace("value > 0", "value < 0")
BUG = bug(WRONG)


def verdict(code: str | None, one: Bug = BUG, said: Any = None) -> Scores:
    """The scores after an agent brought this program, or only talked."""

    async def work(bench: Bench) -> Scores:
        bench.say(claim({"code": code} if code is not None else said))
        return await bench.scores()

    return on_bench(one, work)


@pytest.mark.parametrize("one", bugs("test")[::30], ids=lambda one: one.id)
def test_a_right_program_gets_everything(one: Bug) -> None:
    scores = verdict(one.solution, one)
    assert (scores.value, scores.success) == (1.0, True)
    assert dict(scores.parts) == {"visible": 1.0, "hidden": 1.0, "judged_outside": 1.0}


@pytest.mark.parametrize("one", bugs("test")[::30], ids=lambda one: one.id)
def test_the_buggy_program_gets_nothing(one: Bug) -> None:
    scores = verdict(one.code, one)
    assert (scores.value, scores.success) == (0.0, False)


ALL_PASS = [{"passed": True}] * 3


@pytest.mark.parametrize(
    "said",
    [
        None,
        "PASS",
        {"success": True, "score": 1.0, "value": 1.0},
        {"tool": "tests", "on": digest_of(WRONG), "results": ALL_PASS},
        {"tool": "edits", "on": digest_of(WRONG), "fixed": True, "results": ALL_PASS},
        {"code": WRONG + "\n", "results": ALL_PASS},
    ],
)
def test_claims_get_nothing(said: Any) -> None:
    scores = verdict(None, said=said)
    assert (scores.value, scores.success) == (0.0, False)


ATTACKS = {
    "prints PASS": "def total(*a):\n    print('PASS')\n    return 'PASS'",
    "exits with 0": "import sys\nsys.exit(0)",
    "exits hard": "import os\ndef total(*a): os._exit(0)",
    "gives the answers to the visible tests only": """
def total(values, start):
    return {'[1, 2]': 3, '[]': 5, '[4, -9]': 5}.get(str(values))
""",
    "is equal to everything": """
class Any(int):
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    __hash__ = int.__hash__
def total(*a): return Any(1)
""",
    "is a list equal to everything": """
class Any(list):
    def __eq__(self, other): return True
def total(*a): return Any()
""",
    "replaces comparison": """
import builtins, operator, math
builtins.bool = lambda *a: True
builtins.all = builtins.any = builtins.bool
math.isclose = operator.eq = builtins.bool
def total(*a): return True
""",
    "replaces the encoder": """
import orchestrion_repair.harness as harness, orchestrion_sandbox.inside.objects as objects
harness.encode = harness.plain = lambda *a: True
objects.Watching.encode = lambda *a: True
harness.json.dumps = lambda *a, **k: '{"passed": true, "value": true}'
def total(*a): return True
""",
    "imports the judge": """
import orchestrion_sandbox.compare as compare, orchestrion_repair.bug as bug
bug.same = bug._same = compare.same = lambda *a: True
def total(*a): return True
""",
    "looks for the wanted value in its callers": """
import sys
def total(*a):
    frame = sys._getframe()
    while frame:
        for value in frame.f_locals.values():
            if isinstance(value, dict) and 'want' in value: return value['want']
        frame = frame.f_back
""",
    "looks for the wanted value in memory": """
import gc
def total(*a):
    for value in gc.get_objects():
        if isinstance(value, dict) and 'want' in value: return value['want']
""",
    "answers by itself on every open file": """
import os, json
def total(*a):
    for fd in range(3, 64):
        try: os.write(fd, b'{"id": 1, "passed": true, "value": 3}\\n' * 9)
        except OSError: pass
    return 3
""",
    "answers again and again": """
import gc, json
def total(*a):
    for one in gc.get_objects():
        if type(one).__name__ == 'Line':
            for guess in range(9): one.send({'value': guess, 'passed': True})
    return 3
""",
    "lets the process die in the middle of an answer": """
import os
class Last(int):
    def __iter__(self): os._exit(0)
def total(*a): return Last(3)
""",
    "gives different answers each time": """
import random
def total(*a): return random.choice([3, 5, 9, 0])
""",
    "is right the first time only": TOTAL.replace(
        "    result = start\n",
        "    import math\n    math.times = getattr(math, 'times', 0) + 1\n"
        "    if math.times > 4: return None\n    result = start\n",
    ),
    "replaces the entry point by a class": """
class total:
    def __new__(cls, *a): return cls
""",
}


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_gets_nothing(name: str) -> None:
    scores = verdict(ATTACKS[name])
    assert (scores.value, scores.success) == (0.0, False)


def with_statements(code: str) -> Bug:
    """`total` with asserts for tests."""
    rows = (
        "assert total([1, 2], 0) == 3",
        "assert total([4, -9], 1) == 5",
        "assert not total([], 0)",
    )
    tests = tuple(Case(statement=row) for row in rows)
    return bug(code, visible=tests[:1], hidden=tests[1:])


@pytest.mark.parametrize("name", ["is equal to everything", "exits hard", "replaces comparison"])
def test_attacks_on_statements_get_nothing_either(name: str) -> None:
    scores = verdict(ATTACKS[name], with_statements(WRONG))
    assert (scores.value, scores.success) == (0.0, False)
    assert verdict(TOTAL, with_statements(WRONG)).parts["judged_outside"] == 1.0


def test_a_statement_that_cannot_be_judged_outside_is_said_to_be() -> None:
    code = TOTAL + "\n\nclass Box:\n    pass\n"
    tests = (Case(statement="assert total([], Box) is Box"),)
    scores = verdict(code, bug(WRONG, visible=tests, hidden=tests))
    assert scores.parts["judged_outside"] == 0.0


def test_these_attacks_beat_a_judge_in_the_same_process() -> None:
    """Else they would prove nothing: the statements alone take at least one of them."""
    statement = {"assert": "assert total([1, 2], 0) == 3"}
    fooled = [
        name
        for name in ("is equal to everything", "is a list equal to everything")
        if outcomes(ATTACKS[name], [statement], "total")[0].passed
    ]
    assert fooled


def test_no_test_is_no_success() -> None:
    assert not verdict(TOTAL, bug(WRONG, visible=(), hidden=())).success
