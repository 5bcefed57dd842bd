"""Exact match and F1."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from orchestrion_search.answers import exact, f1, normal


@pytest.mark.parametrize(
    ("given", "wanted", "match", "overlap"),
    [
        ("Stephen King", "Stephen King", True, 1.0),
        ("the  stephen king.", "Stephen King", True, 1.0),
        ("King", "Stephen King", False, 2 / 3),
        ("Stephen King of Maine", "Stephen King", False, 2 * 2 / 6),
        ("King King", "Stephen King", False, 0.5),
        ("", "Stephen King", False, 0.0),
        ("PASS", "Stephen King", False, 0.0),
        ("no", "no way", False, 0.0),
        ("yes", "no", False, 0.0),
        ("Yes.", "yes", True, 1.0),
        ("A", "a", True, 1.0),
        ("A", "The", False, 0.0),
        ("...", "!!!", False, 0.0),
    ],
)
def test_an_answer_is_compared_as_squad_does(
    given: str, wanted: str, match: bool, overlap: float
) -> None:
    assert exact(given, [wanted]) is match
    assert f1(given, [wanted]) == pytest.approx(overlap)


def test_the_best_of_several_right_answers_counts() -> None:
    assert exact("UK", ["United Kingdom", "UK"])
    assert f1("United Kingdom", ["UK", "the United Kingdom"]) == 1
    assert not exact("UK", [])
    assert f1("UK", []) == 0


@given(st.text(max_size=40), st.text(max_size=40))
def test_exact_answers_overlap_completely(given: str, wanted: str) -> None:
    assert 0 <= f1(given, [wanted]) <= 1
    if exact(given, [wanted]):
        assert f1(given, [wanted]) == pytest.approx(1)
    assert normal(normal(given)) == normal(given)
    assert f1(given, [wanted]) == pytest.approx(f1(wanted, [given]))
