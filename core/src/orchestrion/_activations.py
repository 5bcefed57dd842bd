"""Who acted after whom: episodes of any policy, folded into one graph of agents.

Puppeteer (arXiv 2505.19591, section 4.3) folds an episode into a directed graph: an edge from each
agent to the one that acted next; agents that one decision started stand side by side, and all of
them lead to all of the next decision's. *Compactness* is its density, edges per active agent;
*cycles* are simple ones, counted by length, an agent after itself being one of length 1. Both are
means over episodes.

    fold(waves(episode.turns) for episode in episodes).metrics([member.name for member in roster])
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import pairwise, product

from attrs import Factory, frozen

from orchestrion._records import Turn

LONGEST = 4
"""Cycles up to this length are counted."""
START, END = "start", "end"
"""Where episodes begin and end, as the source and the target of edges."""

Waves = tuple[tuple[str, ...], ...]
"""Who acted, decision by decision."""
Pair = tuple[str, str]


@frozen
class Activations:
    """Episodes as one graph.

    Args:
        episodes: how many, without those in which nobody acted.
        turns: of each agent, in all episodes.
        edges: how often the second acted right after the first; not those of `START` and `END`.
        ends: how many episodes an agent began (`START`, agent), or ended (agent, `END`).
        compactness: distinct edges per active agent, mean over episodes.
        cycles: simple cycles of length 1 to `LONGEST` in an episode's graph, means over episodes.
    """

    episodes: int = 0
    turns: Mapping[str, int] = Factory(dict)
    edges: Mapping[Pair, int] = Factory(dict)
    ends: Mapping[Pair, int] = Factory(dict)
    compactness: float = 0.0
    cycles: tuple[float, ...] = (0.0,) * LONGEST

    @property
    def cycle_length(self) -> float:
        """Return the mean length of the cycles that were counted; 0 if there are none."""
        count = sum(self.cycles)
        return sum(n * mean for n, mean in enumerate(self.cycles, 1)) / count if count else 0.0

    def metrics(self, names: Iterable[str]) -> dict[str, float]:
        """Return metrics for a trainer: compactness, cycles, these agents' shares of all turns."""
        total = sum(self.turns.values())
        return {
            "compactness": self.compactness,
            **{f"cycles_{n}": mean for n, mean in enumerate(self.cycles, 1)},
            **{f"share/{n}": self.turns.get(n, 0) / total if total else 0.0 for n in names},
        }

    def _repr_html_(self) -> str:
        from orchestrion._html import graph_html

        return graph_html(self)

    def summary(self) -> list[str]:
        """Return figures on the whole, line by line."""
        counted = ", ".join(f"{mean:.2f} of length {n}" for n, mean in enumerate(self.cycles, 1))
        turns = sum(self.turns.values()) / self.episodes if self.episodes else 0.0
        return [
            f"{self.episodes} episodes with {turns:.2f} turns on average",
            f"{self.compactness:.2f} different steps from agent to agent, per active agent",
            f"cycles in an episode: {counted}; mean length {self.cycle_length:.2f}",
        ]


def waves(turns: Iterable[Turn]) -> Waves:
    """Return who acted, by decision, in the order of the decisions' first turns."""
    agents: dict[int, list[str]] = {}
    for turn in turns:
        agents.setdefault(turn.decision, []).append(turn.agent)
    return tuple(map(tuple, agents.values()))


def fold(episodes: Iterable[Waves]) -> Activations:
    """Return all episodes as one graph."""
    times = Counter(episode for episode in episodes if episode)
    count = sum(times.values())
    turns: Counter[str] = Counter()
    edges: Counter[Pair] = Counter()
    ends: Counter[Pair] = Counter()
    dense, cycles = 0.0, [0.0] * LONGEST
    for episode, n in times.items():
        names = [name for wave in episode for name in wave]
        # From each agent to each of the next decision's, as often as that step was taken.
        steps = [pair for before, after in pairwise(episode) for pair in product(before, after)]
        for name in names:
            turns[name] += n
        for step in steps:
            edges[step] += n
        for name in dict.fromkeys(episode[0]):
            ends[START, name] += n
        for name in dict.fromkeys(episode[-1]):
            ends[name, END] += n
        distinct = frozenset(steps)
        dense += n * len(distinct) / len(set(names))
        for length, share in enumerate(_cycles(distinct)):
            cycles[length] += n * share
    if not count:
        return Activations()
    means = tuple(total / count for total in cycles)
    return Activations(count, turns, edges, ends, dense / count, means)


@lru_cache(4096)  # episodes go alike over and over
def _cycles(edges: frozenset[Pair]) -> tuple[int, ...]:
    """Simple cycles by length; each is found once, from the least of its agents on."""
    leads: dict[str, list[str]] = {}
    for source, target in edges:
        leads.setdefault(source, []).append(target)
    counts = [0] * LONGEST
    for first in leads:
        paths: list[tuple[str, ...]] = [(first,)]
        for length in range(LONGEST):
            longer = []
            for path in paths:
                for name in leads.get(path[-1], ()):
                    if name == first:
                        counts[length] += 1
                    elif name > first and name not in path:
                        longer.append((*path, name))
            paths = longer
    return tuple(counts)
