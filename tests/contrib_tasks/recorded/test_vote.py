"""The vote: what it is, ties, silence, and that the order of asking does not matter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from orchestrion_recorded.case import ballot, leader, tally
from orchestrion_recorded.table import same

from tests.contrib_tasks.recorded.support import winner

Vote = Literal["plurality", "weighted"]

ANSWERS = st.lists(
    st.tuples(st.sampled_from(["A", "b", "B", " a ", "C", "-"]), st.integers(1, 4)), max_size=7
)
VOTES = st.sampled_from(["plurality", "weighted"])


def elected(answers: Sequence[str | None], weights: Sequence[int], vote: Vote) -> str | None:
    """The compared form that leads after everybody was asked."""
    forms = sorted({same(one) for one in answers if one is not None})
    said = [-1 if one is None else forms.index(same(one)) for one in answers]
    votes = [ballot(weight, vote) for weight in weights]
    first = leader(tally(said, votes, range(len(said)), len(forms)))
    return forms[first] if first >= 0 else None


def split(drawn: list[tuple[str, int]]) -> tuple[list[str | None], list[int]]:
    return [None if a == "-" else a for a, _ in drawn], [w for _, w in drawn]


@given(ANSWERS, VOTES)
def test_it_is_what_its_definition_says(drawn: list[tuple[str, int]], vote: Vote) -> None:
    answers, weights = split(drawn)
    assert elected(answers, weights, vote) == winner(answers, weights, vote)


def test_ties_go_by_weight_then_number_then_text() -> None:
    assert elected(["B", "A"], [3, 2], "plurality") == "b"
    assert elected(["B", "A"], [2, 2], "plurality") == "a"
    assert elected(["B", "A", "A"], [2, 1, 1], "weighted") == "a", "two against one"
    assert elected(["B", "A"], [2, 2], "weighted") == "a"


@pytest.mark.parametrize("vote", ["plurality", "weighted"])
def test_the_answer_a_is_an_answer_and_case_and_spaces_are_not(vote: Vote) -> None:
    assert elected(["A", "a", "B"], [1, 1, 1], vote) == "a"
    assert elected(["two  words", "Two words ", "B"], [1, 1, 1], vote) == "two words"


@pytest.mark.parametrize("vote", ["plurality", "weighted"])
def test_a_thousand_voters_do_not_overflow_into_one_another(vote: Vote) -> None:
    heavy = 5 << 20
    assert elected(["B"] * 499 + ["A"] * 500, [heavy] * 999, vote) == "a"
    assert ballot(heavy, vote) * 1000 * 1024 < 2**63, "sums fit where arrays add them up"
