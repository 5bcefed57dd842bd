"""Speakers act at their stated rates, and are pure functions of request and draw."""

from __future__ import annotations

import json
from math import sqrt
from typing import Any

import pytest
from orchestrion_code_review.challenge import builtin
from orchestrion_code_review.generator import generate
from orchestrion_code_review.task import text_of
from orchestrion_offline.interfaces import Answer, Speaker, ToolCall
from orchestrion_offline.speakers.coder import Coder, script_in
from orchestrion_offline.speakers.habits import HABITS, Coach, Habit
from orchestrion_offline.speakers.judge import Judge, quality
from orchestrion_offline.speakers.plain import Cast, Echo, Line, Scripted
from orchestrion_offline.speakers.steps import Reviewer, Router, Solver
from orchestrion_offline.steps import KINDS, draw_sheet, line

from orchestrion import Key
from tests.contrib_agents.offline.support import asked, say

SHEETS = {kind: draw_sheet(kind, 6, 418, Key(2)) for kind in (*KINDS, "mixed")}
SHEET = SHEETS["mixed"]
RIGHT = [line(n, value) for n, value in enumerate(SHEET.values, 1)]
WRONG = line(2, (SHEET.values[1] + 1) % 1000)
N = 1200


def rate(speaker: Speaker, request: dict[str, Any], text: str, draws: int = N) -> float:
    """How often it says just this."""
    return sum(answer.text == text for answer in say(speaker, request, draws)) / draws


def close(share: float, value: float, draws: int = N) -> bool:
    return abs(share - value) <= 4 * sqrt(max(value * (1 - value), 1e-6) / draws)


def shown(*answers: str, sheet: str = SHEET.text) -> str:
    return "\n\n".join([f"<problem>\n{sheet}\n</problem>", *answers])


# ---------------------------------------------------------------- worksheets


@pytest.mark.parametrize(("kind", "skill"), [("sums", 0.92), ("products", 0.8), ("digits", 0.72)])
def test_a_solver_is_right_at_the_rate_of_its_skill(kind: str, skill: float) -> None:
    sheet = SHEETS[kind]
    assert close(rate(Solver(), asked(sheet.text), line(1, sheet.values[0])), skill)


def test_a_solver_continues_from_the_line_above_right_or_wrong() -> None:
    sure = Solver(skills={}, skill=1.0)
    assert say(sure, asked(shown(RIGHT[0])))[0].text == RIGHT[1]
    wrong = (SHEET.values[0] + 5) % 1000
    after = line(2, SHEET.steps[1].after(wrong))
    assert say(sure, asked(shown(line(1, wrong))))[0].text == after


def test_a_solver_rewrites_the_line_that_was_called_wrong() -> None:
    sure = Solver(skills={}, skill=1.0)
    review = asked(shown(RIGHT[0], WRONG, "Line 2 is wrong."))
    assert say(sure, review)[0].text == RIGHT[1]
    assert say(sure, asked(shown(*RIGHT)))[0].text == "All lines are written."


def test_a_mistake_is_never_right_by_chance_and_often_the_common_one() -> None:
    hopeless = Solver(skills={}, skill=0.0, common=0.5, habits=())
    right = SHEET.values[0]
    answers = [answer.text for answer in say(hopeless, asked(SHEET.text), N)]
    assert line(1, right) not in answers
    common = answers.count(line(1, (right + 10) % 1000)) / N
    assert close(common, 0.5)
    assert len(set(answers)) > 100


def test_remarks_change_only_the_length() -> None:
    short, long = Solver(), Solver(remarks=3)
    for short_answer, long_answer in zip(
        say(short, asked(SHEET.text), 40), say(long, asked(SHEET.text), 40), strict=True
    ):
        assert long_answer.text.endswith(short_answer.text)
    assert len({len(answer.text.splitlines()) for answer in say(long, asked(SHEET.text), 40)}) == 4


@pytest.mark.parametrize(
    ("habit", "kind", "change"),
    [
        (HABITS[0].text, "sums", 0.06),
        (HABITS[1].text, "products", 0.12),
        (HABITS[1].text, "sums", 0.0),
        (HABITS[3].text, "sums", -0.12),
        (HABITS[6].text, "products", 0.0),
        (f"When the problem is about products: {HABITS[1].text}", "products", 0.12),
        (f"When the problem is about sums: {HABITS[1].text}", "products", 0.0),
    ],
)
def test_a_habit_changes_the_skill_by_its_effect(habit: str, kind: str, change: float) -> None:
    solver, sheet = Solver(), SHEETS[kind]
    instructions = f"You are the solver.\n- {habit}\n- {habit.upper()}"
    base = solver.chance(sheet.steps[0], "", kind)
    assert solver.chance(sheet.steps[0], instructions, kind) == pytest.approx(base + change)
    results = rate(solver, asked(sheet.text, instructions), line(1, sheet.values[0]))
    assert close(results, base + change)


def test_own_habits_replace_the_defaults() -> None:
    solver = Solver(habits=(Habit("Count sheep", 0.05), Habit("sleep well", -1.0, "sums")))
    sums = SHEETS["sums"].steps[0]
    assert solver.chance(sums, "count  SHEEP!") == pytest.approx(0.97)
    assert solver.chance(sums, "Count\nsheep, sleep well.") == 0.0
    assert solver.chance(sums, HABITS[0].text) == 0.92


def test_a_reviewer_finds_the_first_wrong_line_at_its_rate() -> None:
    reviewer = Reviewer(skill=0.7, false_alarm=0.1)
    assert close(rate(reviewer, asked(shown(RIGHT[0], WRONG)), "Line 2 is wrong."), 0.7)
    assert close(rate(reviewer, asked(shown(*RIGHT[:2])), "Line 2 is wrong."), 0.1)
    assert say(reviewer, asked(shown()))[0].text == "There is nothing to review yet."


def test_speakers_refuse_requests_they_cannot_answer() -> None:
    for speaker in (Solver(), Reviewer(), Coder(), Cast()):
        with pytest.raises(ValueError, match=r"this speaker|no role"):
            speaker.say(asked("What is love?"), Key(0))


# ---------------------------------------------------------------- plain ones


def test_a_script_gives_one_line_per_answer() -> None:
    script = Scripted((Line("one"), Line(tool="add", arguments={"a": 1}), Line("no", refuse=True)))
    request = asked("hi")
    request["messages"].append({"role": "assistant", "content": "one"})
    assert say(script, asked("hi")) == [Answer("one")]
    assert say(script, request) == [Answer("", (ToolCall("add", '{"a":1}'),))]
    for _ in range(3):
        request["messages"].append({"role": "assistant", "content": "x"})
    assert say(script, request) == [Answer("no", stop="refused")]


def test_a_cast_plays_the_role_named_first() -> None:
    cast = Cast({"writer": Echo("w: "), "code reviewer": Echo("r: ")}, Echo("? "))
    systems = {
        "You are a Code Reviewer. Help the writer.": "r: x",
        "You write, Writer!": "w: x",
    }
    for system, text in {**systems, "rewriters": "? x"}.items():
        assert say(cast, asked("x", system))[0].text == text


# ---------------------------------------------------------------- coach

QUESTION = """Answer with one JSON object and nothing else:
{"habits": [{"category": "...", "habit": "...", "replaces": null}]}"""


def test_a_coach_proposes_habits_in_the_form_of_the_example() -> None:
    text = "Categories: products, sums, any\nPresent habits:\n(none)\nPropose at most 2 habits."
    seen = set()
    for answer in say(Coach(proposals=5), asked(text, QUESTION), 60):
        rows = json.loads(answer.text)["habits"]
        assert len(rows) == 2
        for row in rows:
            assert sorted(row) == ["category", "habit", "replaces"]
            habit = next(h for h in HABITS if h.text == row["habit"])
            wanted = habit.category if habit.category in ("products", "sums") else "any"
            assert row["category"] == wanted
            assert row["replaces"] is None
            seen.add(row["habit"])
    assert seen == {habit.text for habit in HABITS}


def test_a_coach_does_not_repeat_what_the_question_shows() -> None:
    known = "\n".join(f"- {habit.text}" for habit in HABITS[1:])
    [answer] = say(Coach(), asked(f"Present habits:\n{known}", QUESTION))
    assert [row["habit"] for row in json.loads(answer.text)["habits"]] == [HABITS[0].text]


def test_insight_is_the_share_of_proposals_drawn_from_helpful_habits() -> None:
    def share(coach: Coach) -> float:
        answers = [
            json.loads(answer.text)["habits"][0] for answer in say(coach, asked("", QUESTION), N)
        ]
        good = {habit.text for habit in HABITS if habit.effect > 0}
        return sum(row["habit"] in good for row in answers) / N

    assert close(share(Coach(proposals=1)), 1 / 3)
    assert share(Coach(proposals=1, insight=1.0)) == 1


def test_a_coach_follows_a_schema() -> None:
    schema = {
        "type": "object",
        "properties": {
            "proposals": {"type": "array", "items": {"$ref": "#/$defs/P"}},
            "note": {"type": ["string", "null"]},
        },
        "$defs": {
            "P": {
                "type": "object",
                "properties": {
                    "rule": {"type": "string"},
                    "category": {"enum": ["sums", "products", "digits", "any"]},
                    "reason": {"type": "string"},
                },
            }
        },
    }
    [answer] = say(Coach(proposals=3), asked("best and worst", schema=schema))
    rows = json.loads(answer.text)["proposals"]
    assert len({row["rule"] for row in rows}) == 3
    assert all(row["reason"] for row in rows)


def test_a_coach_merges_two_versions_of_instructions() -> None:
    form = 'Answer with one JSON object and nothing else: {"instructions": "..."}'
    text = "Version 1:\n~~~\nBe exact.\nBe kind.\n~~~\n\nVersion 2:\n~~~\nBe exact.\nBe quick.\n~~~"
    [answer] = say(Coach(), asked(text, form))
    rows = json.loads(answer.text)["instructions"].splitlines()
    assert rows[:3] == ["Be exact.", "Be kind.", "Be quick."]
    assert rows[3] in {habit.text for habit in HABITS}


# ---------------------------------------------------------------- judge


def grades(judge: Judge, text: str, draws: int = 1, **settings: Any) -> list[float]:
    schema = {"type": "object", "properties": {"score": {"type": "number", **settings}}}
    answers = say(judge, asked(text, schema=schema), draws)
    return [json.loads(answer.text)["score"] for answer in answers]


EXACT = Judge(noise=0.0)


def test_a_judge_knows_what_a_worksheet_is_worth() -> None:
    for n in range(7):
        assert grades(EXACT, shown(*RIGHT[:n]), minimum=0, maximum=6) == [n]
    assert grades(EXACT, shown(RIGHT[0], WRONG, *RIGHT[2:]), minimum=0, maximum=6) == [1]
    assert quality(shown(RIGHT[-1])) == 1.0
    assert quality(shown(line(6, 1 + SHEET.values[-1]))) == 0.0


def test_a_judge_sorts_turns_by_their_numbers() -> None:
    turns = [
        f"[m begin turn {n} by a]\n{answers}\n[m end turn {n} by a]"
        for n, answers in enumerate(RIGHT[:3], 1)
    ]
    assert quality("\n".join([*turns[::-1], SHEET.text])) == 0.5


def test_a_judge_of_pure_noise_ignores_the_work() -> None:
    noise = Judge(accuracy=0.0)
    good, bad = grades(noise, shown(*RIGHT), N), grades(noise, shown(WRONG), N)
    assert abs(sum(good) / N - 5) < 0.4
    assert abs(sum(bad) / N - 5) < 0.4
    assert min(good) < 0.2
    assert max(good) > 9.8


def test_a_judge_has_its_set_noise_and_accuracy() -> None:
    text = shown(*RIGHT[:3])
    results = grades(Judge(noise=0.1), text, N)
    mean = sum(results) / N
    spread = sqrt(sum((answer - mean) ** 2 for answer in results) / N)
    assert abs(mean - 5) < 0.15
    assert abs(spread - 1) < 0.1
    looks = grades(Judge(accuracy=0.6, noise=0.0), text, N)
    assert close(sum(answer == 5 for answer in looks) / N, 0.6)


def test_a_judge_has_its_set_biases() -> None:
    text, long = shown(*RIGHT[:3]), shown(*RIGHT[:3]) + " blah" * 400
    fond = Judge(noise=0.0, length_bias=0.3)
    assert grades(fond, long) == [8.0]
    assert 5 < grades(fond, text)[0] < 6
    first = Judge(noise=0.0, position_bias=0.2)
    names = ("clarity", "truth")
    for order in (names, names[::-1]):
        instructions = "\n".join(f"- {name} (integer from 0 to 10): how much" for name in order)
        schema = {"type": "object", "properties": {name: {"type": "integer"} for name in names}}
        [answer] = say(first, asked(text, instructions, schema=schema))
        results = json.loads(answer.text)
        assert (results[order[0]], results[order[1]]) == (7, 3)


def test_a_judge_answers_in_the_form_of_the_example() -> None:
    instructions = """- truth (integer from 1 to 5): what is true
- style (number from 0 to 10, written as text with the best score, as in "10/10"): how it reads
Answer with one JSON object: {"mark": "the mark", "reason": "...", "scores": {"truth": 5, "style":
"10/10"}}"""
    [answer] = say(EXACT, asked("mark: abc123\n\n" + shown(*RIGHT[:3]), instructions))
    results = json.loads(answer.text)
    assert results["mark"] == "abc123"
    assert results["scores"] == {"truth": 3, "style": "5/10"}
    [answer] = say(EXACT, asked(shown(*RIGHT[:3])))
    assert answer.text == "Score: 5/10"
    [answer] = say(
        EXACT,
        asked(shown(*RIGHT), schema={"properties": {"verdict": {"enum": ["good", "fair", "bad"]}}}),
    )
    assert json.loads(answer.text) == {"verdict": "good"}


# ---------------------------------------------------------------- router


def test_a_router_is_right_at_its_rate() -> None:
    schema = {"type": "object", "properties": {"next": {"enum": ["writer", "reviewer", "stop"]}}}
    unsure = Router(follows={"writer": "reviewer"}, accuracy=0.7)
    answers = say(unsure, asked("writer: x", schema=schema), N)
    names = [json.loads(answer.text)["next"] for answer in answers]
    assert close(names.count("reviewer") / N, 0.7)
    assert set(names) == {"writer", "reviewer", "stop"}


def test_a_router_names_the_successor_of_the_agent_mentioned_last() -> None:
    router = Router(follows={"writer": "reviewer", "reviewer": "stop"}, first="writer")
    for text, name in {
        "": "writer",
        "writer: x": "reviewer",
        "writer, reviewer: y": "stop",
    }.items():
        assert json.loads(say(router, asked(text))[0].text) == {"next": name}


# ---------------------------------------------------------------- coder

CHALLENGES = (*builtin(), *generate(12, Key(4)))


def test_a_coder_finds_the_solution_of_every_problem_by_its_text() -> None:
    for answer in CHALLENGES:
        script = script_in(f"<problem>\n{text_of(answer)}\n</problem>")
        assert script is not None, answer.id
        assert script.right == answer.solution


def code(text: str) -> str:
    return text.removeprefix("```python\n").removesuffix("```")


@pytest.mark.parametrize("level", ["basic", "intermediate", "advanced"])
def test_a_writer_is_right_at_the_rate_of_its_skill(level: str) -> None:
    answer = next(c for c in builtin() if c.level == level)
    script = script_in(text_of(answer))
    assert script is not None
    coder, draws = Coder(), 400
    answers = say(coder, asked(text_of(answer), "You are the writer of a team."), draws)
    right = sum(script.is_right(code(s.text)) for s in answers) / draws
    assert close(right, coder.writer[level], draws)


def test_a_reviewer_objects_and_a_refactorer_repairs() -> None:
    answer = builtin()[0]
    right, wrong = (f"```python\n{c}\n```" for c in (answer.solution, answer.wrong[0]))
    problem, coder = text_of(answer), Coder()
    review = "You are the reviewer."
    objection = "I see a defect: it is not right for all inputs."
    assert close(rate(coder, asked(f"{problem}\n{wrong}", review), objection), 0.85)
    assert close(rate(coder, asked(f"{problem}\n{right}", review), objection), 0.05)
    script = script_in(problem)
    assert script is not None

    def mended(text: str) -> float:
        answers = say(coder, asked(text, "You are the refactorer."), 300)
        return sum(script.is_right(code(s.text)) for s in answers) / 300

    assert close(mended(f"{problem}\n{wrong}\n{objection}"), 0.9, 300)
    assert close(mended(f"{problem}\n{wrong}"), 0.05, 300)
    assert close(mended(f"{problem}\n{right}\n{objection}"), 0.7, 300)
    assert mended(f"{problem}\n{right}") == 1.0


def test_a_judge_knows_right_code_from_wrong() -> None:
    answer = builtin()[0]
    for text, worth in ((answer.solution, 1.0), (answer.wrong[0], 0.25)):
        assert quality(f"{text_of(answer)}\n```python\n{text}\n```") == worth
