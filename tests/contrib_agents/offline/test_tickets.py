"""The task `tickets` and the speaker `clerk`: what is shown, who knows what."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from orchestrion_offline.tickets import CATEGORIES, Clerk, Tickets, answer_in, category_of

from orchestrion import Key, Output, Problem, Trajectory, Turn

TASK = Tickets(train=20, validation=5, test=40)


def solved(problem: Problem, *contents: str) -> bool:
    trajectory, step = Trajectory(), TASK.start(problem, Key(1))
    for i, content in enumerate(contents):
        turn = Turn(i, "a", output=Output(content), decision=i)
        trajectory, step = trajectory.append(turn), TASK.step(step.state, turn, Key(1))
    verdict = TASK.verify(problem, trajectory, step.state, final=True, calls=None)  # type: ignore[arg-type]
    return asyncio.run(verdict).success


def test_the_public_ticket_hides_its_category() -> None:
    for problem in TASK.problems("test"):
        shown = problem.public()
        assert shown.hidden is None
        assert shown.category == ""
        assert problem.hidden == category_of(problem.text)


def test_another_seed_gives_other_tickets() -> None:
    texts = [[p.text for p in Tickets(seed=seed).problems("train")] for seed in (0, 0, 1)]
    assert texts[0] == texts[1] != texts[2]


def test_only_the_last_answer_in_the_right_form_counts() -> None:
    problem = TASK.problems("train")[0]
    right = problem.hidden
    wrong = next(name for name in CATEGORIES if name != right)
    assert solved(problem, f"Category: {wrong}", f"category: {right.upper()}!")
    assert not solved(problem, f"Category: {right}", f"Category: {wrong}")
    assert not solved(problem, f"It is about {right}.")
    assert not solved(problem)


def test_the_observation_counts_the_answers() -> None:
    step = TASK.start(TASK.problems("train")[0], Key(1))
    assert step.observation is not None
    first = step.observation.features
    for i, name in enumerate(("billing", "billing", "returns")):
        turn = Turn(i, "a", output=Output(f"Category: {name}"), decision=i)
        step = TASK.step(step.state, turn, Key(1))
    assert step.observation is not None
    assert step.observation.data == {"billing": 2, "returns": 1}
    assert len(step.observation.features) == len(first)
    assert not any(first)


def request(text: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}]}


def test_a_clerk_is_right_at_the_rate_of_its_skill_for_the_category() -> None:
    clerk = Clerk(skills={"billing": 0.9}, skill=0.3)
    for category, skill in (("billing", 0.9), ("delivery", 0.3)):
        [text, *_] = [p.text for p in TASK.problems("train") if p.hidden == category]
        answers = [answer_in(clerk.say(request(text), Key(n)).text) for n in range(1000)]
        assert answers.count(category) / 1000 == pytest.approx(skill, abs=0.05)
        assert set(answers) == set(CATEGORIES)


def test_a_clerk_that_checks_corrects_other_answers() -> None:
    problem = TASK.problems("train")[0]
    wrong = next(name for name in CATEGORIES if name != problem.hidden)
    asked = request(f"{problem.text}\n\n[a] Category: {wrong}")
    answers = [Clerk(skill=0.0, checks=0.8).say(asked, Key(n)).text for n in range(500)]
    assert answers.count(f"Category: {problem.hidden}") / 500 == pytest.approx(0.8, abs=0.06)


def test_a_clerk_refuses_tickets_from_elsewhere(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"made-up tickets.*A speaker of your own"):
        Clerk().say(request("My dog ate the remote control."), Key(1))
    file = tmp_path / "questions.csv"
    file.write_text("question,answer\nMy dog ate the remote control.,technical\nMoney back?,bank\n")
    clerk = Clerk(file, skill=0.8)
    asked = request("My dog ate the remote control, I think")
    answers = [clerk.say(asked, Key(n)).text for n in range(500)]
    assert answers.count("Category: technical") / 500 == pytest.approx(0.8, abs=0.06)
    assert set(answers) == {"Category: technical", "Category: bank"}
    with pytest.raises(ValueError, match=r"knows only .*questions\.csv"):
        clerk.say(request("The courier left it at the wrong door"), Key(1))
    for text in ("", "question\nx\n"):
        other = tmp_path / f"{len(text)}.csv"
        other.write_text(text)
        with pytest.raises(ValueError, match="speaker clerk: "):
            Clerk(other).say(asked, Key(1))
