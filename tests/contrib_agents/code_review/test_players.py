"""The players of a code review act by their stated skills, and know no test."""

from __future__ import annotations

import ast
import asyncio
from collections.abc import Sequence

import pytest
from orchestrion_code_review.challenge import Challenge, builtin
from orchestrion_code_review.generator import generate
from orchestrion_code_review.task import problem_of
from orchestrion_code_review.versions import code_of
from orchestrion_code_review_agents.players import (
    PlayRefactorer,
    PlayReviewer,
    PlayWriter,
    script_of,
    untidy,
)

from orchestrion import Agent, Key, Output, Problem, Trajectory, Turn, Usage, View
from orchestrion._engine.calls import ActivationCalls
from orchestrion.testing import Fixed, ListTask, engine_for

BASIC = next(one for one in builtin() if one.level == "basic")
HARD = next(one for one in builtin() if one.level == "advanced")
RIGHT, WRONG = BASIC.solution, BASIC.wrong[0]


def acts(
    agent: Agent,
    said: Sequence[Output] = (),
    challenge: Challenge | Problem = BASIC,
    draws: int = 1,
) -> list[Output]:
    """What an agent does after these turns, with several keys."""
    problem = challenge if isinstance(challenge, Problem) else problem_of(challenge)
    turns = [Turn(i, f"a{i}", output=one) for i, one in enumerate(said)]
    view = View("me", None, problem.public(), Trajectory(turns))

    async def run() -> list[Output]:
        engine = engine_for({}, Fixed([]), ListTask())
        found = []
        for n in range(draws):
            calls = ActivationCalls(engine, Key(n))
            found.append(await agent.act(view, Key(n).child("act"), calls))  # type: ignore[misc]
        return found

    return asyncio.run(run())


def version(code: str) -> Output:
    return Output("", {"code": code})


def code(output: Output) -> str:
    found = code_of(Turn(0, "x", output=output))
    assert found is not None
    return found


def test_a_writer_is_right_as_often_as_its_skill_says() -> None:
    script = script_of(problem_of(BASIC))
    outputs = acts(PlayWriter(basic=0.7), draws=300)
    share = sum(script.is_right(code(one)) for one in outputs) / 300
    assert share == pytest.approx(0.7, abs=0.08)
    hard = acts(PlayWriter(advanced=0.0), challenge=HARD, draws=20)
    assert not any(script_of(problem_of(HARD)).is_right(code(one)) for one in hard)


def test_a_turn_takes_the_tokens_of_what_it_reads_and_writes_four_characters_each() -> None:
    [output] = acts(PlayWriter(cost=2.0), [Output("x" * 41)])
    read = (len(problem_of(BASIC).text) + 41) // 4
    assert output.usage == Usage(0, read, len(output.content) // 4, 0.0, 2.0)


def test_equal_keys_give_equal_turns() -> None:
    assert acts(PlayWriter(), draws=5) == acts(PlayWriter(), draws=5)


def test_code_is_in_the_data_and_in_a_fence_alike() -> None:
    [output] = acts(PlayWriter())
    assert code(Output(output.content)) == output.data["code"]


def test_a_reviewer_sees_defects_by_skill_and_raises_false_alarms() -> None:
    sharp, blind = PlayReviewer(skill=1, false_alarm=0), PlayReviewer(skill=0, false_alarm=1)
    for reviewer, wrong, right in ((sharp, True, False), (blind, False, True)):
        assert acts(reviewer, [version(WRONG)])[0].data["defect"] is wrong
        assert acts(reviewer, [version(RIGHT)])[0].data["defect"] is right
        assert acts(reviewer, [version(untidy(RIGHT))])[0].data["defect"] is right


def test_a_reviewer_brings_no_version() -> None:
    assert "code" not in acts(PlayReviewer(), [version(WRONG)])[0].data
    assert acts(PlayReviewer())[0].content == "There is nothing to review yet."


def test_a_refactorer_tidies_and_mends_what_a_review_names() -> None:
    able = PlayRefactorer(skill=1, unaided=0, slip=0)
    review = acts(PlayReviewer(skill=1), [version(WRONG)])[0]
    assert code(acts(able, [version(untidy(RIGHT))])[0]) == RIGHT
    assert code(acts(able, [version(WRONG)])[0]) == WRONG
    assert code(acts(able, [version(WRONG), review])[0]) == RIGHT


def test_a_review_of_an_older_version_does_not_help() -> None:
    able = PlayRefactorer(skill=1, unaided=0)
    review = acts(PlayReviewer(skill=1), [version(WRONG)])[0]
    other = version(BASIC.wrong[1])
    assert code(acts(able, [version(WRONG), review, other])[0]) == BASIC.wrong[1]


def test_a_false_alarm_can_make_a_refactorer_break_what_was_right() -> None:
    hasty = PlayRefactorer(slip=1)
    alarm = acts(PlayReviewer(false_alarm=1), [version(RIGHT)])[0]
    assert code(acts(hasty, [version(RIGHT), alarm])[0]) in BASIC.wrong


def test_players_know_composed_problems_and_no_others() -> None:
    [one] = generate(1, Key(0))
    assert script_of(problem_of(one)).right == one.solution
    with pytest.raises(RuntimeError, match="no script for the problem 'mine'"):
        script_of(Problem("mine", "Write f."))
    with pytest.raises(RuntimeError, match="no script"):
        script_of(Problem("composed/evens.unknown", ""))


@pytest.mark.parametrize("one", builtin(), ids=lambda one: one.id)
def test_untidy_code_is_the_same_program_without_types(one: Challenge) -> None:
    bare = ast.parse(untidy(one.solution))
    assert ast.unparse(bare.body[0]) == "import os"
    assert not any(isinstance(node, ast.AnnAssign) for node in ast.walk(bare))
    arguments = [node for node in ast.walk(bare) if isinstance(node, ast.arg)]
    assert all(argument.annotation is None for argument in arguments)
