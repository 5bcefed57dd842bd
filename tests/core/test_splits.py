"""Problems are divided by their names: in asked shares, or so that none ever moves."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrion import SplitShares, split_of, splits_of


def test_a_problem_keeps_its_split_in_newer_versions() -> None:
    splits = [split_of(f"q{i}", SplitShares()) for i in range(8)]
    assert splits == ["test", "train", "train", "train"] * 2, "a newer version moved problems"


@given(st.text(), st.integers())
def test_a_split_with_a_share_of_zero_gets_nothing(name: str, seed: int) -> None:
    assert split_of(name, SplitShares(1.0, 0.0, 0.0, seed)) == "train"
    assert split_of(name, SplitShares(0.0, 0.0, 1.0, seed)) == "test"
    assert split_of(name, SplitShares(0.5, 0.0, 0.5, seed)) != "validation"


@given(st.sets(st.text(), min_size=1, max_size=60), st.integers(0, 10), st.integers(0, 10))
def test_splits_have_their_shares_to_within_one_problem(
    names: set[str], tenths: int, seed: int
) -> None:
    shares = SplitShares(tenths / 10, 0.0, 1 - tenths / 10, seed)
    splits = list(splits_of(names, shares).values())
    assert abs(splits.count("train") - len(names) * shares.train) <= 1
    assert splits.count("validation") == 0
    thirds = list(splits_of(names, SplitShares(0.6, 0.1, 0.3, seed)).values())
    assert abs(thirds.count("validation") - len(names) * 0.1) <= 1


def test_thirty_problems_are_divided_as_asked_whatever_their_order() -> None:
    names = [f"q{i}" for i in range(30)]
    shares = SplitShares(0.6, 0.0, 0.4)
    splits = splits_of(names, shares)
    assert list(splits.values()).count("train") == 18
    assert splits == splits_of(reversed(names), shares)
    twice = splits_of(names + names, shares)
    assert splits == twice, "a name that comes twice is in one split"


def test_another_seed_gives_another_division() -> None:
    names = [f"q{i}" for i in range(100)]
    first, second = ([split_of(n, SplitShares(seed=seed)) for n in names] for seed in (0, 1))
    assert first != second


def test_shares_must_add_up_to_one() -> None:
    with pytest.raises(ValueError, match=r"got 1 \+ 0.1 \+ 0.3 = 1\.4, expected 1; .* write all"):
        SplitShares(1.0)
