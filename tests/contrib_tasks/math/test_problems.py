"""Problems from files: both public forms are read, and mistakes are named with their line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from orchestrion_math.problems import load
from orchestrion_math.task import Math

from orchestrion import SplitShares, UsageError

GSM8K = {
    "question": "A robe takes 2 bolts of blue fiber and half that much white. How many in total?",
    "answer": "It takes 2/2=<<2/2=1>>1 bolt of white fiber\nSo 2+1=<<2+1=3>>3 bolts\n#### 1,003",
}
MATH = {
    "problem": "What is $\\frac{1}{2}+\\frac{1}{2}$ of $x$?",
    "solution": "First \\boxed{wrong}, then $\\boxed{\\frac{2}{2}x}$.",
    "subject": "Algebra",
    "level": 2,
    "unique_id": "test/algebra/1.json",
}


def lines(path: Path, *rows: object) -> Path:
    path.write_text(
        "".join(one if isinstance(one, str) else json.dumps(one) + "\n" for one in rows)
    )
    return path


def test_gsm8k_is_read(tmp_path: Path) -> None:
    [problem] = load(lines(tmp_path / "gsm.jsonl", GSM8K))
    assert problem.text == GSM8K["question"]
    assert problem.hidden == {"answer": "1,003"}


def test_math_is_read_with_or_without_an_answer_of_its_own(tmp_path: Path) -> None:
    other = {**MATH, "problem": "And this?", "answer": "\\pi", "unique_id": "b"}
    first, second = load(lines(tmp_path / "math.jsonl", MATH, other))
    assert first.hidden == {"answer": "\\frac{2}{2}x"}, "the last box counts"
    assert (first.id, first.category, first.data) == (
        "test/algebra/1.json",
        "Algebra",
        {"level": 2},
    )
    assert second.hidden == {"answer": "\\pi"}


def test_a_folder_with_a_problem_a_file_is_read(tmp_path: Path) -> None:
    row = {"problem": "p", "level": "Level 5", "type": "Geometry", "solution": "\\boxed{9}"}
    (tmp_path / "geometry").mkdir()
    (tmp_path / "geometry" / "7.json").write_text(json.dumps(row, indent=1))
    [problem] = load(tmp_path)
    assert (problem.id, problem.category) == ("geometry/7", "Geometry")


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("{not json\n", "is not JSON"),
        ("[1]\n", "is a list; want an object"),
        ({"text": "?"}, "has neither"),
        ({"question": "?", "answer": "18"}, "no last line"),
        ({"question": "", "answer": "#### 1"}, '"question" is missing'),
        ({"problem": "?", "solution": "it is 5"}, "no \\boxed"),
        ({"problem": "?", "answer": [1]}, '"answer" is [1]; want text or a number'),
        ({"problem": "?", "answer": {}}, '"answer" is {}; want'),
        ({"problem": "?", "answer": True}, '"answer" is True; want'),
        ({"problem": "?", "answer": float("nan")}, '"answer" is nan; want'),
        ({**GSM8K, "answer": "#### 7"}, "p.jsonl:1, with the same question"),
        ({"problem": "\ud800", "answer": "1"}, "surrogates not allowed"),
        ("[" * 100_000 + "\n", "is not JSON: maximum recursion depth"),
    ],
)
def test_a_mistake_is_named_with_its_line(tmp_path: Path, row: object, said: str) -> None:
    path = lines(tmp_path / "p.jsonl", GSM8K, "\n", row)
    with pytest.raises(UsageError) as caught:
        load(path)
    assert f"{path}:3: " in str(caught.value)
    assert said in str(caught.value)


def test_a_file_that_is_not_there_or_has_no_problem_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"none\.jsonl: cannot be read"):
        load(tmp_path / "none.jsonl")
    with pytest.raises(UsageError, match="no problem in it; want"):
        load(tmp_path)


def test_files_are_divided_and_a_test_file_keeps_its_problems_to_itself(tmp_path: Path) -> None:
    rows = [{**GSM8K, "question": f"Question {n}?"} for n in range(100)]
    source = lines(tmp_path / "train.jsonl", *rows)
    test = lines(tmp_path / "test.jsonl", *rows[:10])
    task = Math(source=source, test=test, split=SplitShares(train=0.8, validation=0.2, test=0.0))
    splits = {name: task.problems(name) for name in ("train", "validation", "test")}
    texts = [one.text for found in splits.values() for one in found]
    assert len(texts) == len(set(texts)) == 100
    assert {one.text for one in splits["test"]} == {f"Question {n}?" for n in range(10)}
    assert len(splits["train"]) > len(splits["validation"]) > 0
    ids = [one.id for found in splits.values() for one in found]
    assert len(set(ids)) == 100
