"""MAP-Elites (Mouret and Clune 2015): the best graph of every kind, where kind is cost by size."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from random import Random

from orchestrion_evolution.fronts import Value
from orchestrion_evolution.genome import Genome, Space, canonical
from orchestrion_evolution.operators import crossover, mutate
from orchestrion_evolution.search import Search, Told

__all__ = ["Cell", "MapElites"]

BEGIN = 40
"""Graphs drawn at random before the first child."""
WIDTH = math.log(1.25)
"""Costs within a factor of 1.25 are one bucket, whatever their unit."""

Cell = tuple[int, int]


class MapElites(Search):
    """One elite for each bucket of cost and number of nodes; any of them may be a parent."""

    def __init__(
        self, space: Space, cost_weight: float = 0.0, seeds: Iterable[Genome] = ()
    ) -> None:
        super().__init__(space, cost_weight, seeds)
        self.elites: dict[Cell, Told] = {}

    def cell(self, graph: Genome, value: Value) -> Cell:
        """Where a graph belongs: its bucket of cost, and how many nodes it has."""
        bucket = math.floor(math.log(value.cost) / WIDTH) if value.cost > 0 else -1_000_000
        return bucket, len(graph.slots)

    def propose(self, rng: Random) -> Genome:
        """A child of elites."""
        elites = list(self.elites.values()) if len(self.known) >= BEGIN else []
        if not elites:
            return self.space.draw(rng)
        child = rng.choice(elites).genome
        if rng.random() < 0.3:
            child = crossover(child, rng.choice(elites).genome, self.space, rng)
        return mutate(child, self.space, rng)

    def tell(self, results: Sequence[Told]) -> None:
        """Who is better than the elite of its cell takes its place."""
        super().tell(results)
        self._compete(results)

    def correct(self, results: Sequence[Told]) -> None:
        """Everybody who was ever told competes again: an elite may have been lucky."""
        super().correct(results)
        elites = list(self.elites.values())
        self.elites = {}
        self._compete([Told(graph, value) for graph, value in self.known.items()])
        # The genomes of elites are kept as they are, with what is dead in them.
        for one in elites:
            graph = canonical(one.genome)
            cell = self.cell(graph, self.known[graph])
            if self.elites[cell].genome == graph:
                self.elites[cell] = Told(one.genome, self.known[graph])

    def _compete(self, results: Sequence[Told]) -> None:
        for told in results:
            if told.value.samples:
                cell = self.cell(canonical(told.genome), told.value)
                best = self.elites.get(cell)
                if best is None or best.value.quality < told.value.quality:
                    self.elites[cell] = told
