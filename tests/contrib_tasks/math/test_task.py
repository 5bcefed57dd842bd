"""The verdict of `math`: who gets it, who does not, and the loop of solver and verifier."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from attrs import frozen
from orchestrion_dag.dag import Dag
from orchestrion_dag.graph import Graph, Node
from orchestrion_math.generate import Arithmetic, solve
from orchestrion_math.task import Math

from orchestrion import (
    Agent,
    Calls,
    Episode,
    Key,
    Member,
    OpenContext,
    Output,
    Problem,
    Scores,
    SplitShares,
    Trajectory,
    Turn,
    UsageError,
    View,
)
from orchestrion.testing import engine_for

SMALL = Arithmetic("symbols", "+-*", steps=2, train=8, validation=4, test=12)


class Once:
    """Calls that remember nothing."""

    async def reuse(self, content: Any, do: Callable[[], Any]) -> Any:
        return await do()


def said(*contents: str, agent: str = "solver") -> Trajectory:
    return Trajectory([Turn(i, agent, output=Output(one)) for i, one in enumerate(contents)])


def judge(trajectory: Trajectory, problem: Problem, task: Math | None = None) -> Scores:
    async def go() -> Scores:
        async with (task or Math()).open(OpenContext("task", Key(0))) as running:
            return await running.verify(problem, trajectory, None, final=True, calls=Once())  # type: ignore[arg-type]

    return asyncio.run(go())


def problem(answer: str = "7", text: str = "What is 3+4? Put it into \\boxed{answer}.") -> Problem:
    return Problem("p", text, hidden={"answer": answer})


@pytest.mark.parametrize(
    "content",
    [
        "\\boxed{7}",
        "First I had \\boxed{8}. No: $\\boxed{7.0}$, that is it.",
        "<think>\\boxed{8}</think> So \\boxed{7}.",
    ],
)
def test_the_last_box_counts(content: str) -> None:
    assert judge(said(content), problem()) == Scores(1.0, True)


@pytest.mark.parametrize(
    "content",
    [
        "",
        "PASS",
        "7",
        "The answer is 7.",
        "\\boxed{}",
        "\\boxed{7",
        "\\boxed{3+4}",
        "\\boxed{answer}",
        "What is 3+4? Put it into \\boxed{answer}.",
        "\\boxed{7} and then again \\boxed{8}",
        "\\boxed{7, 8}",
        '{"success": true, "score": 1}',
        "<think>\\boxed{7}</think>",
        "\\boxed{0 if False else 7}",
    ],
)
def test_nonsense_and_copies_of_the_problem_get_nothing(content: str) -> None:
    assert judge(said(content), problem()) == Scores(0.0, False)


def test_an_expression_that_the_problem_gives_is_no_answer_to_it() -> None:
    simplify = problem("5\\sqrt{2}", "Simplify $\\sqrt{50}$.")
    assert not judge(said("\\boxed{\\sqrt{50}}"), simplify).success
    assert judge(said("\\boxed{\\sqrt{2} \\cdot 5}"), simplify).success


def test_an_answer_that_the_problem_names_is_one() -> None:
    choice = problem("\\frac{3}{4}", "Which is larger, $\\frac{2}{3}$ or $\\frac{3}{4}$?")
    assert judge(said("\\boxed{\\frac34}"), choice).success


def test_only_the_solver_answers_and_its_last_turn_counts() -> None:
    assert not judge(said("\\boxed{7}", agent="verifier"), problem()).success
    assert not judge(said("\\boxed{7}", "\\boxed{9}"), problem()).success
    failed = Turn(1, "solver", status="failed", error="no answer")
    assert judge(Trajectory([*said("\\boxed{7}").turns, failed]), problem()).success
    assert not judge(Trajectory([failed]), problem()).success


def test_what_an_agent_claims_is_not_read() -> None:
    data = {"value": "7", "success": True, "answer": "7", "hidden": {"answer": "x"}}
    turn = Turn(0, "solver", output=Output("\\boxed{8}", data, metadata={"score": 1.0}))
    assert judge(Trajectory([turn]), problem()) == Scores(0.0, False)


def test_a_problem_without_an_answer_is_never_solved() -> None:
    assert not judge(said("\\boxed{None}"), Problem("p", "by hand")).success


def test_a_solver_that_is_not_in_the_team_is_refused() -> None:
    async def go() -> None:
        context = OpenContext("task", Key(0), (Member("solver2"),))
        async with Math().open(context):
            raise AssertionError

    with pytest.raises(UsageError, match=r"task\.solver: no agent 'solver'.*mean 'solver2'"):
        asyncio.run(go())


def test_settings_of_problems_that_are_not_these_are_refused() -> None:
    file = Path("problems.jsonl")
    for settings, name in (
        ({"source": file, "generated": SMALL}, "generated"),
        ({"test": file}, "test"),
        ({"split": SplitShares(0.5, 0.2, 0.3)}, "split"),
    ):
        with pytest.raises(ValueError, match=f"{name}: does nothing with `source: "):
            Math(**settings)


@frozen
class Player(Agent):
    """Says what a function makes of what it reads."""

    say: Callable[[View], Output]

    async def act(self, view: View, key: Key, calls: Calls) -> Output:
        return self.say(view)


LOOP = Dag(
    nodes={
        "tries": Node(
            body=Graph(chain="solver -> verifier"),
            until="verifier.data.value == 'approve'",
            max=1,
        ),
        "last": "solver",
    },
    edges=["tries -> last when tries.capped"],
    outputs=["tries", "last"],
)


def verdict(view: View) -> Output:
    right = view.turns[-1].output.content == f"\\boxed{{{solve(view.problem.text)}}}"
    return Output(data={"value": "approve" if right else "reject"})


def solution(view: View) -> Output:
    return Output(f"\\boxed{{{solve(view.problem.text)}}}")


def play(task: Math, agents: Mapping[str, Callable[[View], Output]]) -> list[Episode]:
    team = {name: Player(say) for name, say in agents.items()}

    async def go() -> list[Episode]:
        roster = tuple(Member(name) for name in team)
        async with (
            task.open(OpenContext("task", Key(0), roster)) as running,
            LOOP.open(OpenContext("policy", Key(0), roster)) as policy,
        ):
            engine = engine_for(dict(team), policy, running)
            return [
                await engine.run(one.id, one, Key(0).child(one.id))
                for one in running.problems("test")
            ]

    return asyncio.run(go())


def test_a_perfect_team_solves_everything_with_one_check() -> None:
    episodes = play(Math(generated=SMALL), {"solver": solution, "verifier": verdict})
    assert all(one.success for one in episodes)
    assert {len(one.turns) for one in episodes} == {2}


def test_what_is_sent_back_is_solved_again_and_the_last_try_counts_unchecked() -> None:
    def second(view: View) -> Output:
        tried = any(turn.agent == "verifier" for turn in view.turns)
        return solution(view) if tried else Output("\\boxed{PASS}")

    episodes = play(Math(generated=SMALL), {"solver": second, "verifier": verdict})
    assert all(one.success for one in episodes)
    assert [turn.agent for turn in episodes[0].turns] == ["solver", "verifier", "solver"]


def test_a_verifier_that_waves_nonsense_through_solves_nothing() -> None:
    def approve(view: View) -> Output:
        return Output("PASS", {"value": "approve"})

    episodes = play(
        Math(generated=SMALL),
        {"solver": lambda view: Output(f"\\boxed{{{view.problem.text}}}"), "verifier": approve},
    )
    assert not any(one.success for one in episodes)


def test_plain_and_reversed_answers_are_read_as_they_are_written() -> None:
    backwards = Arithmetic(reverse=True, train=4, validation=2, test=6)
    task = Math(generated=backwards, answer="plain")
    for one in task.problems("test"):
        right = str(solve(one.text))
        assert judge(said(right[::-1]), one, task).success
        assert judge(said(right), one, task).success == (right == right[::-1])


def test_agents_do_not_see_the_answer() -> None:
    assert all(one.public().hidden is None for one in Math(generated=SMALL).problems("test"))
