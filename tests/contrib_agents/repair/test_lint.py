"""The agent that reads the program."""

from __future__ import annotations

import ast

import pytest
from orchestrion_repair.ranking import program
from orchestrion_repair.suite import bugs
from orchestrion_repair_agents.lint import findings

from tests.contrib_tasks.repair.support import TOTAL, Bench, bug, claim, given_bench

ODD = [
    ("y = 1\n    return x", 2, "`y` is set and never used"),
    ("return 1", 1, "parameter `x` is not used"),
    ("return x == x", 2, "compares a thing with itself"),
    ("return x - x", 2, "an operation of a thing with itself"),
    ("x = x\n    return x", 2, "sets a name to itself"),
    ("x == 1\n    return x", 2, "a statement without effect"),
    ("return x\n    x = 1", 3, "out of reach"),
    ("for i in x:\n        return i", 3, "the loop ends in its first round"),
]


@pytest.mark.parametrize(("body", "line", "what"), ODD)
def test_odd_lines_are_named(body: str, line: int, what: str) -> None:
    assert (line, what) in list(findings(ast.parse(f"def f(x):\n    {body}\n")))


def test_solutions_are_hardly_ever_odd() -> None:
    sources = {one.solution for one in bugs()}
    odd = [source for source in sources if list(findings(ast.parse(source)))]
    assert len(odd) <= len(sources) / 10


@given_bench(bug(TOTAL.replace("result += value", "result = result")))
async def test_odd_lines_become_more_suspicious_at_no_cost(bench: Bench) -> None:
    known = program(bench.seen["code"], "total", tuple(bench.seen["arguments"])).candidates
    mine = [edit.number for edit in known if edit.line == 5]

    def places() -> int:
        return sum(bench.seen["order"].index(number) for number in mine)

    before = places()
    output = await bench.act("lint")
    assert places() < before
    assert "lint" in bench.step.observation.blocked  # type: ignore[union-attr]
    assert output.usage.cost == 0
    assert "Line 5: sets a name to itself." in output.content


@given_bench(bug(TOTAL))
async def test_a_program_without_syntax_is_told(bench: Bench) -> None:
    bench.say(claim({"code": "def total(:\n"}))
    output = await bench.act("lint")
    assert output.content.startswith("Line 1: ")
