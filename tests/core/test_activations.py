"""Episodes folded into one graph of agents: its figures, and what trainers report of it."""

from __future__ import annotations

from itertools import pairwise, permutations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrion import Activations, Turn, fold, waves
from orchestrion._activations import Waves


def path(text: str) -> Waves:
    """One agent a decision."""
    return tuple((name,) for name in text)


def test_a_chain_has_no_cycle_and_one_edge_less_than_agents() -> None:
    found = fold([path("abcd")])
    assert found.compactness == 0.75
    assert found.cycles == (0, 0, 0, 0)
    assert found.cycle_length == 0  # type: ignore[unreachable]


def test_figures_are_means_over_episodes_and_steps_are_sums() -> None:
    found = fold([path("aba"), path("aba"), path("ab"), ()])
    assert found.episodes == 3
    assert found.turns == {"a": 5, "b": 3}
    assert found.edges == {("a", "b"): 3, ("b", "a"): 2}
    assert found.ends == {("start", "a"): 3, ("a", "end"): 2, ("b", "end"): 1}
    assert found.compactness == pytest.approx((1 + 1 + 0.5) / 3)
    assert found.cycles == pytest.approx((0.0, 2 / 3, 0.0, 0.0))
    assert found.cycle_length == 2


@pytest.mark.parametrize(
    ("acted", "cycles"),
    [
        ("aa", (1, 0, 0, 0)),
        ("ababab", (0, 1, 0, 0)),
        ("abca", (0, 0, 1, 0)),
        ("abcda", (0, 0, 0, 1)),
        ("abcaba", (0, 1, 1, 0)),
        ("abcdea", (0, 0, 0, 0)),
    ],
)
def test_simple_cycles_are_counted_once_by_length(acted: str, cycles: tuple[int, ...]) -> None:
    assert fold([path(acted)]).cycles == cycles


def simple_cycles(edges: set[tuple[str, str]], length: int) -> int:
    """Cycles of distinct agents, by trying all; each begins with its first agent."""
    names = sorted({name for edge in edges for name in edge})
    return sum(
        chosen[0] == min(chosen) and all(pair in edges for pair in pairwise((*chosen, chosen[0])))
        for chosen in permutations(names, length)
    )


@given(st.lists(st.lists(st.sampled_from("abcdef"), min_size=1, max_size=2), max_size=12))
def test_figures_of_an_episode_are_those_found_by_trying_all(acted: list[list[str]]) -> None:
    edges = {pair for before, after in pairwise(acted) for pair in product(before, after)}
    active = {name for wave in acted for name in wave}
    found = fold([tuple(map(tuple, acted))])
    assert found.cycles == tuple(simple_cycles(edges, length) for length in (1, 2, 3, 4))
    assert found.compactness == (len(edges) / len(active) if active else 0)


def test_agents_that_one_decision_started_all_lead_to_the_next() -> None:
    turns = [Turn(0, "a", decision=0), Turn(1, "b", decision=0), Turn(2, "c", decision=1)]
    assert waves(turns) == (("a", "b"), ("c",))
    assert fold([waves(turns)]).edges == {("a", "c"): 1, ("b", "c"): 1}


def test_shares_sum_to_1_and_name_agents_that_never_acted() -> None:
    metrics = fold([path("aba"), path("a")]).metrics("abc")
    assert [metrics[f"share/{name}"] for name in "abc"] == [0.75, 0.25, 0.0]
    assert metrics["cycles_2"] == 0.5


def test_no_episode_is_no_reason_to_divide_by_0() -> None:
    assert fold([()]) == Activations()
    assert set(fold([]).metrics("ab").values()) == {0.0}
