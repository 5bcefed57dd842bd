"""Which trajectories a beam keeps, and which are equal."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from orchestrion_beam.interfaces import Valued
from orchestrion_beam.nodes import SearchNode, choose

from orchestrion import Branch, Key, Observation, Output, Problem, Step, Trajectory, Turn

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


def digest(data: Any = None, step: Step = EMPTY.step, option: str = "") -> bytes:
    """Return the digest of a trajectory of one turn."""
    trajectory = Trajectory([Turn(0, "a", option, Output("x", data))])
    return SearchNode(EMPTY).child(0, (), Branch(Problem("p"), trajectory, step, Key(1))).digest


def test_trajectories_of_equal_content_have_equal_digests() -> None:
    assert digest({"a": 1, "b": [2]}) == digest({"b": [2], "a": 1}) != digest({"a": 1, "b": [3]})
    assert digest({"y", "x"}) == digest(["x", "y"])
    assert digest(2j) == digest(complex("2j")) != digest(3j)
    steps = [
        Step(done=True),
        *(Step(observation=Observation(text, data)) for text in "ab" for data in (None, 1)),
        Step(observation=Observation("a", features=(1.0,))),
    ]
    others = [digest(option="b"), *(digest(step=step) for step in steps)]
    assert len({digest(), *others}) == 1 + len(others)
