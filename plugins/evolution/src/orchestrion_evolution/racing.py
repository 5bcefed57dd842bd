"""Successive halving (Jamieson and Talwalkar 2016): episodes go to those that may still win.

All candidates meet the same samples, in the same order (common random numbers), so a difference
between two of them is due to what they do. A mean over few samples that won a comparison is too
high: what is reported of a winner must be measured again, on samples that chose nobody.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from random import Random

from orchestrion import Key
from orchestrion_evolution.fronts import Value
from orchestrion_evolution.genome import Genome, Space, canonical
from orchestrion_evolution.search import Search, Told, Trial

__all__ = ["SuccessiveHalving"]

SHRINK = 0.8
"""What a rung gets of the samples of the one before: where candidates have few samples each, many
are tied, and the best may be cut."""


class SuccessiveHalving(Search):
    """Random candidates; after each rung the better half goes on, each with twice as many samples.

    A rung is asked for as a whole, whatever number is asked for.

    Args:
        space: what is searched.
        candidates: graphs in the first rung.
        budget: samples of all rungs together.
        cost_weight: see `Search`.
        seeds: candidates that are sure to take part.
    """

    def __init__(
        self,
        space: Space,
        candidates: int,
        budget: int,
        cost_weight: float = 0.0,
        seeds: Iterable[Genome] = (),
    ) -> None:
        super().__init__(space, cost_weight, seeds)
        self.rungs = max(1, math.ceil(math.log2(candidates)))
        self.candidates = max(1, min(candidates, budget // self.rungs))
        self.left = budget
        self.rung = 0
        self.racing: list[Genome] = []
        """Who is still in the race, best first."""
        self._samples: dict[Genome, int] = {}
        self._reached: dict[Genome, int] = {}

    def propose(self, rng: Random) -> Genome:
        """Any."""
        return self.space.draw(rng)

    def ask(self, n: int, key: Key) -> list[Trial]:
        """The next rung; the samples of a trial include those of earlier rungs."""
        if self.rung >= self.rungs or (self.rung and len(self.racing) < 2):
            return []
        if self.rung:
            trials = [Trial(one, one) for one in self.racing]
        else:
            trials = super().ask(self.candidates, key)
        shares = [SHRINK**n for n in range(self.rungs - self.rung)]
        more = max(1, int(self.left / sum(shares)) // max(1, len(trials)))
        return [
            one._replace(samples=self._samples.get(one.graph, 0) + more)
            for one in trials
            if self.left >= len(trials)
        ]

    def tell(self, results: Sequence[Told]) -> None:
        """The better half goes on; of equal ones those that were asked for first."""
        super().tell(results)
        if not results:
            return  # the race is over, or has no samples left: who leads stays
        graphs = [canonical(one.genome) for one in results]
        for graph, told in zip(graphs, results, strict=True):
            self.left -= told.value.samples - self._samples.get(graph, 0)
            self._samples[graph] = told.value.samples
            self._reached[graph] = self.rung
        graphs.sort(key=lambda one: -self.fitness(self.known[one]))
        self.rung += 1
        last = self.rung >= self.rungs
        self.racing = graphs if last else graphs[: math.ceil(len(graphs) / 2)]

    def best(self) -> tuple[Genome, Value] | None:
        """The winner of the last rung."""
        fine = [one for one in self.racing if self.known[one].samples]
        return (fine[0], self.known[fine[0]]) if fine else None

    def comparable(self) -> list[tuple[Genome, Value]]:
        """Those that came past half of the rungs so far: others were seen too seldom."""
        least = (self.rung - 1) // 2
        return [item for item in super().comparable() if self._reached[item[0]] >= least]
