"""Successive halving: samples go to the candidates that can still win.

Source: Jamieson and Talwalkar, Non-stochastic best arm identification and hyperparameter
optimization, AISTATS 2016, algorithm 1. Deviations:

- All candidates meet the same samples in the same order (common random numbers), so the difference
  between two of them is due to what they do. The caller supplies the samples in this way.
- A candidate keeps the samples of earlier rungs: a rung only adds to them.
- Each rung gets 0.8 times the samples of the rung before instead of equally many: with few samples
  each, many candidates tie and the best could be cut.

The value that won a comparison is too high. Measure a winner again, on samples that chose nothing,
before you report it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from orchestrion import Key
from orchestrion_evolution.genome import Genome, Space, canonical
from orchestrion_evolution.search import FAILED, Evaluated, GraphTrial, Search

SHRINK = 0.8
"""The share of the previous rung's samples that a rung gets."""


class SuccessiveHalving(Search):
    """Random candidates; the fitter half of a rung goes on to the next, with more samples each.

    `ask` returns a whole rung, whatever number is asked for.

    Args:
        space: the graphs that are searched.
        candidates: graphs in the first rung.
        budget: samples of all rungs together.
        cost_weight: quality that one unit of cost is worth.
        seeds: candidates that take part for certain.
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
        self.budget_left = budget
        self.rung = 0
        self.racing: list[Genome] = []
        """The graphs that are still in the race, best first."""
        self._last_rung: dict[Genome, int] = {}

    def ask(self, n: int, key: Key) -> list[GraphTrial]:
        """Return the next rung; a trial's samples include those of earlier rungs."""
        if self.rung >= self.rungs or (self.rung and len(self.racing) < 2):
            return []
        if self.rung:
            trials = [GraphTrial(graph, graph) for graph in self.racing]
        else:
            trials = super().ask(self.candidates, key)
        if self.budget_left < len(trials):
            return []
        shares = [SHRINK**i for i in range(self.rungs - self.rung)]
        more = max(1, int(self.budget_left / sum(shares)) // max(1, len(trials)))
        return [trial._replace(samples=self._samples(trial.graph) + more) for trial in trials]

    def _samples(self, graph: Genome) -> int:
        return self.known.get(graph, FAILED).samples

    def tell(self, results: Sequence[Evaluated]) -> None:
        """Take the values of a rung; the better half goes on, of equal ones the first asked for."""
        if not results:
            return  # the race is over, or has no samples left: the leader stays
        graphs = [canonical(genome) for genome, _ in results]
        for graph, (_, value) in zip(graphs, results, strict=True):
            self.budget_left -= value.samples - self._samples(graph)
            self._last_rung[graph] = self.rung
        super().tell(results)
        graphs.sort(key=lambda graph: -self.fitness(self.known[graph]))
        self.rung += 1
        is_over = self.rung >= self.rungs
        self.racing = graphs if is_over else graphs[: math.ceil(len(graphs) / 2)]

    def best(self) -> Evaluated | None:
        """Return the leader of the last rung; None if there is none."""
        return next(
            ((graph, self.known[graph]) for graph in self.racing if self.known[graph].samples), None
        )

    def comparable(self) -> list[Evaluated]:
        """Return the graphs that came past half of the rungs so far: others have few samples."""
        required = (self.rung - 1) // 2
        return [result for result in super().comparable() if self._last_rung[result[0]] >= required]
