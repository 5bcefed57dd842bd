"""The interface of strategies, `ask` and `tell`; fronts of quality and cost; random search.

A strategy proposes trials and takes their results. The caller evaluates them, so parallelism,
caching and budgets are not the concern of a strategy:

    search = NSGA2(space)
    while budget:
        trials = search.ask(20, key.child(i))
        search.tell([(trial.genome, evaluate(trial.graph)) for trial in trials])
    for graph, value in search.front(): ...

`ask` changes nothing and draws from its key alone. A strategy that is told the same batches in the
same order is therefore in the same state; that is how one is restored from a checkpoint.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from random import Random
from typing import NamedTuple

from orchestrion import JSON, Key
from orchestrion_evolution.genome import Genome, Space, canonical, size_of

ATTEMPTS = 30
"""How many genomes a strategy may propose until one of them is a new graph."""


class Value(NamedTuple):
    """The mean quality (more is better) and mean cost (less is better) of `samples` episodes."""

    quality: float
    cost: float
    samples: int = 1

    def as_json(self) -> JSON:
        """Return the value as JSON; None for a failed graph."""
        return self._asdict() if self.samples else None


FAILED = Value(-math.inf, math.inf, 0)
"""The value of a graph without any reward. It is worse than every other and on no front."""


class GraphTrial(NamedTuple):
    """A genome to evaluate: run `graph`, its canonical form, and tell the value of `genome`.

    `samples` is the number of samples that the value must cover; None leaves it to the caller.
    """

    genome: Genome
    graph: Genome
    samples: int | None = None


Evaluated = tuple[Genome, Value]
"""A genome with its value."""


def front_of(values: Sequence[Value]) -> list[int]:
    """Return the indices of the values that no other dominates, cheapest first.

    A value dominates another if it is at least as good in both objectives and better in one. Of
    equal values the first is returned.
    """
    order = sorted(range(len(values)), key=lambda i: (values[i].cost, -values[i].quality, i))
    front: list[int] = []
    best = -math.inf
    for i in order:
        if values[i].quality > best:
            best = values[i].quality
            front.append(i)
    return front


def hypervolume(values: Sequence[Value], quality: float, cost: float) -> float:
    """Return the area that the values dominate, up to a reference point (`quality`, `cost`)."""
    area, height = 0.0, quality
    for i in front_of(values):
        value = values[i]
        if value.cost <= cost and value.quality > height:
            area += (cost - value.cost) * (value.quality - height)
            height = value.quality
    return area


class Search:
    """The base of all strategies, which proposes random graphs.

    Args:
        space: the graphs that are searched.
        cost_weight: quality that one unit of cost is worth, for `fitness`.
        seeds: genomes to try first.
    """

    def __init__(
        self, space: Space, cost_weight: float = 0.0, seeds: Iterable[Genome] = ()
    ) -> None:
        self.space, self.cost_weight, self.seeds = space, cost_weight, tuple(seeds)
        self.known: dict[Genome, Value] = {}
        """The latest value of each graph, in the order in which graphs were first told."""

    def ask(self, n: int, key: Key) -> list[GraphTrial]:
        """Return up to `n` trials of new graphs; none if nothing is left to try."""
        rng = key.random()
        trials: dict[Genome, GraphTrial] = {}
        for seed in self.seeds:
            graph = canonical(seed)
            if graph not in self.known and len(trials) < n:
                trials.setdefault(graph, GraphTrial(seed, graph))
        while len(trials) < n:
            trial = self._new_trial(rng, trials)
            if trial is None:
                break
            trials[trial.graph] = trial
        return list(trials.values())

    def _new_trial(self, rng: Random, others: Collection[Genome]) -> GraphTrial | None:
        for propose in (self.propose, self.space.draw):
            for _ in range(ATTEMPTS):
                genome = propose(rng)
                graph = canonical(genome)
                if graph not in self.known and graph not in others:
                    return GraphTrial(genome, graph)
        return None

    def propose(self, rng: Random) -> Genome:
        """Return a genome to try; it may be one that is known."""
        return self.space.draw(rng)

    def tell(self, results: Sequence[Evaluated]) -> None:
        """Take values, in the order in which they were asked for.

        The value of a known graph replaces the old one: measure again what leads, since the
        luckiest of many noisy values wins.
        """
        for genome, value in results:
            self.known[canonical(genome)] = value

    def fitness(self, value: Value) -> float:
        """Return the quality less the weighted cost; minus infinity for a failed graph."""
        return value.quality - self.cost_weight * value.cost if value.samples else -math.inf

    def comparable(self) -> list[Evaluated]:
        """Return the graphs with enough samples to be compared."""
        return [(graph, value) for graph, value in self.known.items() if value.samples]

    def front(self) -> list[Evaluated]:
        """Return the comparable graphs that no other dominates, cheapest first.

        Of graphs with equal values the smallest is returned.
        """
        results = sorted(self.comparable(), key=lambda result: size_of(result[0]))
        return [results[i] for i in front_of([value for _, value in results])]

    def choose(self, results: Sequence[Evaluated], most_cost: float | None) -> Genome:
        """Return the fittest graph that costs no more than this; the cheapest if none does."""
        most = math.inf if most_cost is None else most_cost
        cheap = [result for result in results if result[1].cost <= most]
        if not cheap:
            return min(results, key=lambda result: result[1].cost)[0]
        return max(cheap, key=lambda result: self.fitness(result[1]))[0]

    def best(self) -> Evaluated | None:
        """Return the fittest graph, of equal ones the smallest; None if there is none."""
        results = sorted(self.comparable(), key=lambda result: size_of(result[0]))
        return max(results, key=lambda result: self.fitness(result[1]), default=None)


class RandomSearch(Search):
    """Random graphs, each once: the baseline of every other strategy."""
