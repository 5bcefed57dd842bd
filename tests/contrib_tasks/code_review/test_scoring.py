"""Scores from 0 to 10, worked by hand, and what holds for all of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from orchestrion_code_review.challenge import Reference
from orchestrion_code_review.scoring import (
    Judged,
    Measured,
    Weights,
    corrected,
    efficiency,
    scores,
)

from orchestrion import Usage

WEIGHTS = Weights(0.4, 0.4, 0.2, 0.4)
REFERENCE = Reference(turns=2, tokens=100, usd=0.01)
PASSED = Judged(True, 1.0, 1.0)
FAILED = Judged()
HALF = Judged(False, 0.5, 0.5)
TIDY = {"ruff": 1.0, "complexity": 1.0, "types": 1.0}


def measured(
    final: Judged,
    first: Judged,
    alone: Judged | None = None,
    static: dict[str, float] | None = None,
    turns: int = 2,
) -> Measured:
    tidy = TIDY if static is None else static
    return Measured(final, first, first if alone is None else alone, tidy, Usage(), turns)


def test_a_first_version_that_passes_and_is_tidy_scores_ten() -> None:
    found = scores(measured(PASSED, PASSED), WEIGHTS, REFERENCE)
    assert found.value == 1
    assert found.success
    assert found.parts["quality"] == found.parts["efficiency"] == found.parts["score"] == 10
    assert (found.parts["collaboration"], found.parts["collaboration_applies"]) == (0, 0)


def test_a_team_that_mends_what_the_writer_could_not_scores_ten_too() -> None:
    found = scores(measured(PASSED, HALF), WEIGHTS, REFERENCE)
    assert (found.parts["collaboration"], found.parts["score"]) == (10, 10)


def test_a_planted_defect_pays_nothing_whoever_mends_it() -> None:
    honest = scores(measured(PASSED, PASSED, turns=1), WEIGHTS, REFERENCE)
    by_others = scores(measured(PASSED, FAILED, turns=3), WEIGHTS, REFERENCE)
    by_itself = scores(measured(PASSED, FAILED, PASSED, turns=2), WEIGHTS, REFERENCE)
    assert honest.value >= by_others.value
    assert honest.value >= by_itself.value


def test_half_the_missing_tests_are_half_the_collaboration() -> None:
    found = scores(measured(Judged(False, 0.75, 0.75), HALF), WEIGHTS, REFERENCE)
    assert found.parts["collaboration"] == pytest.approx(5)
    assert found.parts["quality"] == pytest.approx(0.75 * 6)
    assert found.parts["efficiency"] == pytest.approx(7.5)
    # (0.4 x 4.5 + 0.4 x 5 + 0.2 x 7.5) times what failing leaves, 0.6 x 0.8
    assert found.parts["score"] == pytest.approx(5.3 * 0.48)


def test_what_others_break_is_no_collaboration() -> None:
    found = scores(measured(FAILED, HALF), WEIGHTS, REFERENCE)
    assert found.value == found.parts["collaboration"] == 0


def test_static_measures_count_only_for_what_passes() -> None:
    untidy = scores(measured(PASSED, PASSED, static=dict.fromkeys(TIDY, 0.0)), WEIGHTS, REFERENCE)
    assert untidy.parts["quality"] == pytest.approx(6)
    tidy_failure = scores(measured(HALF, HALF, static=TIDY), WEIGHTS, REFERENCE)
    assert tidy_failure.parts["quality"] == pytest.approx(3)


def test_efficiency_compares_with_the_reference() -> None:
    assert efficiency(2, Usage(input_tokens=60, output_tokens=40, usd=0.01), REFERENCE) == 1
    assert efficiency(4, Usage(), REFERENCE) == pytest.approx((0.5 + 1 + 1) / 3)
    assert efficiency(1, Usage(input_tokens=400, usd=0.1), REFERENCE) == pytest.approx(1.35 / 3)


def test_doing_nothing_is_not_efficient() -> None:
    found = scores(measured(FAILED, FAILED, static={}, turns=0), WEIGHTS, REFERENCE)
    assert found.value == found.parts["efficiency"] == 0


def test_a_share_is_corrected_for_what_a_constant_reaches() -> None:
    assert corrected(0.5, 0.5) == corrected(0.3, 0.5) == 0
    assert corrected(0.75, 0.5) == 0.5
    assert corrected(1.0, 0.5) == 1


SHARE = st.floats(0, 0.99).map(lambda share: Judged(False, share, share))
JUDGED = st.one_of(st.just(PASSED), SHARE)
MEASURED = st.builds(
    Measured,
    JUDGED,
    JUDGED,
    JUDGED,
    st.fixed_dictionaries({name: st.floats(0, 1) for name in TIDY}),
    st.builds(Usage, input_tokens=st.integers(0, 10**6), usd=st.floats(0, 10)),
    st.integers(1, 50),
)
WEIGHT = st.floats(0.01, 5)
ALL_WEIGHTS = st.builds(Weights, WEIGHT, WEIGHT, WEIGHT, st.floats(0, 0.9))


@given(one=MEASURED, other=MEASURED, weights=ALL_WEIGHTS)
def test_a_solution_that_fails_never_beats_one_that_passes(
    one: Measured, other: Measured, weights: Weights
) -> None:
    first, second = scores(one, weights, REFERENCE), scores(other, weights, REFERENCE)
    if first.success and not second.success:
        assert first.value > second.value - 1e-12
        assert first.parts["quality"] > second.parts["quality"]


@given(one=MEASURED, weights=ALL_WEIGHTS)
def test_every_score_is_in_bounds(one: Measured, weights: Weights) -> None:
    found = scores(one, weights, REFERENCE)
    assert -1e-9 <= found.value <= 1 + 1e-9
    points = ("score", "quality", "collaboration", "efficiency")
    assert all(-1e-9 <= found.parts[name] <= 10 + 1e-9 for name in points)
    assert found.success == one.final.passed
