"""Tables from files: what is recognised, and what is said where something is wrong."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from orchestrion_recorded.columns import Columns
from orchestrion_recorded.reading import models_of, read_prices, read_table
from orchestrion_recorded.table import RecordedAnswer

from orchestrion import UsageError

GOOD = """\
question_id,category,n_options,answer,small,large
1,law,4,A,A,-
2,law,4,B,?,C
3,maths,,C,,C
"""


def written(folder: Path, text: str, name: str = "table.csv") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_usual_column_names_are_recognised_and_the_rest_are_models(tmp_path: Path) -> None:
    found = read_table(written(tmp_path, GOOD))
    assert found.models == ("small", "large")
    first, second, third = found.rows
    assert (first.id, first.group, first.right, first.options) == ("1", "law", "A", 4)
    assert first.answers == {"small": RecordedAnswer("A"), "large": RecordedAnswer(None)}
    assert set(second.answers) == {"large"}, "? means that nothing is recorded"
    assert set(third.answers) == {"large"}, "so does an empty field"
    assert third.options == 0
    assert [row.line for row in found.rows] == [2, 3, 4]


def test_columns_can_be_named(tmp_path: Path) -> None:
    text = "nr,kind,wanted,notes,m\nx,k,A,some words,B\n"
    columns = Columns(question="nr", group="kind", right="wanted", models=["m"])
    found = read_table(written(tmp_path, text), columns)
    assert found.models == ("m",)
    assert found.rows[0].group == "k"


def test_prices_tokens_and_latency_belong_to_the_model_they_are_named_after(
    tmp_path: Path,
) -> None:
    text = (
        "id,right,m,m_price,m_tokens,m_input_tokens,m_latency,m2,m2 cost\n"
        "q,A,A,0.5,20,300,1.5,B,0.25\n"
    )
    [row] = read_table(written(tmp_path, text)).rows
    assert row.answers == {
        "m": RecordedAnswer("A", 0.5, 300, 20, 1.5),
        "m2": RecordedAnswer("B", 0.25),
    }


def test_gzip_and_plain_files_are_read_alike(tmp_path: Path) -> None:
    path = tmp_path / "table.csv.gz"
    path.write_bytes(gzip.compress(GOOD.encode()))
    plain = read_table(written(tmp_path, GOOD))
    assert read_table(path).rows == plain.rows
    assert models_of(path) == plain.models


def test_json_lines_may_be_flat_or_nested(tmp_path: Path) -> None:
    flat = {"id": 1, "group": "g", "right": "A", "m": "A", "n": None, "m_price": 2}
    nested = {
        "id": 2,
        "group": "g",
        "right": "7",
        "answers": {"m": {"answer": 7, "price": 3, "tokens": 5, "correct": True}, "n": "-"},
    }
    path = written(tmp_path, f"{json.dumps(flat)}\n\n{json.dumps(nested)}\n", "table.jsonl")
    found = read_table(path)
    assert found.models == models_of(path) == ("m", "n")
    assert found.rows[0].answers == {"m": RecordedAnswer("A", 2.0)}
    assert found.rows[1].answers == {"m": RecordedAnswer("7", 3.0, 0, 5), "n": RecordedAnswer(None)}
    assert found.rows[1].line == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "1: the file is empty"),
        ("\n\n", "1: the file is empty"),
        ("id,right\nq,A\n", "1: no column of answers is left"),
        ("id,m\nq,A\n", "2: 'm' is 'A'; a table without a column of right answers has scores"),
        ("id,m\nq,1.5\n", "2: 'm' is '1.5'"),
        ("right,m\nA,A\n", "1: no column is called question_id"),
        ("id,right,m,m\nq,A,A,B\n", "1: column 'm' occurs more than once"),
        ("id,right,m\n", "1: the table has no questions"),
        ("id,right,m\nq,A\n", "2: 2 fields; the header has 3"),
        ("id,right,m\nq,A,B\nr,-,B\n", "3: the right answer ('right') is '-'"),
        ("id,right,m\nq,A,B\n,A,B\n", "3: the question has no id"),
        ("id,right,m\nq,A,B\nr,A,B\nq,A,B\n", "4: question 'q' is there already, in line 2"),
        ("id,right,n_options,m\nq,A,one,B\n", "2: 'n_options' is 'one'"),
        ("id,right,n_options,m\nq,A,1,B\n", "2: 'n_options' is '1'"),
        ("id,right,m,m_price\nq,A,B,cheap\n", "2: 'm_price' is 'cheap'"),
        ("id,right,m,m_price\nq,A,B,-1\n", "2: 'm_price' is '-1'"),
        ("id,right,m,m_price\nq,A,B,nan\n", "2: 'm_price' is 'nan'"),
        ("id,right,m,m_price\nq,A,B,\n", "2: 'm' has an answer but no price"),
        ('id,right,m\nq,A,"B\n', "is not CSV"),
        ('{"id": 1, "right": "A", "m": "A"}\n{"id": 2\n', "2: is not JSON"),
        ('{"id": 1, "right": "A", "m": "A"}\n[1]\n', "2: expected an object, got list"),
        (
            '{"id": 1, "right": "A", "answers": {"right": "B"}}',
            "1: 'right' is a model and a column",
        ),
        (
            '{"id": 1, "right": "A", "answers": {"m": {"text": "A"}}}',
            "1: of 'm' there is 'text', and none of",
        ),
    ],
)
def test_a_malformed_table_is_refused_with_its_line(
    tmp_path: Path, text: str, message: str
) -> None:
    path = written(tmp_path, text, "table.jsonl" if text.startswith("{") else "table.csv")
    with pytest.raises(UsageError) as caught:
        read_table(path)
    assert message in str(caught.value)
    assert f"{path}:" in str(caught.value)


def test_several_problems_are_reported_at_once_and_not_all_of_many(tmp_path: Path) -> None:
    bad = "".join(f"q{i},-,A\n" for i in range(9))
    with pytest.raises(UsageError) as caught:
        read_table(written(tmp_path, "id,right,m\n" + bad))
    assert ":2:" in str(caught.value)
    assert ":6:" in str(caught.value)
    assert "4 more problems" in str(caught.value)


def test_a_wrong_column_name_gets_the_nearest_one(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="did you mean 'category'"):
        read_table(written(tmp_path, GOOD), Columns(group="categori"))


@pytest.mark.parametrize("name", ["none.csv", "none.csv.gz", "none.jsonl"])
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match=r"none.*cannot be read"):
        read_table(tmp_path / name)


def test_a_truncated_gzip_file_and_other_bytes_are_refused(tmp_path: Path) -> None:
    whole = gzip.compress(GOOD.encode() * 50)
    path = tmp_path / "table.csv.gz"
    for broken in (whole[: len(whole) // 2], b"no gzip at all"):
        path.write_bytes(broken)
        with pytest.raises(UsageError, match="gzip"):
            read_table(path)
    latin = tmp_path / "latin.csv"
    latin.write_bytes("id,right,m\nq,\xe4,\xe4\n".encode("latin-1"))
    with pytest.raises(UsageError, match="UTF-8"):
        read_table(latin)


def test_prices_need_every_model_once_and_may_name_others(tmp_path: Path) -> None:
    good = written(tmp_path, "model,price\nsmall,1\nlarge,4.5\nother,9\n", "prices.csv")
    assert read_prices(good, ("large", "small")) == {"large": 4.5, "small": 1.0}
    for text, says in (
        ("model,price\nsmall,1\n", ":1: no price for 'large'"),
        ("model,price\nsmall,1\nsmall,2\nlarge,1\n", ":3: a second price for 'small'"),
        ("model,price\nsmall,free\nlarge,1\n", ":2: 'price' is 'free'"),
        ("model,size,note\nsmall,1,x\n", ":1: expected two columns"),
    ):
        with pytest.raises(UsageError) as caught:
            read_prices(written(tmp_path, text, "prices.csv"), ("small", "large"))
        assert says in str(caught.value)


def test_a_table_without_right_answers_has_scores(
    tmp_path: Path,
) -> None:
    lines = [
        {"id": 1, "group": "law", "question": "Why?", "scores": {"llama-3.1-8b": 0.25, "b": 1}},
        {"id": 2, "group": "art", "question": "Who?", "scores": {"llama-3.1-8b": 0}},
    ]
    table = read_table(written(tmp_path, "\n".join(map(json.dumps, lines)), "scores.jsonl"))
    assert table.scored
    assert table.models == ("llama-3.1-8b", "b")
    assert [{m: told.score for m, told in row.answers.items()} for row in table.rows] == [
        {"llama-3.1-8b": 0.25, "b": 1.0},
        {"llama-3.1-8b": 0.0},
    ]
    assert [row.text for row in table.rows] == ["Why?", "Who?"]


def test_answers_that_are_lists_are_compared_by_what_is_in_them(tmp_path: Path) -> None:
    answers = {"good": ["A", "B"], "bad": ["A", "C"]}
    record = {"id": 1, "right": ["A", "B"], "answers": answers}
    [row] = read_table(written(tmp_path, json.dumps(record), "t.jsonl")).rows
    assert row.answers["good"].answer == row.right != row.answers["bad"].answer


def test_a_score_may_stand_beside_its_price(tmp_path: Path) -> None:
    record = {"id": 1, "scores": {"m": {"score": 0.5, "price": 0.1}}}
    [row] = read_table(written(tmp_path, json.dumps(record), "t.jsonl")).rows
    assert (row.answers["m"].score, row.answers["m"].price) == (0.5, 0.1)
