"""Which candidates a beam keeps."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st
from orchestrion_beam.selection import Candidate, choose

numbers = st.one_of(st.none(), st.sampled_from([0.0, 0.25, 0.5, 0.5, 1.0]))
drawn = st.lists(st.tuples(numbers, st.integers(0, 3), st.integers(0, 2)), max_size=14)


def made(rows: list[tuple[float | None, int, int]]) -> list[Candidate]:
    # A parent belongs to one root, as it does in a tree.
    return [
        Candidate(value, bytes([i]), (root, parent), root)
        for i, (value, parent, root) in enumerate(rows)
    ]


@given(drawn, st.integers(1, 6), st.integers(1, 4), st.integers(1, 3))
def test_a_beam_is_full_diverse_and_has_the_best(
    rows: list[tuple[float | None, int, int]], width: int, parents: int, roots: int
) -> None:
    candidates = made(rows)
    kept = [candidates[i] for i in choose(candidates, width, parents, roots)]
    assert len(kept) == min(width, len(candidates))
    assert kept == sorted(kept, key=lambda one: one.rank)
    there = {one.root for one in candidates}
    assert len({one.root for one in kept}) >= min(roots, len(there), width)
    there_parents = {one.parent for one in candidates}
    assert len({one.parent for one in kept}) >= min(parents, len(there_parents), width)
    if candidates:
        assert kept[0] == min(candidates, key=lambda one: one.rank)


@given(drawn, st.integers(1, 6), st.integers(1, 4), st.integers(1, 3), st.randoms())
def test_the_order_of_arrival_changes_nothing(
    rows: list[tuple[float | None, int, int]],
    width: int,
    parents: int,
    roots: int,
    shuffle: Random,
) -> None:
    candidates = made(rows)
    arrived = candidates.copy()
    shuffle.shuffle(arrived)
    expected = [candidates[i] for i in choose(candidates, width, parents, roots)]
    assert [arrived[i] for i in choose(arrived, width, parents, roots)] == expected


@given(drawn, st.integers(1, 6))
def test_without_a_diversity_rule_the_best_are_kept(
    rows: list[tuple[float | None, int, int]], width: int
) -> None:
    candidates = made(rows)
    best = sorted(candidates, key=lambda one: one.rank)[:width]
    assert [candidates[i] for i in choose(candidates, width)] == best


def test_the_second_family_is_represented_by_its_best() -> None:
    candidates = [
        Candidate(0.9, b"a", "p", 0),
        Candidate(0.8, b"b", "p", 0),
        Candidate(0.1, b"c", "q", 1),
        Candidate(0.2, b"d", "q", 1),
    ]
    assert choose(candidates, 2, min_roots=2) == [0, 3]
    assert choose(candidates, 2, min_parents=2) == [0, 3]
    assert choose(candidates, 2) == [0, 1]


def test_what_cannot_be_valued_ranks_behind_what_is_worth_nothing() -> None:
    assert choose([Candidate(None, b"a"), Candidate(0.0, b"b")], 1) == [1]
