"""What the episodes looked like as graphs of agents, and who was used how much.

Puppeteer (arXiv 2505.19591, section 4.3) folds an episode into a directed graph: an edge from
each agent to the one that acted next. *Compactness* is its density, edges per active agent;
*cycles* are counted by length.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from orchestrion import Episode, Member

__all__ = ["Graph", "activation_graphs", "activation_layers", "team_metrics"]

LONGEST = 4
"""Cycles up to this length are counted."""

Floats = NDArray[np.float64]
Layers = tuple[tuple[str, ...], ...]


@frozen
class Graph:
    """An episode folded into a graph of agents.

    Args:
        nodes: active agents.
        edges: distinct directed edges.
        cycles: simple cycles of length 1 (an agent after itself) to 4.
    """

    nodes: int
    edges: int
    cycles: tuple[int, ...]

    @property
    def compactness(self) -> float:
        """Edges per active agent; 0 for an empty episode."""
        return self.edges / self.nodes if self.nodes else 0.0


def activation_layers(episode: Episode) -> Layers:
    """Who acted, decision by decision; agents that one decision started stand side by side."""
    layers: dict[int, list[str]] = {}
    for turn in episode.turns:
        layers.setdefault(turn.decision, []).append(turn.agent)
    return tuple(tuple(agents) for agents in layers.values())


def activation_graphs(episodes: Sequence[Layers]) -> list[Graph]:
    """Graphs whose edges lead from every agent of a layer to every agent of the next.

    Cycles are counted by closed walks, for all episodes at once: tr(A^k) / k, where a closed walk
    of 4 steps may also go to a neighbour and back twice. With d_i the number of agents that i
    leads to and is led to by, there are 2 sum d_i^2 - sum d_i of those.
    """
    numbers: dict[str, int] = {}
    nodes: list[int] = []
    edges: list[tuple[int, int, int]] = []
    for place, layers in enumerate(episodes):
        before: list[int] = []
        active: set[int] = set()
        for layer in layers:
            after = [numbers.setdefault(name, len(numbers)) for name in layer]
            active.update(after)
            for one in before:
                for other in after:
                    edges.append((place, one, other))
            before = after
        nodes.append(len(active))
    leads = np.zeros((len(nodes), len(numbers), len(numbers)))
    if edges:
        leads[tuple(np.array(edges).T)] = 1.0
    counts = leads.sum(axis=(1, 2))
    loops = np.trace(leads, axis1=1, axis2=2)
    others = leads * (1 - np.eye(len(numbers)))
    twice = others @ others
    mutual = np.diagonal(twice, axis1=1, axis2=2)
    back = 2 * (mutual**2).sum(axis=1) - mutual.sum(axis=1)
    cycles = np.stack(
        [
            loops,
            mutual.sum(axis=1) / 2,
            _closed(twice, others) / 3,
            (_closed(twice, twice) - back) / 4,
        ],
        axis=1,
    )
    return [
        Graph(node, int(edge), tuple(map(int, cycle)))
        for node, edge, cycle in zip(nodes, counts.tolist(), cycles.tolist(), strict=True)
    ]


def _closed(first: Floats, second: Floats) -> Floats:
    """Walks that go on from `first` with `second` and end where they began, of each graph."""
    result: Floats = np.einsum("eij,eji->e", first, second)
    return result


def team_metrics(episodes: Sequence[Episode], roster: Sequence[Member]) -> dict[str, float]:
    """Each agent's share of all turns, and the graphs' means over episodes with a turn."""
    layers = [activation_layers(one) for one in episodes if len(one.trajectory)]
    turns = Counter(name for episode in layers for layer in episode for name in layer)
    total = sum(turns.values())
    # Episodes that went alike have one graph.
    times = Counter(layers)
    graphs = [*zip(activation_graphs([*times]), times.values(), strict=True)]
    count = max(1, len(layers))
    metrics = {
        "compactness": sum(graph.compactness * n for graph, n in graphs) / count,
        **{
            f"cycles_{k + 1}": sum(graph.cycles[k] * n for graph, n in graphs) / count
            for k in range(LONGEST)
        },
    }
    for member in roster:
        metrics[f"share/{member.name}"] = turns[member.name] / total if total else 0.0
    return metrics
