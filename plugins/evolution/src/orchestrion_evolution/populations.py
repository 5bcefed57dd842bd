"""Strategies that keep a population: (mu + lambda), and NSGA-II."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from random import Random

from orchestrion_evolution.fronts import crowding, ranks
from orchestrion_evolution.genome import Genome, Space, canonical
from orchestrion_evolution.operators import crossover, mutate
from orchestrion_evolution.search import Search, Told, pick

__all__ = ["NSGA2", "MuPlusLambda", "Population"]

CROSS = 0.4
"""How likely a child has two parents."""
EQUAL = 2
"""Members of equal quality and cost at most."""


class Population(Search):
    """The best `size` genomes so far, each graph once; children of tournament winners.

    Args:
        space: what is searched.
        size: how many genomes may be parents.
        cost_weight: see `Search`.
        seeds: genomes to begin with; by default every choice alone.
    """

    def __init__(
        self,
        space: Space,
        size: int = 40,
        cost_weight: float = 0.0,
        seeds: Iterable[Genome] | None = None,
    ) -> None:
        super().__init__(space, cost_weight, space.singles() if seeds is None else seeds)
        self.size = size
        self.members: list[Told] = []
        """Best first."""

    def propose(self, rng: Random) -> Genome:
        """A child, or any genome as long as the population is not full."""
        if len(self.members) < min(self.size, len(self.known) + 1) or not self.members:
            return self.space.draw(rng)
        child = self._parent(rng)
        if rng.random() < CROSS:
            child = crossover(child, self._parent(rng), self.space, rng)
            if rng.random() < 0.3:
                return child
        return mutate(child, self.space, rng)

    def _parent(self, rng: Random) -> Genome:
        return self.members[pick(len(self.members), 2, rng, self.better)].genome

    def better(self, a: int, b: int) -> bool:
        """Whether one member is a better parent than another."""
        return a < b

    def tell(self, results: Sequence[Told]) -> None:
        """Survivors are the best of the population and what is new."""
        super().tell(results)
        self._survive([*self.members, *results])

    def correct(self, results: Sequence[Told]) -> None:
        """The population is judged again; a member may have lost its rank."""
        super().correct(results)
        self._survive(self.members)

    def _survive(self, candidates: Sequence[Told]) -> None:
        pool = {canonical(one.genome): one for one in candidates}
        alive = [Told(one.genome, self.known[graph]) for graph, one in pool.items()]
        self.select([one for one in alive if one.value.samples])

    def select(self, pool: list[Told]) -> None:
        """Choose the members from all that could be."""
        raise NotImplementedError


class MuPlusLambda(Population):
    """One goal: quality less the weighted cost. Parents and children compete."""

    def select(self, pool: list[Told]) -> None:
        """The fittest; of equal ones those that were there before."""
        pool.sort(key=lambda one: -self.fitness(one.value))
        self.members = pool[: self.size]


class NSGA2(Population):
    """Two goals: quality up, cost down (Deb et al. 2002), each graph evaluated once.

    Survivors are taken front by front, and of the front that does not fit whole those that are
    most alone. Parents win tournaments by front, then by how alone they are. Of graphs with equal
    values the two newest stay: that lets the search drift along plateaus, and keeps them from
    filling the population.
    """

    _level: list[int]
    _alone: list[float]

    def select(self, pool: list[Told]) -> None:
        """Front by front."""
        pool = _newest(pool)
        levels = ranks([one.value for one in pool])
        chosen: list[Told] = []
        self._level, self._alone = [], []
        for level in range(max(levels, default=-1) + 1):
            front = [one for one, its in zip(pool, levels, strict=True) if its == level]
            alone = crowding([one.value for one in front])
            order = sorted(range(len(front)), key=lambda i: -alone[i])[: self.size - len(chosen)]
            chosen += [front[i] for i in order]
            self._level += [level] * len(order)
            self._alone += [alone[i] for i in order]
            if len(chosen) >= self.size:
                break
        self.members = chosen

    def better(self, a: int, b: int) -> bool:
        """By front, then by crowding distance."""
        return (self._level[a], -self._alone[a]) < (self._level[b], -self._alone[b])


def _newest(pool: Sequence[Told]) -> list[Told]:
    """Without those that have a value which `EQUAL` later ones have as well."""
    later: Counter[tuple[float, float]] = Counter()
    kept = []
    for one in reversed(pool):
        value = (one.value.quality, one.value.cost)
        later[value] += 1
        if later[value] <= EQUAL:
            kept.append(one)
    return kept[::-1]
