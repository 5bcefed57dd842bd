"""The task as an environment: what is shown, what turns change, when it ends."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from orchestrion_repair.bug import Bug
from orchestrion_repair.features import names, outlooks
from orchestrion_repair.loaders import load_path
from orchestrion_repair.state import RepairState, Target, after, digest_of
from orchestrion_repair.suite import bugs
from orchestrion_repair.task import Repair, RunningRepair

from orchestrion import Key, Output, Turn
from tests.contrib_tasks.repair.support import TOTAL, Bench, bug, claim, given_bench

WRONG = TOTAL.replace("value > 0", "value < 0")
BUG = bug(WRONG)


def closed(some: tuple[Bug, ...] = bugs(), **settings: Any) -> RunningRepair:
    """The task without a sandbox."""
    runner: Any = None
    return RunningRepair(Repair(**settings), some, runner)


# ---------------------------------------------------------------- problems


@given_bench(BUG)
async def test_hidden_tests_are_not_public(bench: Bench) -> None:
    public = bench.problem.public()
    assert bench.problem.hidden
    assert public.hidden is None
    shown = json.dumps([public.text, public.data, bench.seen])
    assert all(json.dumps(case) not in shown for case in bench.problem.hidden["cases"])


@given_bench(BUG)
async def test_the_text_has_the_program_and_its_visible_tests(bench: Bench) -> None:
    assert WRONG in bench.problem.text
    assert "total([1, 2], 0) == 3" in bench.problem.text


def test_all_splits_of_the_suite_are_there() -> None:
    task = closed()
    assert [len(task.problems(s)) for s in ("train", "validation", "test")] == [
        len(bugs(s)) for s in ("train", "validation", "test")
    ]


def test_fewer_problems_are_spread_over_all() -> None:
    every = [one.id for one in closed().problems("test")]
    some = [one.id for one in closed(max_problems=7).problems("test")]
    assert len(some) == 7
    assert [every.index(one) for one in some] == [i * len(every) // 7 for i in range(7)]


def test_problems_of_a_folder(tmp_path: Path) -> None:
    row = {"code": WRONG, "entry_point": "total", "cases": [[[[1], 0], 1], [[[], 2], 2]]}
    (tmp_path / "mine.jsonl").write_text(json.dumps(row) + "\n")
    [problem] = closed(load_path(tmp_path).bugs).problems("test")
    assert problem.data["code"] == WRONG
    assert len(problem.data["visible"]) == len(problem.hidden["cases"]) == 1


@given_bench(BUG)
async def test_a_problem_from_a_source_with_asserts(bench: Bench) -> None:
    problem = bench.task.problem_from(f"{WRONG}\nassert total([1, 2], 0) == 3\n")
    bench.problem, bench.step = problem, bench.task.start(problem, Key(1))
    await bench.act("tests")
    assert bench.seen["results"][0]["got"] == 0
    await bench.act("comparison", "top")
    await bench.act("comparison", "next")
    assert (await bench.scores()).success


# ---------------------------------------------------------------- what is shown


@given_bench(BUG)
async def test_features_are_named_bounded_and_of_one_length(bench: Bench) -> None:
    steps = [bench.step]
    for agent, option in (("tests", None), ("lint", None), ("variable", "next")):
        await bench.act(agent, option)
        steps.append(bench.step)
    for step in steps:
        assert step.observation is not None
        assert len(step.observation.features) == len(names(bench.task.skills))
        assert all(0 <= value <= 1 + 1e-9 for value in step.observation.features)


@given_bench(BUG)
async def test_tests_show_what_fails_and_where(bench: Bench) -> None:
    named = names(bench.task.skills)

    def feature(name: str) -> float:
        assert bench.step.observation is not None
        return bench.step.observation.features[named.index(name)]

    assert feature("tests known") == 0
    assert "not run yet" in bench.step.observation.text  # type: ignore[union-attr]
    output = await bench.act("tests")
    assert output.usage.cost == 3
    assert feature("tests known") == 1
    assert feature("share passing") == pytest.approx(1 / 3)
    assert feature("too low") == 1
    assert bench.step.observation.progress == pytest.approx(1 / 3)  # type: ignore[union-attr]
    assert "FAIL" in bench.step.observation.text  # type: ignore[union-attr]


@given_bench(BUG)
async def test_hints_tell_which_agent_promises_most(bench: Bench) -> None:
    await bench.act("tests")
    shown = bench.step.observation
    assert shown is not None
    hints = shown.hints
    everything = {
        f"{agent}:{region}"
        for agent in ("comparison", "variable")
        for region in ("top", "next", "rest")
    }
    assert set(hints) == everything - shown.blocked
    (line,) = bench.seen["regions"]["top"]
    on_top = "comparison" if line == 4 else "variable"
    assert hints[f"{on_top}:top"][0] == max(hint[0] for hint in hints.values())
    left = {choice: outlook.left for choice, outlook in outlooks(bench.step.state).items()}
    assert {choice: hint[2] for choice, hint in hints.items()} == {
        choice: min(1.0, left[choice] / 50) for choice in hints
    }
    assert 0 < min(hint[2] for hint in hints.values()) < 1


@given_bench(BUG)
async def test_hints_ask_for_test_results_as_long_as_none_are_known(bench: Bench) -> None:
    hints = bench.step.observation.hints  # type: ignore[union-attr]
    assert hints["tests"][0] > max(hint[0] for name, hint in hints.items() if name != "tests")
    await bench.act("tests")
    assert "tests" not in bench.step.observation.hints  # type: ignore[union-attr]
    bench.say(claim({"code": WRONG.replace("value <", "value <=")}))
    assert "tests" in bench.step.observation.hints  # type: ignore[union-attr]


@given_bench(BUG)
async def test_without_a_run_of_the_tests_it_shows_what_they_gave_last(bench: Bench) -> None:
    assert "not run yet" in bench.step.observation.text  # type: ignore[union-attr]
    await bench.act("variable", "next")
    text = bench.step.observation.text  # type: ignore[union-attr]
    assert "run on edits of this program only" in text
    assert "FAIL  total(" in text


@given_bench(BUG)
async def test_who_has_nothing_left_to_do_is_blocked(bench: Bench) -> None:
    blocked = bench.step.observation.blocked  # type: ignore[union-attr]
    # There is one comparison, on line 4 of 6.
    assert {"comparison:top", "comparison:rest"} & blocked
    await bench.act("tests")
    blocked = bench.step.observation.blocked  # type: ignore[union-attr]
    assert "tests" in blocked
    assert "variable:top" not in blocked


# ---------------------------------------------------------------- what turns do


@pytest.mark.parametrize("stop", [True, False])
def test_it_ends_when_all_visible_tests_pass(stop: bool) -> None:
    @given_bench(BUG, stop_when_passing=stop)
    async def work(bench: Bench) -> None:
        await bench.act("tests")
        for region in ("top", "next", "rest"):
            if not bench.step.done:
                await bench.act("comparison", region)
        assert bench.seen["code"] == TOTAL or "value >= 0" in bench.seen["code"]
        assert bench.step.done == stop

    work()


@given_bench(BUG)
async def test_a_turn_changes_no_state_in_place(bench: Bench) -> None:
    before, shown = bench.step.state, repr(bench.step.state)
    await bench.act("tests")
    await bench.act("variable", "top")
    assert repr(before) == shown


@given_bench(BUG)
async def test_any_agent_may_bring_a_program(bench: Bench) -> None:
    await bench.act("tests")
    bench.say(claim({"code": TOTAL}))
    assert bench.seen["code"] == TOTAL
    assert bench.seen["results"] is None
    assert bench.seen["tried"] == []
    assert (await bench.scores()).success


@given_bench(BUG)
async def test_a_report_about_another_program_is_ignored(bench: Bench) -> None:
    report = {"tool": "tests", "on": digest_of("other"), "results": [{"passed": True}] * 3}
    bench.say(claim(report))
    assert bench.seen["results"] is None
    assert not bench.step.done


@given_bench(BUG)
async def test_a_partial_score_is_the_share_of_visible_tests(bench: Bench) -> None:
    scores = await bench.scores(final=False)
    assert scores.value == pytest.approx(1 / 3)
    assert not scores.success


@given_bench(BUG)
async def test_a_verdict_names_what_each_test_gave(bench: Bench) -> None:
    first = await bench.scores()
    assert first.checks == {
        "visible test 1": "wrong value",
        "visible test 2": "passed",
        "visible test 3": "wrong value",
        "hidden test 1": "wrong value",
        "hidden test 2": "wrong value",
    }
    bench.say(Output("", {"code": WRONG.replace("return", "return 1 //")}))
    second = await bench.scores()
    assert list(second.checks) == list(first.checks)
    assert "ZeroDivisionError" in second.checks["visible test 1"]
    assert (await bench.scores(final=False)).checks == {}


STATE = RepairState(Target("total", "", ({"call": [[], 0], "want": 0},), (), {}), WRONG)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)
reports = st.fixed_dictionaries(
    {},
    optional={
        "tool": st.sampled_from(["tests", "edits", "lint", "other"]) | json_values,
        "on": st.just(digest_of(WRONG)) | json_values,
        **dict.fromkeys(
            ("results", "tried", "gains", "moved", "region", "findings", "families"), json_values
        ),
    },
)


@settings(max_examples=100)
@given(reports | json_values)
def test_nonsense_changes_nothing_but_the_counts(data: Any) -> None:
    new = after(STATE, Turn(0, "stranger", None, Output(data=data)))
    assert new.turns == 1
    assert new.code == WRONG
    assert not new.fixed or data["results"]


@pytest.mark.parametrize("code", ["\ud800", "x" * 200_000, 7, None, ["def f(): pass"]])
def test_what_is_no_source_does_not_become_the_program(code: Any) -> None:
    assert after(STATE, Turn(0, "a", None, Output(data={"code": code}))).code == WRONG
