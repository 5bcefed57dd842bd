"""The division of problems into splits never changes, whatever else there is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrion import SplitShares, split_of


def test_a_problem_keeps_its_split_in_newer_versions() -> None:
    splits = [split_of(f"q{i}", SplitShares()) for i in range(8)]
    assert splits == ["test", "train", "train", "train"] * 2, "a newer version moved problems"


@given(st.text(), st.integers())
def test_a_split_with_a_share_of_zero_gets_nothing(name: str, seed: int) -> None:
    assert split_of(name, SplitShares(1.0, 0.0, 0.0, seed)) == "train"
    assert split_of(name, SplitShares(0.0, 0.0, 1.0, seed)) == "test"
    assert split_of(name, SplitShares(0.5, 0.0, 0.5, seed)) != "validation"


def test_another_seed_gives_another_division() -> None:
    names = [f"q{i}" for i in range(100)]
    first, second = ([split_of(n, SplitShares(seed=seed)) for n in names] for seed in (0, 1))
    assert first != second


def test_shares_must_add_up_to_one() -> None:
    with pytest.raises(ValueError, match=r"got 1\.1, expected 1"):
        SplitShares(0.6, 0.2, 0.3)
