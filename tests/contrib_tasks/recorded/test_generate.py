"""Splits never overlap or move; generated tables are repeatable and have what they promise."""

from __future__ import annotations

from collections import Counter
from itertools import combinations

import pytest
from attrs import evolve
from orchestrion_recorded.generate import Generated, generate
from orchestrion_recorded.recording import Recording
from orchestrion_recorded.task import RecordedTask

from orchestrion import SplitShares, UsageError
from tests.contrib_tasks.recorded.support import row, table

SMALL = Generated(questions=300, models=4, groups=3)


def test_splits_are_disjoint_and_complete() -> None:
    settings = RecordedTask(generated=SMALL)
    task = Recording(settings, settings.read())
    parts = [{p.id for p in task.problems(s)} for s in ("train", "validation", "test")]
    assert not any(a & b for a, b in combinations(parts, 2))
    assert set.union(*parts) == {row.id for row in task.table.rows}
    assert [round(len(part) / 300, 1) for part in parts] == [0.6, 0.1, 0.3]


def test_a_question_keeps_its_split_whatever_else_is_in_the_table() -> None:
    whole = generate(SMALL)
    half = whole.only(row.id for row in whole.rows[::2])
    first, second = (Recording(RecordedTask(), one) for one in (whole, half))
    assert all(first.splits[name] == split for name, split in second.splits.items())


def test_without_training_questions_there_is_nothing_to_learn_from() -> None:
    one = table(row("q", "A", ("A", "A", "A")))
    with pytest.raises(UsageError, match=r"none of its 1 questions is for training"):
        Recording(RecordedTask(split=SplitShares(0.0, 0.0, 1.0)), one)


def test_a_table_does_not_change_under_a_newer_version() -> None:
    told = [
        "".join(one.answer or "-" for one in row.answers.values()) + row.right
        for row in generate(Generated(questions=4, models=4, groups=2)).rows
    ]
    assert told == ["ADCEE", "HGBHH", "HEEEE", "GBGGG"]
    assert generate(SMALL).rows != generate(evolve(SMALL, seed=1)).rows
    [row] = generate(Generated(questions=1, models=2, texts=True)).rows
    assert row.text.split()[:5] == ["word98", "word39", "hard2", "hard3", "word110"]


def test_skill_costs_and_mistakes_come_together() -> None:
    made = generate(evolve(SMALL, questions=2000, none=0.0))
    right = [[row.answers[m].answer == row.right for m in made.models] for row in made.rows]
    accuracy = [sum(column) / 2000 for column in zip(*right, strict=True)]
    assert accuracy == sorted(accuracy)
    assert [made.prices[m] for m in made.models] == sorted(made.prices.values())
    both = sum(not r[0] and not r[1] for r in right) / 2000
    assert both > (1 - accuracy[0]) * (1 - accuracy[1]) + 0.02, "difficulty is shared"


def test_wrong_answers_gather_at_a_popular_one() -> None:
    def coincide(popular: float) -> float:
        made = generate(evolve(SMALL, questions=1000, popular=popular, spread=0.0))
        pairs = Counter(
            row.answers["m1"].answer == row.answers["m2"].answer
            for row in made.rows
            if row.right not in (row.answers["m1"].answer, row.answers["m2"].answer)
        )
        return pairs[True] / pairs.total()

    assert coincide(0.6) > coincide(0.0) + 0.2


def test_missing_records_and_silence_are_as_frequent_as_set() -> None:
    made = generate(evolve(SMALL, questions=2000, none=0.1, missing=0.3))
    cells = [one for row in made.rows for one in row.answers.values()]
    assert len(cells) / 8000 == pytest.approx(0.7, abs=0.03)
    assert sum(one.answer is None for one in cells) / len(cells) == pytest.approx(0.1, abs=0.02)
