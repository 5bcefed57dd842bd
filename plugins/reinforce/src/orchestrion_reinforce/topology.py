"""What the episodes looked like as graphs of agents, and who was used how much.

Puppeteer (arXiv 2505.19591, section 4.3) folds an episode into a directed graph: an edge from
each agent to the one that acted next. *Compactness* is its density, edges per active agent;
*cycles* are counted by length.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise

from attrs import frozen

from orchestrion import Episode, Member

__all__ = ["Graph", "activation_graph", "activation_layers", "team_metrics"]

LONGEST = 4
"""Cycles up to this length are counted."""

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


@lru_cache(4096)
def activation_graph(layers: Layers) -> Graph:
    """The graph whose edges lead from every agent of a layer to every agent of the next."""
    follows: dict[str, set[str]] = {name: set() for layer in layers for name in layer}
    for before, after in pairwise(layers):
        for name in before:
            follows[name].update(after)
    order = {name: i for i, name in enumerate(follows)}
    cycles = [0] * LONGEST

    def walk(start: str, at: str, seen: tuple[str, ...]) -> None:
        # A cycle is counted at its first agent, so that each is counted once.
        for name in sorted(follows[at]):
            if name == start:
                cycles[len(seen) - 1] += 1
            elif order[name] > order[start] and name not in seen and len(seen) < LONGEST:
                walk(start, name, (*seen, name))

    for name in follows:
        walk(name, name, (name,))
    return Graph(len(follows), sum(len(after) for after in follows.values()), tuple(cycles))


def team_metrics(episodes: Sequence[Episode], roster: Sequence[Member]) -> dict[str, float]:
    """Each agent's share of all turns, and the graphs' means over episodes with a turn."""
    turns = Counter(turn.agent for episode in episodes for turn in episode.turns)
    total = sum(turns.values())
    graphs = [activation_graph(activation_layers(one)) for one in episodes if len(one.trajectory)]
    count = max(1, len(graphs))
    metrics = {
        "compactness": sum(graph.compactness for graph in graphs) / count,
        **{
            f"cycles_{k + 1}": sum(graph.cycles[k] for graph in graphs) / count
            for k in range(LONGEST)
        },
    }
    for member in roster:
        metrics[f"share/{member.name}"] = turns[member.name] / total if total else 0.0
    return metrics
