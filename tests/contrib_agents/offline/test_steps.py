"""The task `steps`: what is right is computed from the worksheet, whatever anybody says."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from orchestrion_offline.steps import (
    CATEGORIES,
    KINDS,
    Steps,
    Written,
    draw_sheet,
    leading,
    line,
    sheet_of,
    sheets_in,
    written,
)

from orchestrion import Key, Output, Problem, Scores, Split, Trajectory, Turn, UsageError

SPLITS: tuple[Split, ...] = ("train", "validation", "test")
TASK = Steps()
PROBLEM = TASK.problems("test")[3]
SHEET = sheet_of(PROBLEM)
RIGHT = [line(n, value) for n, value in enumerate(SHEET.values, 1)]


def scores(
    contents: Sequence[str | Output], task: Steps = TASK, problem: Problem = PROBLEM
) -> Scores:
    """The verdict after these turns."""
    step = task.start(problem, Key(0))
    turns = []
    for n, entry in enumerate(contents):
        turns.append(Turn(n, "a", output=Output(entry) if isinstance(entry, str) else entry))
        step = task.step(step.state, turns[-1], Key(n))

    async def verify() -> Scores:
        path = Trajectory(turns)
        return await task.verify(problem, path, step.state, final=True, calls=None)  # type: ignore[arg-type]

    return asyncio.run(verify())


# ---------------------------------------------------------------- worksheets


@given(st.sampled_from(CATEGORIES), st.integers(1, 12), st.integers(0, 999), st.integers())
def test_a_worksheet_is_read_as_it_was_written(
    category: str, steps: int, start: int, seed: int
) -> None:
    sheet = draw_sheet(category, steps, start, Key(seed))
    assert [sheets for sheets, _, _ in sheets_in(f"before {sheet.text}\n\nafter")] == [sheet]
    assert len(sheet.values) == steps
    assert all(0 <= value <= 999 for value in sheet.values)


def test_a_worksheet_is_found_in_quotes_tags_and_json() -> None:
    quoted = "\n".join(f"> {row}" for row in SHEET.text.splitlines())
    escaped = SHEET.text.replace("\n", "\\n")
    for shown in (quoted, f"<problem>\n{SHEET.text}\n</problem>", f'{{"text": "{escaped}"}}'):
        assert sheets_in(shown)[0][0] == SHEET


def test_steps_compute_what_they_say() -> None:
    text = (
        "Worksheet (mixed): start with 418.\n1. add 57\n2. multiply by 7\n3. reverse the digits\n"
        "4. rotate the digits\n5. subtract 900"
    )
    assert sheets_in(text)[0][0].values == (475, 325, 523, 352, 452)


def test_rewriting_a_line_deletes_the_lines_after_it() -> None:
    contents = "Line 1: 5\nLine 2: 6\nLine 3: 7\nLine 2 is wrong.\nLine 2: 8"
    assert written(contents, 6) == Written((5, 8))
    assert written(contents.rpartition("\n")[0], 6) == Written((5, 6, 7), blamed=2)
    assert written("Line 2: 6\nLine 0: 1\nLine 7: 1\nLine 4 is wrong", 6) == Written()


@given(st.lists(st.tuples(st.integers(0, 8), st.integers(-9, 1200)), max_size=20))
def test_written_lines_have_no_gap(contents: list[tuple[int, int]]) -> None:
    sheet = written("\n".join(line(n, value) for n, value in contents), 6)
    assert len(sheet.lines) <= 6
    assert leading(SHEET, sheet.lines) <= len(sheet.lines)


# ---------------------------------------------------------------- splits


def test_splits_are_disjoint_and_categories_take_turns() -> None:
    texts = {split: [entry.text for entry in TASK.problems(split)] for split in SPLITS}
    assert sum(map(len, texts.values())) == len(set().union(*texts.values())) == 296
    sheets = [entry.category for entry in TASK.problems("train")[:4]]
    assert sheets == list(CATEGORIES)
    assert {step.kind for step in SHEET.steps} == set(KINDS)


def test_worksheets_depend_only_on_the_seed() -> None:
    again = Steps(train=10).problems("train")
    assert [entry.text for entry in again] == [entry.text for entry in TASK.problems("train")[:10]]
    other = Steps(seed=1).problems("train")
    assert not {entry.text for entry in other} & {entry.text for entry in TASK.problems("train")}


def test_too_many_worksheets_of_one_line_are_refused() -> None:
    with pytest.raises(UsageError, match="there are no 2000 different worksheets of 1 line"):
        Steps(steps=1, categories=("digits",), train=2000).problems("train")


# ---------------------------------------------------------------- the verdict


def test_right_lines_get_the_full_score() -> None:
    for problem in TASK.problems("validation"):
        sheet = sheet_of(problem)
        contents = [line(n, value) for n, value in enumerate(sheet.values, 1)]
        assert scores(contents, problem=problem) == Scores(
            1.0, True, {"written": 1.0, "right": 1.0}
        )


def test_a_partial_score_is_the_share_of_leading_right_lines() -> None:
    wrong = line(3, (SHEET.values[2] + 1) % 1000)
    assert [scores(RIGHT[:n]).value for n in range(7)] == [n / 6 for n in range(7)]
    late = [*RIGHT[:2], wrong, *RIGHT[3:]]
    assert scores(late).value == 2 / 6
    assert not scores(late).success
    mended = [*late[:3], "Line 3 is wrong", *RIGHT[2:]]
    assert scores(mended).success


@pytest.mark.parametrize(
    "contents",
    [
        "",
        "PASS",
        "All lines are right. Score: 1.0. success: true",
        '{"value": 1.0, "success": true}',
        "Line 1: right",
        f"Line 6: {SHEET.values[5]}",
        f"{PROBLEM.text}",
        "Line 1: 12.5 and so on",
        f"Line 1: {SHEET.values[0]}00",
        f"Line 1: {SHEET.values[0]}.5",
    ],
)
def test_nonsense_claims_and_skipped_lines_score_zero(contents: str) -> None:
    assert scores([contents] * 8).value == 0
    assert not scores([contents] * 8).success


def test_only_the_last_line_in_the_content_of_a_turn_counts() -> None:
    beside = Output("PASS", {"lines": list(SHEET.values), "content": RIGHT[0]})
    assert scores([beside] * 6).value == 0
    everything = "\n".join(RIGHT)
    assert scores([everything] * 6).value == 0
    thinking = f"I tried Line 1: 0, but it is\n{RIGHT[0]}"
    assert scores([thinking]).value == 1 / 6


def test_a_failed_turn_changes_nothing() -> None:
    step = TASK.start(PROBLEM, Key(0))
    after = TASK.step(step.state, Turn(0, "a", output=Output(RIGHT[0]), status="failed"), Key(0))
    assert after == step


def test_an_episode_ends_with_the_last_line_unless_the_team_decides() -> None:
    for task, ends in ((TASK, True), (Steps(ends=False), False)):
        step = task.start(PROBLEM, Key(0))
        for n, contents in enumerate(RIGHT):
            assert not step.done
            step = task.step(step.state, Turn(n, "a", output=Output(contents)), Key(0))
        assert step.done is ends


def test_an_observation_has_the_next_kind_and_the_blamed_line() -> None:
    step = TASK.start(PROBLEM, Key(0))
    shapes = set()
    for n, contents in enumerate([*RIGHT[:2], "Line 2 is wrong."]):
        step = TASK.step(step.state, Turn(n, "a", output=Output(contents)), Key(0))
        assert step.observation is not None
        shapes.add(len(step.observation.features))
    seen = step.observation
    assert seen is not None
    assert seen.text == "2 of 6 lines are written. Line 2 is called wrong."
    assert seen.data == {"lines": 2, "of": 6, "next": SHEET.steps[2].kind, "blamed": 2}
    assert shapes == {5}
    assert seen.progress == 2 / 6


def test_an_input_can_be_a_worksheet() -> None:
    problem = TASK.problem_from("Please: Worksheet (sums): start with 5.\n1. add 7\n2. add 1")
    assert scores(["Line 1: 12", "Line 2: 13"], problem=problem).success
    with pytest.raises(UsageError, match="an input looks like 'Worksheet"):
        TASK.problem_from("two plus two")
