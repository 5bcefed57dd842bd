"""The agent that tries edits: which, where, at what cost, and what it tells."""

from __future__ import annotations

from typing import Any

import pytest
from orchestrion_repair.ranking import program
from orchestrion_repair.suite import bugs
from orchestrion_repair_agents.mutate import Mutate

from orchestrion import Key
from tests.contrib_tasks.repair.support import TOTAL, Bench, bug, claim, given_bench, on_bench

WRONG = TOTAL.replace("value > 0", "value < 0")
BUG = bug(WRONG)


@given_bench(BUG)
async def test_it_mends_a_bug_of_its_kind(bench: Bench) -> None:
    await bench.act("tests")
    for region in ("top", "next", "rest"):
        output = await bench.act("comparison", region)
        if bench.step.done:
            assert (await bench.scores()).success
            assert "Line 4, comparison: `value < 0` becomes `value" in output.content
            return
    raise AssertionError("not mended")


@given_bench(BUG)
async def test_its_cost_is_the_executions_up_to_the_first_failures(bench: Bench) -> None:
    await bench.act("tests")
    output = await bench.act("variable", "next")
    tried = len(output.data["tried"])
    assert tried > 1
    # Most candidates fail at once, on a test that failed before.
    assert tried <= output.usage.cost <= tried * 3
    assert "code" not in output.data


@given_bench(BUG)
async def test_a_candidate_after_the_one_that_passes_is_neither_tried_nor_charged(
    bench: Bench,
) -> None:
    await bench.act("tests")
    edits = program(WRONG, "total", tuple(bench.seen["arguments"])).candidates
    mine = [n for n in bench.seen["order"] if edits[n].family == "comparison"]
    for region in ("top", "next", "rest"):
        output = await bench.act("comparison", region)
        if "code" in output.data:
            *failed, _ = output.data["tried"]
            assert output.usage.cost <= 3 * len(failed) + 3
            assert output.data["left"] == len(mine) - len(output.data["tried"])
            return


def test_known_failures_make_it_cheaper() -> None:
    async def work(bench: Bench, first: bool) -> float:
        bench.say(claim(None))
        if first:
            await bench.act("tests")
        before = bench.step.state.executions
        for region in ("top", "next", "rest"):
            if not bench.step.done:
                await bench.act("variable", region)
        return float(bench.step.state.executions - before)

    # A passing test comes first, unless it is known which ones fail.
    swapped = bug(WRONG, visible=(BUG.visible[1], BUG.visible[0]))
    blind = on_bench(swapped, lambda bench: work(bench, False))
    told = on_bench(swapped, lambda bench: work(bench, True))
    assert told < blind


@given_bench(BUG, {"all": ["variable", "constant", "operand"]})
async def test_it_goes_on_where_it_stopped(bench: Bench) -> None:
    first = await bench.act("all", "next")
    second = await bench.act("all", "next")
    assert len(first.data["tried"]) == 12
    assert not set(first.data["tried"]) & set(second.data["tried"])
    assert first.data["left"] == second.data["left"] + len(second.data["tried"])


@given_bench(BUG)
async def test_a_region_that_is_used_up_costs_nothing(bench: Bench) -> None:
    # All comparisons are on one line; the region of another has none.
    outputs = [await bench.act("comparison", region) for region in ("top", "next", "rest")]
    unused = next(output for output in outputs if not output.data["tried"])
    assert unused.usage.cost == 0
    assert unused.content.startswith("Nothing left to try")


@given_bench(
    next(bug for bug in bugs("train") if bug.kind == "two places"),
    {"all": ["comparison", "off-by-one", "variable", "constant"]},
)
async def test_an_edit_that_mends_some_tests_makes_its_line_more_suspicious(bench: Bench) -> None:
    """Two mistakes on one line: each mends a part only."""
    await bench.act("tests")
    for region in ("top", "next", "rest") * 2:
        output = await bench.act("all", region)
        for line, share in output.data["gains"]:
            assert 0 < share <= 1
            assert dict(bench.step.state.boosts)[line] >= share


@given_bench(BUG)
async def test_a_call_depends_on_nothing_that_others_tried(bench: Bench) -> None:
    await bench.act("tests")
    mutate = bench.agents["comparison"]
    before = {r: mutate.memo(bench.view("comparison", r)) for r in ("top", "next", "rest")}
    await bench.act("variable", "rest")
    if not bench.step.state.boosts:
        for region, content in before.items():
            assert mutate.memo(bench.view("comparison", region)) == content
    bench.say(claim({"code": TOTAL}))
    assert mutate.memo(bench.view("comparison", "top")) != before["top"]


def test_equal_memos_give_equal_outputs() -> None:
    async def work(bench: Bench) -> list[Any]:
        await bench.act("tests")
        view = bench.view("variable", "next")
        outputs = [await bench.agents["variable"].act(view, Key(n), None) for n in (1, 2)]
        assert outputs[0] == outputs[1]
        return [bench.agents["variable"].memo(view), outputs[0]]

    assert on_bench(BUG, work) == on_bench(BUG, work)


def test_it_announces_its_families_in_its_role() -> None:
    agent = Mutate(["comparison", "off-by-one"])
    assert agent.role == "tries edits: comparison, off-by-one"
    assert list(agent.options) == ["top", "next", "rest"]
    assert agent.pure


@pytest.mark.parametrize("kind", ["wrong operator", "wrong variable", "missing logic"])
def test_reports_never_hold_hidden_tests(kind: str) -> None:
    one = next(b for b in bugs("test") if b.kind == kind)

    async def work(bench: Bench) -> str:
        await bench.act("tests")
        outputs = [await bench.act("variable", region) for region in ("top", "next", "rest")]
        return repr([output.data for output in outputs])

    said = on_bench(one, work)
    assert all(repr(case.want) not in said for case in one.hidden if len(repr(case.want)) > 12)
