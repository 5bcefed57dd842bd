"""The agent that runs the visible tests."""

from __future__ import annotations

import asyncio
from typing import Any

from orchestrion_repair_agents.run_tests import RunTests

from orchestrion import Key, Problem, Trajectory, View
from tests.contrib_tasks.repair.support import TOTAL, Bench, bug, claim, given_bench

BUG = bug(TOTAL.replace("value > 0", "value < 0"))


@given_bench(BUG)
async def test_it_costs_one_execution_a_test_and_says_what_fails(bench: Bench) -> None:
    output = await bench.act("tests")
    assert output.usage.cost == 3
    assert output.content == "2 of 3 visible tests fail: a wrong value."
    assert [one["passed"] for one in output.data["results"]] == [False, True, False]
    assert all(one["lines"] for one in output.data["results"])


@given_bench(BUG)
async def test_a_right_program_passes_and_ends_the_episode(bench: Bench) -> None:
    bench.say(claim({"code": TOTAL}))
    output = await bench.act("tests")
    assert output.content == "All 3 visible tests pass."
    assert bench.step.done


@given_bench(BUG)
async def test_what_was_tried_changes_nothing_for_it(bench: Bench) -> None:
    before = bench.agents["tests"].memo(bench.view("tests"))
    await bench.act("variable", "top")
    assert bench.agents["tests"].memo(bench.view("tests")) == before
    bench.say(claim({"code": TOTAL}))
    assert bench.agents["tests"].memo(bench.view("tests")) != before


def test_it_has_nothing_to_do_in_another_task() -> None:
    calls: Any = None
    view = View("tests", None, Problem("other", "a text"), Trajectory())
    output = asyncio.run(RunTests().act(view, Key(1), calls))
    assert output.usage.cost == 0
    assert output.data is None
