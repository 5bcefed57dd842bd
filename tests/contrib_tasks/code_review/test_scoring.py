"""Scores from 0 to 10, worked by hand, and what holds for all of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from orchestrion_code_review.challenge import Reference
from orchestrion_code_review.scoring import (
    VersionVerdict,
    Weights,
    corrected,
    efficiency,
    scores,
)

from orchestrion import Scores, Usage

WEIGHTS = Weights(0.4, 0.4, 0.2, 0.4)
REFERENCE = Reference(turns=2, tokens=100, usd=0.01)
PASSED = VersionVerdict(True, 1.0, 1.0)
FAILED = VersionVerdict()
HALF = VersionVerdict(False, 0.5, 0.5)
TIDY = {"ruff": 1.0, "complexity": 1.0, "types": 1.0}


def of(
    *versions: VersionVerdict,
    static: dict[str, float] | None = None,
    turns: int = 2,
    agents: str = "ab",
) -> Scores:
    """The scores of an episode of these versions, by the writer and then by others."""
    pairs = [(agents[min(i, len(agents) - 1)], judged) for i, judged in enumerate(versions)]
    static = TIDY if static is None else static
    return scores(pairs, static, Usage(), turns, WEIGHTS, REFERENCE)


def test_a_first_version_that_passes_and_is_tidy_scores_ten() -> None:
    found = of(PASSED)
    assert found.value == 1
    assert found.success
    assert found.parts["quality"] == found.parts["efficiency"] == found.parts["score"] == 10
    assert (found.parts["collaboration"], found.parts["added"]) == (10, 0)


def test_a_team_that_mends_what_the_writer_could_not_scores_ten_too() -> None:
    found = of(HALF, PASSED)
    assert (found.parts["collaboration"], found.parts["score"]) == (10, 10)
    assert found.parts["added"] == 5


def test_what_the_writer_reached_alone_is_not_added() -> None:
    found = of(HALF, PASSED, agents="a")
    assert found.parts["added"] == 0


def test_what_a_team_loses_of_its_best_version_costs_collaboration() -> None:
    found = of(VersionVerdict(False, 0.8, 0.8), HALF)
    assert found.parts["quality"] == pytest.approx(0.5 * 6)
    assert found.parts["collaboration"] == pytest.approx(0.5 * 6 * 0.5 / 0.8)
    assert found.parts["efficiency"] == pytest.approx(5)
    # (0.4 x 3 + 0.4 x 1.875 + 0.2 x 5) times what failing leaves, 0.6 x 0.8
    assert found.parts["score"] == pytest.approx(2.95 * 0.48)
    assert of(HALF, FAILED).value == 0


def test_static_measures_count_only_for_what_passes() -> None:
    untidy = of(PASSED, static=dict.fromkeys(TIDY, 0.0))
    assert untidy.parts["quality"] == pytest.approx(6)
    tidy_failure = of(HALF, static=TIDY)
    assert tidy_failure.parts["quality"] == pytest.approx(3)


def test_efficiency_compares_with_the_reference() -> None:
    assert efficiency(2, Usage(input_tokens=60, output_tokens=40, usd=0.01), REFERENCE) == 1
    assert efficiency(4, Usage(), REFERENCE) == pytest.approx((0.5 + 1 + 1) / 3)
    assert efficiency(1, Usage(input_tokens=400, usd=0.1), REFERENCE) == pytest.approx(1.35 / 3)


def test_doing_nothing_is_not_efficient() -> None:
    found = of(FAILED, static={}, turns=0)
    assert found.value == found.parts["efficiency"] == 0


def test_a_share_is_corrected_for_what_a_constant_reaches() -> None:
    assert corrected(0.5, 0.5) == corrected(0.3, 0.5) == 0
    assert corrected(0.75, 0.5) == 0.5
    assert corrected(1.0, 0.5) == 1


SHARE = st.floats(0, 0.99).map(lambda share: VersionVerdict(False, share, share))
JUDGED = st.one_of(st.just(PASSED), SHARE)
VERSIONS = st.lists(st.tuples(st.sampled_from("abc"), JUDGED), min_size=1, max_size=5)
STATIC = st.fixed_dictionaries({name: st.floats(0, 1) for name in TIDY})
USAGE = st.builds(Usage, input_tokens=st.integers(0, 10**6), usd=st.floats(0, 10))
Episode = tuple[list[tuple[str, VersionVerdict]], dict[str, float], Usage, int]
EPISODES = st.tuples(VERSIONS, STATIC, USAGE, st.integers(1, 50))
WEIGHT = st.floats(0.01, 5)
ALL_WEIGHTS = st.builds(Weights, WEIGHT, WEIGHT, WEIGHT, st.floats(0, 0.9))


@given(one=EPISODES, other=EPISODES, weights=ALL_WEIGHTS)
def test_a_solution_that_fails_never_beats_one_that_passes(
    one: Episode, other: Episode, weights: Weights
) -> None:
    first, second = scores(*one, weights, REFERENCE), scores(*other, weights, REFERENCE)
    if first.success and not second.success:
        assert first.value > second.value - 1e-12
        assert first.parts["quality"] > second.parts["quality"]


@given(one=EPISODES, weights=ALL_WEIGHTS)
def test_every_score_is_in_bounds(one: Episode, weights: Weights) -> None:
    found = scores(*one, weights, REFERENCE)
    assert -1e-9 <= found.value <= 1 + 1e-9
    points = ("score", "quality", "collaboration", "efficiency")
    assert all(-1e-9 <= found.parts[name] <= 10 + 1e-9 for name in points)
    assert found.success == one[0][-1][1].passed


@given(
    before=VERSIONS,
    more=st.lists(st.tuples(st.integers(0, 5), st.sampled_from("abcd"), JUDGED), max_size=4),
    static=STATIC,
    usage=USAGE,
    took=USAGE,
    silent=st.integers(0, 3),
    weights=ALL_WEIGHTS,
)
def test_no_turn_that_is_added_raises_the_score_of_the_same_last_version(
    before: list[tuple[str, VersionVerdict]],
    more: list[tuple[int, str, VersionVerdict]],
    static: dict[str, float],
    usage: Usage,
    took: Usage,
    silent: int,
    weights: Weights,
) -> None:
    after = list(before)
    for place, agent, judged in more:
        after.insert(min(place, len(after) - 1), (agent, judged))
    turns = len(before)
    old = scores(before, static, usage, turns, weights, REFERENCE)
    more_turns = turns + len(more) + silent
    new = scores(after, static, usage + took, more_turns, weights, REFERENCE)
    assert new.value <= old.value + 1e-12


@given(versions=VERSIONS, static=STATIC, weights=ALL_WEIGHTS)
def test_no_team_scores_more_than_whoever_writes_its_last_version_at_once(
    versions: list[tuple[str, VersionVerdict]], static: dict[str, float], weights: Weights
) -> None:
    team = scores(versions, static, Usage(), len(versions), weights, REFERENCE)
    alone = scores(versions[-1:], static, Usage(), 1, weights, REFERENCE)
    assert team.value <= alone.value + 1e-12
