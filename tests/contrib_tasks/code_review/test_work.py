"""What a policy and the agents are shown: the latest version, and what is publicly known of it."""

from __future__ import annotations

import asyncio

import pytest
from orchestrion_code_review.task import CodeReview, RunningReview, problem_of
from orchestrion_code_review.work import begun, features
from orchestrion_repair import digest_of, role_of
from orchestrion_repair_agents.run_tests import RunTests

from orchestrion import Key, Member, Observation, OpenContext, Output, Step, Trajectory, Turn, View
from orchestrion._engine.calls import ActivationCalls
from orchestrion.testing import Fixed, engine_for
from tests.contrib_tasks.code_review.support import DOUBLE, RIGHT, WRONG, running, says

PROBLEM = problem_of(DOUBLE)
FEATURES = list(features(begun(PROBLEM.data)))


async def shown(task: RunningReview, *outputs: tuple[str, Output]) -> Observation:
    """What is shown after these turns."""
    step = task.start(PROBLEM, Key(1))
    for index, (agent, output) in enumerate(outputs):
        step = task.step(step.state, Turn(index, agent, output=output), Key(1))
    assert step.observation is not None
    return step.observation


def feature(seen: Observation, name: str) -> float:
    return seen.features[FEATURES.index(name)]


def after(*outputs: tuple[str, Output]) -> Observation:
    return running(lambda task: shown(task, *outputs))


def review(code: str, defect: object) -> Output:
    return Output("I think ...", {"tool": "review", "on": digest_of(code), "defect": defect})


def test_at_first_there_is_no_version() -> None:
    seen = after()
    assert (feature(seen, "has a version"), seen.data, seen.progress) == (0, None, None)
    assert len(seen.features) == len(FEATURES)


def test_a_version_is_shown_with_its_author() -> None:
    seen = after(("writer", says(RIGHT)))
    assert feature(seen, "has a version") == 1
    assert seen.data["code"] == RIGHT
    assert "Version 1, by writer, not reviewed" in seen.text
    assert feature(after(("a", says(RIGHT)), ("b", says(WRONG))), "latest is not the writer's") == 1


def test_a_review_counts_for_the_version_it_is_about() -> None:
    seen = after(("w", says(WRONG)), ("r", review(WRONG, True)))
    assert feature(seen, "review says defect") == 1
    stale = after(("w", says(RIGHT)), ("r", review(WRONG, True)))
    assert feature(stale, "reviewed") == 0
    newer = after(("w", says(WRONG)), ("r", review(WRONG, True)), ("f", says(RIGHT)))
    assert feature(newer, "reviewed") == 0
    assert feature(newer, "earlier version was reviewed") == 1


@pytest.mark.parametrize("data", [None, [], {"tool": "review"}, {"tool": "tests", "on": 3}])
def test_reports_that_make_no_sense_change_nothing_but_the_count(data: object) -> None:
    seen = after(("w", says(RIGHT)), ("r", Output("?", data)))
    before = after(("w", says(RIGHT)))
    changed = [a != b for a, b in zip(seen.features, before.features, strict=True)]
    assert [FEATURES[i] for i, one in enumerate(changed) if one] == ["turns"]


def test_agents_of_repair_run_the_visible_examples_of_a_version() -> None:
    async def run(task: RunningReview) -> Observation:
        step: Step = task.start(PROBLEM, Key(1))
        step = task.step(
            step.state, Turn(0, "w", output=says("def double(n):\n    return 7\n")), Key(1)
        )
        view = View("tests", None, PROBLEM.public(), Trajectory(), step.observation)
        engine = engine_for({}, Fixed([]), task)
        output = await RunTests().act(view, Key(2), ActivationCalls(engine, Key(2)))
        step = task.step(step.state, Turn(1, "tests", output=output), Key(1))
        assert step.observation is not None
        return step.observation

    seen = running(run)
    assert (feature(seen, "examples known"), seen.progress) == (1, 0.0)


def test_a_team_that_edits_has_nothing_to_edit_before_the_first_version() -> None:
    async def run() -> tuple[int, int, frozenset[str]]:
        context = OpenContext("task", Key(1), (Member("edits", ("top",), role_of(["comparison"])),))
        async with CodeReview(measures=[]).open(context) as task:
            first = await shown(task)
            second = await shown(task, ("w", says(RIGHT)))
            return len(first.features), len(second.features), first.blocked

    before, then, blocked = asyncio.run(run())
    assert before == then == len(FEATURES)
    assert blocked == {"edits"}


def test_a_version_that_is_no_python_is_shown_all_the_same() -> None:
    seen = after(("w", says("def double(n:\n")))
    assert feature(seen, "has a version") == 1
    assert seen.data["regions"]["top"] == []
