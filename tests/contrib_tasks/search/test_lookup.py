"""The task `lookup`: what solves it, what does not, and that its splits are apart."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from orchestrion_search.lookup import LETTERS, Lookup, LookupTeacher

from orchestrion import Answer, Episode, Key, Output, View
from tests.contrib_tasks.search.support import Say, played, share

TASK = Lookup(train=60, validation=20, test=40)


Says = Callable[[str], dict[str, str]]


def verdict(shown: str) -> dict[str, str]:
    unknown = any(one in LETTERS for one in shown)
    return {"value": "n", "next": "searcher"} if unknown else {"value": "y", "next": "answerer"}


def letter(shown: str) -> dict[str, str]:
    return {"value": next(one for one in shown if one in LETTERS)}


def larger(shown: str) -> dict[str, str]:
    return {"value": max(shown[0], shown[2])}


def reading(say: Says) -> Say:
    """Says what a function makes of what is shown."""

    def told(view: View) -> Output:
        assert view.observation is not None
        data = say(view.observation.text)
        return Output(data["value"], data)

    return told


def play(verifier: Says, searcher: Says, answerer: Says) -> list[Episode]:
    return asyncio.run(played(TASK, *map(reading, (verifier, searcher, answerer))))


def test_a_team_that_looks_up_what_it_must_solves_everything() -> None:
    episodes = play(verdict, letter, larger)
    assert share(episodes) == 1
    assert {len(one.turns) for one in episodes} == {2, 4, 6}


@pytest.mark.parametrize("said", ["PASS", "99", "", "9 ", "answer: 9"])
def test_nonsense_solves_nothing_that_is_not_there(said: str) -> None:
    episodes = play(verdict, letter, lambda shown: {"value": said})
    nines = {one.id for one in TASK.problems("test") if one.hidden["answer"] == said.strip()}
    assert {one.problem.id for one in episodes if one.success} == nines


def test_who_always_searches_runs_out_of_rounds() -> None:
    never = play(lambda shown: {"value": "n", "next": "searcher"}, lambda s: {"value": "a"}, larger)
    assert share(never) == 0
    assert {sum(t.agent == "verifier" for t in one.turns) for one in never} == {4}


def test_who_never_searches_guesses() -> None:
    at_once = play(
        lambda shown: {"value": "y", "next": "answerer"}, letter, lambda s: {"value": "8"}
    )
    assert {len(one.turns) for one in at_once} == {2}
    assert 0 < share(at_once) < 0.5


def test_what_an_agent_claims_does_not_reach_the_table() -> None:
    # Letters that nobody asked for stay unknown, and no data of a turn is taken for a digit.
    episodes = play(verdict, lambda shown: {"value": "a=9", "answer": "9"}, larger)
    assert all(not one.success or one.problem.category == "known" for one in episodes)


def test_splits_are_apart_and_public_problems_do_not_hold_the_answer() -> None:
    questions = [
        (one.text, one.hidden["table"])
        for split in ("train", "validation", "test")
        for one in TASK.problems(split)
    ]
    assert len(set(questions)) == len(questions) == 120
    assert all(one.public().hidden is None for one in TASK.problems("test"))
    assert {one.category for one in TASK.problems("train")} == {"known", "one", "two"}


def test_the_teacher_is_as_wrong_as_it_says() -> None:
    teacher = LookupTeacher()

    def rate(prompt: str, right: str) -> float:
        async def ask() -> list[Answer]:
            request = {"messages": [{"role": "user", "content": prompt}]}
            return [await teacher.complete(request, Key(n), None) for n in range(2000)]  # type: ignore[arg-type]

        return sum(one.data["text"] in right for one in asyncio.run(ask())) / 2000

    assert rate("V1aMb=", "n") == pytest.approx(0.75, abs=0.04)
    assert rate("V1aM3=", "n") == pytest.approx(0.45, abs=0.04)
    assert rate("V12M3=", "y") == pytest.approx(0.75, abs=0.04)
    assert rate("SaMb=", "ab") == pytest.approx(0.6 + 0.4 * 2 / 8, abs=0.04)
    assert rate("A2M7=", "7") == pytest.approx(0.9 + 0.1 / 10, abs=0.04)
