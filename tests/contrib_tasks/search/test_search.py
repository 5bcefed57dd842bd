"""The task `search`: who answers right, who does not, and what retrieval may and may not do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from attrs import evolve, frozen
from orchestrion_search.documents import Document
from orchestrion_search.task import RunningSearch, Search
from orchestrion_search.world import SearchTeacher, World

from orchestrion import (
    Episode,
    Key,
    Member,
    OpenContext,
    Output,
    RunError,
    Scores,
    SplitShares,
    Step,
    Trajectory,
    Turn,
    UsageError,
    View,
)
from tests.contrib_tasks.search.support import TEAM, Say, played, share

CODES = Search(generated=World("codes", people=20, train=8, validation=4, test=24), results=1)
PROSE = Search(generated=World("prose", people=20, train=8, validation=4, test=24))
TEACHER = SearchTeacher(wrong_verdict=0, wrong_query=0, wrong_answer=0)


def taught(role: str) -> Say:
    """What a teacher without mistakes says in a role."""

    def say(view: View) -> Output:
        assert view.observation is not None
        text = TEACHER._say(role, view.observation.text, Key(0).random())
        following = {"y": "answerer", "n": "searcher"}.get(text, "")
        return Output(text, {"value": text, "next": following})

    return say


VERDICT, QUERY, ANSWER = taught("V"), taught("S"), taught("A")


def play(
    task: Search,
    verifier: Say = VERDICT,
    searcher: Say = QUERY,
    answerer: Say = ANSWER,
    change: Callable[[RunningSearch], RunningSearch] = lambda running: running,
) -> list[Episode]:
    async def go() -> list[Episode]:
        async with task.open(OpenContext("task", Key(0), TEAM)) as running:
            assert isinstance(running, RunningSearch)
            return await played(change(running), verifier, searcher, answerer)

    return asyncio.run(go())


@pytest.mark.parametrize("task", [CODES, PROSE], ids=["codes", "prose"])
def test_a_team_that_searches_step_by_step_solves_everything(task: Search) -> None:
    episodes = play(task)
    assert share(episodes) == 1
    assert {one.scores.parts["f1"] for one in episodes if one.scores} == {1.0}
    assert {len(one.turns) for one in episodes} == {4, 6}, "one search a hop"


@pytest.mark.parametrize(
    "said",
    ["", "PASS", "yes", "no", "the", "I do not know", '{"success": true}', "<answer></answer>"],
)
def test_nonsense_gets_nothing(said: str) -> None:
    for task in (CODES, PROSE):
        episodes = play(task, answerer=lambda view: said)
        assert [one.scores for one in episodes] == [
            Scores(0.0, False, {"exact": 0.0, "f1": 0.0})
        ] * 24


def test_a_copy_of_what_was_asked_or_found_gets_nothing() -> None:
    for copy in (
        lambda view: view.problem.text,
        lambda view: view.observation.text,
        lambda view: " ".join(one.output.content for one in view.turns),
    ):
        assert share(play(PROSE, answerer=copy)) == 0


def test_what_an_agent_claims_does_not_count() -> None:
    def claim(view: View) -> Output:
        return Output("PASS", {"value": "PASS", "exact": 1.0, "answers": ["PASS"]}, final=True)

    assert share(play(CODES, answerer=claim)) == 0
    searched = play(CODES, searcher=lambda view: Output("", {"answer": "x", "value": ""}))
    assert share(searched) == 0, "nothing was found, so nothing is known"


def test_who_never_stops_searching_runs_out_of_rounds() -> None:
    def more(view: View) -> Output:
        return Output("n", {"value": "n", "next": "searcher"})

    episodes = play(CODES, verifier=more)
    assert share(episodes) == 0
    assert {sum(t.agent == "verifier" for t in one.turns) for one in episodes} == {4}
    assert {sum(t.agent == "searcher" for t in one.turns) for one in episodes} == {3}


def test_what_was_found_stands_in_the_next_observation() -> None:
    seen: list[str] = []

    def look(view: View) -> Output:
        assert view.observation is not None
        seen.append(view.observation.text)
        output: Output = taught("V")(view)
        return output

    play(PROSE, verifier=look)
    first, second = seen[:2]
    assert first.startswith("Who is ")
    assert "<search>" not in first
    assert "Step 1:<search>" in second
    assert second.count("The mother of ") == 3, "as many as `results`"


def test_only_the_latest_searches_are_shown_and_nothing_found_says_so() -> None:
    async def go() -> tuple[str, str]:
        short = evolve(CODES, history=1)
        async with short.open(OpenContext("task", Key(0))) as task:
            step = task.start(task.problems("test")[0], Key(0))
            texts = []
            for query in ("no such code", ""):
                turn = Turn(0, "searcher", output=Output(query))
                step = task.step(step.state, turn, Key(0))
                assert step.observation is not None
                texts.append(step.observation.text)
            return texts[0], texts[1]

    one, two = asyncio.run(go())
    assert one.endswith("|-----")
    assert one == two


def test_a_step_is_pure_and_a_search_always_finds_the_same() -> None:
    async def go() -> None:
        async with PROSE.open(OpenContext("task", Key(0))) as task:
            start = task.start(task.problems("test")[0], Key(0))
            turn = Turn(0, "searcher", output=Output("mother of everybody"))
            first, again = (task.step(start.state, turn, Key(n)) for n in (1, 2))
            assert first == again
            assert task.start(task.problems("test")[0], Key(0)) == start

    asyncio.run(go())


@frozen
class Broken:
    """An index that is gone."""

    def search(self, query: str, results: int) -> tuple[Document, ...]:
        raise OSError("the index is gone")

    def close(self) -> None:
        """Nothing."""


def test_an_error_of_retrieval_never_becomes_text() -> None:
    with pytest.raises(RunError, match="the index is gone"):
        play(PROSE, change=lambda running: evolve(running, index=Broken()))


def test_a_failed_turn_searches_for_nothing_and_answers_nothing() -> None:
    async def go() -> list[Step]:
        async with PROSE.open(OpenContext("task", Key(0))) as task:
            state = task.start(task.problems("test")[0], Key(0)).state
            return [
                task.step(state, Turn(0, agent, status="failed", error="cut"), Key(0))
                for agent in ("searcher", "answerer")
            ]

    searched, answered = asyncio.run(go())
    assert searched.state.searches == (("", ()),)
    assert answered.state.answer == ""
    assert answered.done


def test_unfinished_work_is_worth_what_was_found_and_f1_can_be_the_score() -> None:
    async def go() -> tuple[Scores, Scores, Scores]:
        task = evolve(PROSE, score="f1")
        async with task.open(OpenContext("task", Key(0))) as running:
            [problem] = [one for one in running.problems("test") if one.category == "2-hop"][:1]

            async def judged(agent: str, said: str, final: bool) -> Scores:
                turn = Turn(0, agent, output=Output(said))
                state = running.step(running.start(problem, Key(0)).state, turn, Key(0)).state
                return await running.verify(
                    problem,
                    Trajectory(),
                    state,
                    final=final,
                    calls=None,  # type: ignore[arg-type]
                )

            first = problem.hidden["documents"][0]
            name = problem.hidden["answers"][0].split()[0]
            return (
                await judged("searcher", first, False),
                await judged("searcher", first, True),
                await judged("answerer", name, True),
            )

    partial, unanswered, half = asyncio.run(go())
    assert 0 < partial.value <= 0.5
    assert not partial.success
    assert unanswered.value == 0
    assert half.value == pytest.approx(2 / 3)
    assert not half.success


def test_agents_see_no_answer_and_must_be_in_the_team() -> None:
    assert all(one.public().hidden is None for one in PROSE.problems("test"))

    async def go() -> None:
        async with PROSE.open(OpenContext("task", Key(0), (Member("verifier"),))):
            raise AssertionError

    with pytest.raises(UsageError, match=r"task\.searcher: no agent 'searcher'"):
        asyncio.run(go())


def test_a_verifier_that_is_named_must_be_in_the_team() -> None:
    async def go(settings: Search) -> None:
        async with settings.open(OpenContext("task", Key(0), TEAM[1:])):
            pass

    assert TEAM[0].name == "verifier"
    asyncio.run(go(PROSE))  # a team can do without one
    with pytest.raises(UsageError, match=r"task\.verifier: no agent 'sercher'.*mean 'searcher'"):
        asyncio.run(go(evolve(PROSE, verifier="sercher")))


def test_settings_of_questions_that_are_not_these_are_refused() -> None:
    file = Path("questions.json")
    for settings, name in (
        ({"source": file, "generated": World(people=9)}, "generated"),
        ({"test": file}, "test"),
        ({"split": SplitShares(0.5, 0.2, 0.3)}, "split"),
    ):
        with pytest.raises(ValueError, match=f"{name}: does nothing with `source: "):
            Search(**settings)
