"""Episodes as graphs, and how much each agent was used."""

from __future__ import annotations

from itertools import pairwise, permutations

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st
from orchestrion_reinforce.diagnosis import convergence
from orchestrion_reinforce.topology import (
    Graph,
    activation_graphs,
    activation_layers,
    team_metrics,
)

from orchestrion import Trajectory, Turn
from tests.plugins.reinforce.support import ROSTER, episode


def path(text: str) -> tuple[tuple[str, ...], ...]:
    return tuple((name,) for name in text)


def graph_of(layers: tuple[tuple[str, ...], ...]) -> Graph:
    return activation_graphs([layers])[0]


def test_a_chain_has_no_cycle_and_one_edge_less_than_agents() -> None:
    graph = graph_of(path("abcd"))
    assert (graph.nodes, graph.edges, graph.cycles) == (4, 3, (0, 0, 0, 0))
    assert graph.compactness == 0.75


@pytest.mark.parametrize(
    ("acted", "cycles"),
    [
        ("aa", (1, 0, 0, 0)),
        ("aba", (0, 1, 0, 0)),
        ("ababab", (0, 1, 0, 0)),
        ("abca", (0, 0, 1, 0)),
        ("abcda", (0, 0, 0, 1)),
        ("abcab" + "a", (0, 1, 1, 0)),
        ("abcdea", (0, 0, 0, 0)),
    ],
)
def test_simple_cycles_are_counted_once_by_length(acted: str, cycles: tuple[int, ...]) -> None:
    assert graph_of(path(acted)).cycles == cycles


def simple_cycles(edges: set[tuple[str, str]], length: int) -> int:
    """Cycles of distinct agents, by trying all; each begins with its first agent."""
    names = sorted({name for edge in edges for name in edge})
    return sum(
        chosen[0] == min(chosen) and all(pair in edges for pair in pairwise((*chosen, chosen[0])))
        for chosen in permutations(names, length)
    )


@given(st.lists(st.text("abcdef", max_size=20), min_size=1, max_size=4))
def test_cycles_of_many_episodes_are_those_found_one_by_one(acted: list[str]) -> None:
    for graph, text in zip(activation_graphs([path(one) for one in acted]), acted, strict=True):
        edges = set(pairwise(text))
        assert graph.nodes == len(set(text))
        assert graph.edges == len(edges)
        assert graph.cycles == tuple(simple_cycles(edges, length) for length in (1, 2, 3, 4))


@given(st.text("abcd", max_size=12))
def test_the_graph_does_not_depend_on_the_names(acted: str) -> None:
    renamed = acted.translate(str.maketrans("abcd", "zywx"))
    assert graph_of(path(acted)) == graph_of(path(renamed))


def test_agents_started_together_stand_side_by_side() -> None:
    turns = [Turn(0, "a", decision=0), Turn(1, "b", decision=0), Turn(2, "c", decision=1)]
    layers = activation_layers(evolve(episode([], 0), trajectory=Trajectory(turns)))
    assert layers == (("a", "b"), ("c",))
    assert graph_of(layers).edges == 2


def test_shares_sum_to_1_and_name_agents_that_never_acted() -> None:
    metrics = team_metrics([episode(["a", "b", "a"], 1), episode(["a"], 1)], ROSTER)
    assert [metrics[f"share/{name}"] for name in "abc"] == [0.75, 0.25, 0.0]


def test_no_episode_is_no_reason_to_divide_by_0() -> None:
    assert set(team_metrics([episode([], 1)], ROSTER).values()) == {0.0}


def test_convergence_is_where_nine_tenths_of_the_rise_are_reached() -> None:
    history = [(10 * (i + 1), min(i, 50) / 50) for i in range(100)]
    reached = convergence(history, window=1)
    assert reached == 460
    assert convergence([(n, r - 7) for n, r in history], window=1) == reached


def test_a_run_that_did_not_improve_has_not_converged() -> None:
    assert convergence([]) == convergence([(1, 2.0)]) == convergence([(1, 2.0), (2, 1.0)]) == 0
