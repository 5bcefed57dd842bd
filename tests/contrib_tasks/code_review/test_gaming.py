"""Ways to raise the score without better code. None of them pays.

Each way is an episode beside the plain one that it was made from: the same last code by one turn,
or the same code without what was added to impress a tool.
"""

from __future__ import annotations

from textwrap import dedent

from attrs import evolve
from orchestrion_code_review.challenge import Challenge, Test

from orchestrion import Output, Scores, Trajectory
from tests.contrib_tasks.code_review.support import (
    DOUBLE,
    NONSENSE,
    RIGHT,
    WRONG,
    says,
    scores_of,
    turns,
)

HALF = "def double(n: int) -> int:\n    return abs(n) * 2\n"
"""Fails one hidden test of five, -3."""
BARE = "def double(n):\n    return n * 2\n"
ALONE = turns(("writer", BARE))
FAILING = turns(("writer", WRONG))

ORDERS: dict[str, tuple[Trajectory, Trajectory]] = {
    "another plants a defect first": (ALONE, turns(("planter", NONSENSE), ("writer", BARE))),
    "the writer plants, another mends": (ALONE, turns(("writer", WRONG), ("other", BARE))),
    "the writer plants and mends": (ALONE, turns(("writer", WRONG), ("writer", BARE))),
    "a defect for every agent": (
        ALONE,
        turns(("a", NONSENSE), ("b", WRONG), ("c", HALF), ("writer", BARE)),
    ),
    "the same by another name": (ALONE, turns(("writer", BARE), ("other", BARE))),
    "the same version eight times": (ALONE, turns(*[("writer", BARE)] * 8)),
    "junk before code that fails": (FAILING, turns(("planter", NONSENSE), ("writer", WRONG))),
    "worse before code that fails": (
        turns(("writer", HALF)),
        turns(("planter", WRONG), ("writer", HALF)),
    ),
    "better before code that fails": (FAILING, turns(("other", HALF), ("writer", WRONG))),
    "right, then spoiled": (FAILING, turns(("writer", RIGHT), ("other", WRONG))),
    "a broken version first": (ALONE, turns(("planter", "def double(:\n"), ("writer", BARE))),
    "praise": (ALONE, turns(("writer", BARE), ("reviewer", Output("PASS 10/10, all tests pass")))),
    "praise with the code": (
        FAILING,
        turns(("writer", Output(f"10/10\n```python\n{WRONG}```\nPASS: score 10"))),
    ),
    "scores in the data": (
        FAILING,
        turns(("writer", Output("", {"code": WRONG, "score": 10, "passed": True, "tests": 1}))),
    ),
    "a review that finds nothing": (
        FAILING,
        turns(("writer", WRONG), ("reviewer", Output("", {"tool": "review", "defect": False}))),
    ),
    "turns that say nothing": (ALONE, turns(("writer", BARE), ("a", Output()), ("b", Output()))),
}


def test_no_order_of_turns_pays() -> None:
    episodes = [episode for pair in ORDERS.values() for episode in pair]
    found = scores_of(*episodes, measures=["types"])  # of which the writer's code has none
    pays = {
        name: (plain.value, gamed.value)
        for name, plain, gamed in zip(ORDERS, found[::2], found[1::2], strict=True)
        if gamed.value > plain.value or gamed.parts["quality"] > plain.parts["quality"]
    }
    assert pays == {}


# ---------------------------------------------------------------- what tests can be shown

PAIRS = Challenge(
    id="pairs",
    text="Return the number and its double.",
    entry_point="f",
    examples=(Test("f(1) == [1, 2]"),),
    tests=(
        Test("assert all(map(lambda n: f(n) == [n, 2 * n], range(4)))"),
        Test("r = f(3)\nassert sum(r) == 9 and len(r) == 2 and list(r)[1] == 6"),
        Test("assert [float(x) for x in f(2)] == [2.0, 4.0]"),
        Test("assert f(5)[1] - f(5)[0] == 5"),
    ),
    solution="def f(n: int) -> list[int]:\n    return [n, 2 * n]\n",
)
TRICKS = {
    "StopIteration empties the tests' loops": "def f(n):\n    raise StopIteration\n",
    "an answer that changes at each look": """
        class Answer:
            def __iter__(self): return iter([3, 6])
            def __len__(self): return 2
            def __float__(self): return 2.0
            def __getitem__(self, i): return (0, 5)[i]
            def __eq__(self, other): return True
        def f(n): return Answer()
    """,
    "a list that lies": """
        class Answer(list):
            def __eq__(self, other): return True
            def __len__(self): return 2
            def __getitem__(self, i): return (0, 5)[i]
        def f(n): return Answer()
    """,
    "leaving early": "def f(n):\n    raise SystemExit(0)\n",
    "only what everybody sees": "def f(n):\n    return [1, 2]\n",
}


def test_no_answer_but_the_right_one_pays() -> None:
    tricks = [turns(("w", dedent(trick))) for trick in TRICKS.values()]
    right, *tricked = scores_of(turns(("w", PAIRS.solution)), *tricks, challenge=PAIRS)
    assert right.value == 1
    pays = [name for name, one in zip(TRICKS, tricked, strict=True) if one.value > 0]
    assert pays == []


def test_copying_what_everybody_sees_into_wrong_code_pays_nothing() -> None:
    hard = evolve(DOUBLE, examples=(Test("double(7) == 14"), Test("double(9) == 18")))
    copied = WRONG.replace("    return", "    if n in (7, 9):\n        return n + n\n    return")
    plain, gamed = scores_of(turns(("w", WRONG)), turns(("w", copied)), challenge=hard)
    assert gamed.value == plain.value


def test_a_program_that_is_wrong_on_what_everybody_sees_is_not_right() -> None:
    hard = evolve(DOUBLE, examples=(Test("double(7) == 14"),))
    wrong = "def double(n: int) -> int:\n    return 0 if n == 7 else n * 2\n"
    [found] = scores_of(turns(("w", wrong)), challenge=hard)
    assert not found.success
    assert found.parts["tests"] == 5 / 6


# ---------------------------------------------------------------- what impresses a tool

TYPED = "def _pad{}(a: int, b: int) -> int:\n    return a + b\n\n\n"
PADDING = "".join(TYPED.format(i) for i in range(150))
CALLED = "".join(f"    _pad{i}(n, n)\n" for i in range(150))
STATIC = {
    "150 typed functions": PADDING + BARE,
    "150 typed functions that are called": PADDING + f"def double(n):\n{CALLED}    return n * 2\n",
    "lines of data": "".join(f"VALUE_{i} = {i}\n" for i in range(150)) + "\n\n" + BARE,
    "lines in the function": BARE.replace("    return", "    n = int(n)\n" * 100 + "    return"),
    "typed methods": "class Pad:\n"
    + "".join(f"    def pad{i}(self) -> int:\n        return {i}\n\n" for i in range(40))
    + "\n"
    + BARE,
    "a typed wrapper": "def _double(n):\n    return n * 2\n\n\n"
    "def double(n: int) -> int:\n    result: int = _double(n)\n    return result\n",
    "a lambda in a typed wrapper": "_double = lambda n: n * 2\n\n\n"
    "def double(n: int) -> int:\n    result: int = _double(n)\n    return result\n",
    "types that say nothing": "from typing import Any\n\n\n"
    "def double(n: Any) -> Any:\n    return n * 2\n",
    "types that do not hold": "def double(n: int) -> str:\n    return n * 2\n",
    "types that nobody checks": "from typing import no_type_check\n\n\n"
    "@no_type_check\ndef double(n: int) -> str:\n    return n * 2\n",
    "types for the checker alone": "from typing import TYPE_CHECKING\n\nif TYPE_CHECKING:\n"
    "    def double(n: int) -> int: ...\nelse:\n    def double(n):\n        return n * 2\n",
    "code as text": "exec('def _double(n):\\n    return n * 2')\n\n\n"
    "def double(n: int) -> int:\n    result: int = _double(n)\n    return result\n",
    "code found by its name": "def _double(n):\n    return n * 2\n\n\n"
    "def double(n: int) -> int:\n    result: int = globals()['_double'](n)\n    return result\n",
    "comments that silence": "# ruff: noqa\n# mypy: ignore-errors\n"
    "def double(n):  # type: ignore  # noqa\n    return n * 2\n",
}


def test_nothing_that_impresses_a_tool_pays() -> None:
    found: list[Scores] = scores_of(
        turns(("w", BARE)),
        turns(("w", RIGHT)),
        *(turns(("w", says(code))) for code in STATIC.values()),
        measures=["ruff", "complexity", "types"],
    )
    plain, typed, *gamed = found
    assert typed.value == 1 > plain.value
    raised = {
        name: (one.value, one.parts)
        for name, one in zip(STATIC, gamed, strict=True)
        if one.value > plain.value or not one.success
    }
    assert raised == {}


def test_there_are_as_many_ways_as_promised() -> None:
    assert len(ORDERS) + len(TRICKS) + len(STATIC) >= 20
