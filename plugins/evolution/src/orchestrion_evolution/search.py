"""What all strategies have in common: `ask` proposes trials, `tell` takes their results.

Who drives a strategy evaluates, in whatever order and wherever, and tells results in the order in
which they were asked for; so evaluation, parallelism, caching and budget are no strategy's concern.

    search = NSGA2(space)
    while budget:
        trials = search.ask(20, key.child(i))
        search.tell([Told(trial.genome, evaluate(trial.graph)) for trial in trials])
    for graph, value in search.front(): ...

`ask` changes nothing: its randomness is the key's. So telling the same again, in the same batches,
gives the same strategy, and that is how one is restored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from random import Random
from typing import NamedTuple

from orchestrion import Key
from orchestrion_evolution.fronts import Value, front_of
from orchestrion_evolution.genome import Genome, Space, canonical, extent

__all__ = ["RandomSearch", "Search", "Told", "Trial"]

ATTEMPTS = 30
"""How often a new genome is looked for before one that was seen is good enough."""


class Trial(NamedTuple):
    """A genome to evaluate by its canonical graph, on the first `samples` of the common samples.

    Without a number it is as many as an evaluation has.
    """

    genome: Genome
    graph: Genome
    samples: int | None = None


class Told(NamedTuple):
    """The genome of a trial, as it was asked for, and what it is worth."""

    genome: Genome
    value: Value


class Search:
    """The base of all strategies.

    Args:
        space: what is searched.
        cost_weight: what a unit of cost takes off the quality, for strategies with one goal and
            for `best`.
        seeds: genomes to begin with.
    """

    def __init__(
        self, space: Space, cost_weight: float = 0.0, seeds: Iterable[Genome] = ()
    ) -> None:
        self.space, self.cost_weight, self.seeds = space, cost_weight, tuple(seeds)
        self.known: dict[Genome, Value] = {}
        """What was found out of each graph, in the order in which it was first told."""

    def ask(self, n: int, key: Key) -> list[Trial]:
        """Up to `n` trials; none when there is nothing left to try."""
        rng = key.random()
        found: dict[Genome, Trial] = {}
        for seed in self.seeds:
            graph = canonical(seed)
            if graph not in self.known and len(found) < n:
                found.setdefault(graph, Trial(seed, graph))
        for _ in range(n - len(found)):
            trial = self._fresh(rng, found)
            if trial is None:
                break
            found[trial.graph] = trial
        return list(found.values())

    def tell(self, results: Sequence[Told]) -> None:
        """Take results, in the order in which they were asked for."""
        for told in results:
            self.known[canonical(told.genome)] = told.value

    def correct(self, results: Sequence[Told]) -> None:
        """Take better estimates of what is known: more samples of the same graphs.

        The luckiest of many noisy estimates win, so who wins should be measured again.
        """
        for told in results:
            self.known[canonical(told.genome)] = told.value

    def propose(self, rng: Random) -> Genome:
        """One genome that may be worth a try."""
        raise NotImplementedError

    def _fresh(self, rng: Random, found: dict[Genome, Trial]) -> Trial | None:
        """A graph that was neither told nor asked for; anything if the strategy has no more."""
        for propose in (self.propose, self.space.draw):
            for _ in range(ATTEMPTS):
                genome = propose(rng)
                graph = canonical(genome)
                if graph not in self.known and graph not in found:
                    return Trial(genome, graph)
        return None

    # -------------------------------------------------------------------- results

    def fitness(self, value: Value) -> float:
        """Quality less the weighted cost."""
        return value.quality - self.cost_weight * value.cost if value.samples else value.quality

    def comparable(self) -> list[tuple[Genome, Value]]:
        """The graphs that were evaluated well enough to be compared."""
        return [(graph, value) for graph, value in self.known.items() if value.samples]

    def front(self) -> list[tuple[Genome, Value]]:
        """Those of them that nothing dominates, cheapest first; of equal ones the smallest."""
        items = sorted(self.comparable(), key=lambda item: extent(item[0]))
        return [items[i] for i in front_of([value for _, value in items])]

    def best(self) -> tuple[Genome, Value] | None:
        """The graph with the highest fitness; of equal ones the smallest."""
        items = sorted(self.comparable(), key=lambda item: extent(item[0]))
        return max(items, key=lambda item: self.fitness(item[1]), default=None)


class RandomSearch(Search):
    """Genomes drawn alike, each graph once: the baseline of all others."""

    def propose(self, rng: Random) -> Genome:
        """Any."""
        return self.space.draw(rng)


def pick(n: int, size: int, rng: Random, better: Callable[[int, int], bool]) -> int:
    """The place, among `n`, of the winner of a tournament of `size`; the first of equal ones."""
    winner = rng.randrange(n)
    for _ in range(size - 1):
        rival = rng.randrange(n)
        if better(rival, winner):
            winner = rival
    return winner


def batches(items: Sequence[Told], sizes: Iterable[int]) -> Iterator[Sequence[Told]]:
    """Items in runs of the given sizes."""
    start = 0
    for size in sizes:
        yield items[start : start + size]
        start += size
