"""Reading outputs: which answer is meant, and when two are the same."""

from __future__ import annotations

from math import nan
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from orchestrion_ensemble.answers import (
    Normal,
    Reading,
    ballot_from,
    ballot_to,
    checked_probabilities,
)
from orchestrion_ensemble.interfaces import Ballot

from orchestrion import Output, Turn


def read(content: str = "", data: Any = None, **settings: Any) -> Ballot:
    """The ballot of one completed turn."""
    return Reading(**settings).ballot("v", Turn(0, "v", output=Output(content, data)))


# ------------------------------------------------------------------ normalising


@pytest.mark.parametrize(
    ("normalise", "one", "other"),
    [
        ("text", "Paris", "  paris.\n"),
        ("text", "The  Big Apple", '"the big apple"'),
        ("text", "A", "a)"),
        ("text", "**Yes!**", "(yes)."),
        ("number", "42", "42.0"),
        ("number", "1,234.50", "The total is 1234.5."),
        ("number", "$7", "so 3 + 4 = 7"),
        ("number", "-0", "0.00"),
        ("number", ".5", "0.5000000001"),
        ("number", "1e3", "1000"),
        ("choice", "B", "The answer is (b)."),
        ("choice", "(C)", "Answer: C"),
    ],
)
def test_these_are_the_same_answer(normalise: Normal, one: str, other: str) -> None:
    first, second = read(one, normalise=normalise), read(other, normalise=normalise)
    assert first.answer is not None
    assert first.answer == second.answer


@pytest.mark.parametrize(
    ("normalise", "one", "other"),
    [
        ("exact", "Paris", "paris"),
        ("text", "A", "The"),
        ("text", "+", "-"),
        ("text", ".5", "5"),
        ("text", "(0, 1)", "[0, 1]"),
        ("text", "f", "f()"),
        ("text", "x", "not x"),
        ("number", "4", "4.1"),
        ("number", "10", "-10"),
        ("number", "1" * 30, "1" * 29 + "2"),
        ("choice", "A", "B"),
    ],
)
def test_these_are_different_answers(normalise: Normal, one: str, other: str) -> None:
    first, second = read(one, normalise=normalise), read(other, normalise=normalise)
    assert first.answer is not None
    assert second.answer is not None
    assert first.answer != second.answer


def test_a_short_answer_is_never_dropped_as_an_article() -> None:
    assert [read(said).answer for said in ("A", "an", "The")] == ["a", "an", "the"]


def test_a_letter_inside_a_sentence_is_no_choice() -> None:
    choices = ("A", "B", "C")
    assert read("A dog is B", normalise="choice", choices=choices).status == "abstained"
    assert read("The answer is A dog", normalise="choice", choices=choices).status == "abstained"
    both = "The answer is A. No, the answer is B."
    assert read(both, normalise="choice", choices=choices).status == "abstained"


def test_numbers_are_grouped_by_a_rounded_value_not_by_distance() -> None:
    said = ["0.14", "0.16", "0.24"]
    assert [read(one, normalise="number", decimals=1).answer for one in said] == [
        "0.1",
        "0.2",
        "0.2",
    ]


@settings(max_examples=50)
@given(st.text(max_size=40))
def test_normalising_twice_is_normalising_once(text: str) -> None:
    reading = Reading()
    once = reading.normal(text)
    assert once is None or reading.normal(once) == once


@given(st.text(max_size=40), st.sampled_from(["exact", "text", "number", "choice"]))
def test_any_text_is_read_without_an_error(text: str, normalise: Normal) -> None:
    ballot = read(text, normalise=normalise)
    assert ballot.status in ("cast", "abstained")
    assert ballot.vote == ballot.answer


# ------------------------------------------------------------------ what outputs hold


@pytest.mark.parametrize(
    ("content", "data"),
    [("", None), ("  ", None), ("I think", {"answer": None}), ("I don't know.", None)],
)
def test_no_answer_is_an_abstention(content: str, data: Any) -> None:
    ballot = read(content, data, abstain=("I don't know",))
    assert ballot.status == "abstained"
    assert ballot.vote is None


def test_the_answer_in_the_data_comes_before_the_content() -> None:
    ballot = read("Long thoughts.", {"answer": "Yes", "confidence": 0.75})
    assert (ballot.answer, ballot.text, ballot.confidence) == ("yes", "Long thoughts.", 0.75)


def test_any_json_can_be_an_answer() -> None:
    assert read("", {"answer": {"b": 1, "a": 2}}, normalise="exact").answer == '{"a": 2, "b": 1}'
    assert read("", {"answer": True}).answer == "true"


def test_a_ranking_or_probabilities_imply_an_answer() -> None:
    assert read("", {"ranking": ["B", "A"]}).answer == "b"
    assert read("", {"probabilities": {"x": 0.7, "y": 0.3}}).answer == "x"
    even = read("", {"probabilities": {"x": 0.5, "y": 0.5}})
    assert (even.status, even.answer) == ("cast", None)
    assert even.probabilities == {"x": 0.5, "y": 0.5}


@pytest.mark.parametrize(
    "data",
    [
        {"probabilities": {"a": nan, "b": 1.0}},
        {"probabilities": {"a": -0.1, "b": 1.1}},
        {"probabilities": {"a": 0.5, "b": 0.4}},
        {"probabilities": {"A": 0.5, "a": 0.5}},
        {"probabilities": [0.5, 0.5]},
        {"probabilities": {"a": "much"}},
        {"ranking": "a > b"},
        {"ranking": ["a", "A."]},
        {"confidence": 1.5},
        {"confidence": nan},
        {"confidence": True},
    ],
)
def test_an_unreadable_output_is_an_invalid_ballot(data: Any) -> None:
    ballot = read("a", data)
    assert ballot.status == "invalid"
    assert ballot.error
    assert ballot.vote is None


def test_probabilities_are_renormalised_only_on_request() -> None:
    assert checked_probabilities({"a": 0.5, "b": 0.5 + 1e-7}) == {"a": 0.5, "b": 0.5 + 1e-7}
    with pytest.raises(ValueError, match=r"sum to 0\.9, not to 1"):
        checked_probabilities({"a": 0.5, "b": 0.4})
    assert checked_probabilities({"a": 3, "b": 1}, renormalise=True) == {"a": 0.75, "b": 0.25}
    with pytest.raises(ValueError, match="decimals: does nothing with `normalise: text`"):
        Reading(decimals=2)
    with pytest.raises(ValueError, match="choices: does nothing with `normalise: number`"):
        Reading(normalise="number", choices=("a",))
    with pytest.raises(ValueError, match="sum to 0"):
        checked_probabilities({"a": 0.0}, renormalise=True)


def test_a_failed_turn_is_a_ballot_with_its_reason() -> None:
    turn = Turn(0, "v", status="failed", error="it broke")
    assert Reading().ballot("v", turn) == Ballot("v", "failed", error="it broke")


@pytest.mark.parametrize(
    "ballot",
    [
        read("Yes!", {"confidence": 0.5, "ranking": ["yes", "no"]}),
        read("x", {"probabilities": {"x": 1.0}}),
        Ballot("v", "failed", error="e"),
        Ballot("v", "abstained"),
    ],
)
def test_a_ballot_survives_as_json(ballot: Ballot) -> None:
    assert ballot_from(ballot_to(ballot)) == ballot
