"""Which trajectories a beam keeps."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from orchestrion_beam.interfaces import Valued
from orchestrion_beam.nodes import SearchNode, choose

from orchestrion import Branch, Key, Problem, Step, Trajectory

numbers = st.one_of(st.none(), st.sampled_from([0.0, 0.25, 0.5, 0.5, 1.0]))
row_lists = st.lists(st.tuples(numbers, st.integers(0, 3), st.integers(0, 2)), max_size=14)
EMPTY = Branch(Problem("p"), Trajectory(), Step(), Key(1))


def node(value: float | None, tie: bytes, parent: int = 0, root: int = 0) -> SearchNode:
    """Return a trajectory of three turns."""
    return SearchNode(EMPTY, (root, parent, tie[0]), valued=Valued(value), tie=tie)


def nodes_of(rows: list[tuple[float | None, int, int]]) -> list[SearchNode]:
    return [node(value, bytes([i]), parent, root) for i, (value, parent, root) in enumerate(rows)]


@given(row_lists, st.integers(1, 6), st.integers(1, 4), st.integers(1, 3))
def test_a_beam_is_full_diverse_and_has_the_best(
    rows: list[tuple[float | None, int, int]], width: int, parents: int, roots: int
) -> None:
    nodes = nodes_of(rows)
    kept = choose(nodes, width, parents, roots)
    assert len(kept) == min(width, len(nodes))
    assert kept == sorted(kept, key=lambda node: node.rank)
    all_roots = {node.root for node in nodes}
    assert len({node.root for node in kept}) >= min(roots, len(all_roots), width)
    all_parents = {node.path[:-1] for node in nodes}
    assert len({node.path[:-1] for node in kept}) >= min(parents, len(all_parents), width)
    if nodes:
        assert kept[0] == min(nodes, key=lambda node: node.rank)


def test_the_second_family_is_represented_by_its_best() -> None:
    a, b = node(0.9, b"a"), node(0.8, b"b")
    c, d = node(0.1, b"c", parent=1, root=1), node(0.2, b"d", parent=1, root=1)
    assert choose([a, b, c, d], 2, min_roots=2) == [a, d]
    assert choose([a, b, c, d], 2, min_parents=2) == [a, d]
    assert choose([a, b, c, d], 2) == [a, b]
