"""A judge's answer is what was asked for, or nothing."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from orchestrion_judge.rubric import Criterion, Rubric, Scale
from orchestrion_judge.verdict import UnusableError, parse_verdict

RUBRIC = Rubric(
    (Criterion("truth", "x", 1, Scale(1, 5)), Criterion("style", "x", 1, Scale(0, 1, 0)))
)
MARK = "0123456789abcdef"


def answer(scores: Any, mark: Any = MARK, **more: Any) -> str:
    return json.dumps({"mark": mark, "reason": "because", "scores": scores, **more})


@given(st.integers(1, 5), st.floats(0, 1))
def test_what_was_asked_for_is_read_exactly(truth: int, style: float) -> None:
    text = answer({"truth": truth, "style": style})
    assert parse_verdict(f"\n {text}\n", RUBRIC, MARK) == {"truth": truth, "style": style}


GOOD = {"truth": 4, "style": 0.5}


@pytest.mark.parametrize("text", ["```json\n%s\n```", "Here it is: %s\nDone."])
def test_what_stands_around_the_object_does_no_harm(text: str) -> None:
    assert parse_verdict(text % answer(GOOD), RUBRIC, MARK) == GOOD


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "not JSON"),
        ("4", "not a JSON object"),
        ("[4, 0.5]", "not a JSON object"),
        ("truth: 4, style: 0.5", "not JSON"),
        (f"{answer(GOOD)} {answer(GOOD)}", "not JSON"),
        (answer(GOOD)[:-1], "not JSON"),
        (answer({"truth": 4}), "scores lacks style"),
        (answer({}), "scores lacks truth, style"),
        (answer({**GOOD, "extra": 5}), "not asked for"),
        (answer(GOOD, extra=1), "not asked for"),
        (answer([4, 0.5]), "scores is not an object"),
        (json.dumps({"mark": MARK, "scores": GOOD}), "lacks reason"),
        (json.dumps({"mark": MARK, "reason": 7, "scores": GOOD}), "reason is not text"),
        (answer(GOOD, mark="fedcba9876543210"), "the mark"),
        (answer(GOOD, mark=None), "the mark"),
        (answer({**GOOD, "truth": 6}), "truth is 6"),
        (answer({**GOOD, "truth": 0}), "truth is 0"),
        (answer({**GOOD, "truth": 4.5}), "truth is 4.5"),
        (answer({**GOOD, "truth": "4"}), 'truth is "4"'),
        (answer({**GOOD, "truth": "8.5/10"}), "truth is"),
        (answer({**GOOD, "truth": True}), "truth is true"),
        (answer({**GOOD, "truth": None}), "truth is null"),
        (answer({**GOOD, "truth": [4]}), "truth is"),
        (answer({**GOOD, "style": 1.0001}), "style is 1.0001"),
        (answer({**GOOD, "style": float("nan")}), "NaN is not a number"),
        (answer({**GOOD, "style": float("inf")}), "Infinity is not a number"),
        (answer({**GOOD, "style": 1}).replace("1}", "1e999}"), "1e999 is too large"),
        (answer(GOOD).replace('"truth": 4', '"truth": 1, "truth": 5'), "twice"),
        ("[" * 100_001, "it has 100001 characters"),
        ("[" * 100_000, "not JSON"),
        ("[" * 50_000, "not JSON"),
        ("9" * 5000, "not JSON"),
        (answer({**GOOD, "truth": 10**400}), "truth is"),
    ],
)
def test_everything_else_is_no_verdict(text: str, reason: str) -> None:
    with pytest.raises(UnusableError, match=reason):
        parse_verdict(text, RUBRIC, MARK)


@given(st.text() | st.text(alphabet='{}[]",:0123456789 truhsyle\\'))
def test_no_text_makes_the_parser_fail_in_another_way(text: str) -> None:
    with pytest.raises(UnusableError):
        parse_verdict(text, RUBRIC, MARK)


OF_TEN = Rubric((Criterion("mark", "x", 1, Scale(0, 10, 0.5, "fraction")),))


@pytest.mark.parametrize(("text", "score"), [("8.5/10", 8.5), ("10 / 10", 10), ("0/10.0", 0)])
def test_fractions_are_read_where_the_scale_says_so(text: str, score: float) -> None:
    assert parse_verdict(answer({"mark": text}), OF_TEN, MARK) == {"mark": score}


@pytest.mark.parametrize(
    "given", ["8.5", 8.5, "8.5/5", "85/100", "11/10", "-1/10", "8.25/10", "8.5/10!", "8,5/10", "/"]
)
def test_a_fraction_of_something_else_is_no_score(given: object) -> None:
    with pytest.raises(UnusableError, match="mark is"):
        parse_verdict(answer({"mark": given}), OF_TEN, MARK)
