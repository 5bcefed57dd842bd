"""Edge-REINFORCE: a distribution over graphs, made better by the gradient of the mean fitness.

After GPTSwarm (Zhuge et al. 2024, section 3.2): every edge is an independent coin. What departs:
the number of slots and what runs in each are drawn as well; rewards have a leave-one-out baseline
and a common scale (without one, 0/1 rewards teach by luck); slots are counted from the output.

The gradient is that of what was drawn, so graphs that are known already are proposed again.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from random import Random

from orchestrion import Key
from orchestrion_evolution.genome import Genome, Slot, Space, canonical
from orchestrion_evolution.search import Search, Told, Trial

__all__ = ["EdgeReinforce"]

Place = tuple[str, int, int]
"""A decision: "size", "choice" of a slot, "edge" between two, or "setting"."""


class EdgeReinforce(Search):
    """Independent decisions with learned log-odds, by Adam.

    Args:
        space: what is searched.
        cost_weight: see `Search`.
        seeds: evaluated first; nothing is learned from them.
        rate: step size.
        entropy: what a nat of each decision's entropy is worth, in standard deviations of fitness.
    """

    def __init__(
        self,
        space: Space,
        cost_weight: float = 0.0,
        seeds: Iterable[Genome] = (),
        rate: float = 0.1,
        entropy: float = 0.01,
    ) -> None:
        super().__init__(space, cost_weight, seeds)
        self.rate, self.entropy = rate, entropy
        self._grids = [one.grid() for one in space.settings]
        self.logits: dict[Place, list[float]] = {("size", 0, 0): [0.0] * space.slots}
        for j in range(space.slots):
            self.logits["choice", j, 0] = [0.0] * len(space.choices)
            for i in range(j + 1, space.slots):
                self.logits["edge", j, i] = [0.0, 0.0]
        for k, grid in enumerate(self._grids):
            self.logits["setting", k, 0] = [0.0] * len(grid)
        self._first = {place: [0.0] * len(row) for place, row in self.logits.items()}
        self._second = {place: [0.0] * len(row) for place, row in self.logits.items()}
        self._steps = 0

    def ask(self, n: int, key: Key) -> list[Trial]:
        """Seeds that are not known yet, and then draws, equal ones among them."""
        rng = key.random()
        trials = [Trial(one, canonical(one)) for one in self.seeds]
        trials = [one for one in trials if one.graph not in self.known][:n]
        while len(trials) < n:
            genome = self.propose(rng)
            trials.append(Trial(genome, canonical(genome)))
        return trials

    def propose(self, rng: Random) -> Genome:
        """A draw."""
        size = 1 + self._draw(("size", 0, 0), rng)
        slots = []
        for j in range(size):
            place = size - 1 - j
            reads = sum(1 << i for i in range(j) if self._draw(("edge", place, size - 1 - i), rng))
            slots.append(Slot(self._draw(("choice", place, 0), rng), reads))
        settings = tuple(
            grid[self._draw(("setting", k, 0), rng)] for k, grid in enumerate(self._grids)
        )
        return Genome(tuple(self.space.fitted(slots, rng)), settings)

    def tell(self, results: Sequence[Told]) -> None:
        """One step of gradient ascent; failures are as bad as the worst of the others."""
        super().tell(results)
        seeds = set(self.seeds)
        drawn = [one for one in results if one.genome not in seeds]
        known = [self.fitness(one.value) for one in drawn if one.value.samples]
        if len(drawn) < 2 or not known:
            return
        scores = [self.fitness(one.value) if one.value.samples else min(known) for one in drawn]
        mean = math.fsum(scores) / len(scores)
        spread = math.sqrt(math.fsum((one - mean) ** 2 for one in scores) / len(scores))
        if spread < 1e-12:
            return  # all alike: nothing to learn
        total = {place: [0.0] * len(row) for place, row in self.logits.items()}
        for told, score in zip(drawn, scores, strict=True):
            # Against the mean of the others.
            advantage = (score - mean) / spread * len(scores) / (len(scores) - 1)
            for place, taken in self._decisions(told.genome):
                for k, chance in enumerate(self._chances(place)):
                    total[place][k] += advantage * ((k == taken) - chance) / len(drawn)
        self._climb(total)

    def _decisions(self, genome: Genome) -> Iterator[tuple[Place, int]]:
        """What was decided to draw this genome."""
        size = len(genome.slots)
        yield ("size", 0, 0), size - 1
        for j, slot in enumerate(genome.slots):
            place = size - 1 - j
            yield ("choice", place, 0), slot.choice
            for i in range(j):
                yield ("edge", place, size - 1 - i), slot.reads >> i & 1
        for k, value in enumerate(genome.settings):
            yield ("setting", k, 0), self._grids[k].index(value)

    def _climb(self, gradient: dict[Place, list[float]]) -> None:
        """Adam (Kingma and Ba 2015), with the gradient of the entropy added."""
        self._steps += 1
        for place, row in self.logits.items():
            chances = self._chances(place)
            surprise = [-math.log(max(p, 1e-300)) for p in chances]
            entropy = math.fsum(p * s for p, s in zip(chances, surprise, strict=True))
            for k, slope in enumerate(gradient[place]):
                slope += self.entropy * chances[k] * (surprise[k] - entropy)
                first = self._first[place][k] = 0.9 * self._first[place][k] + 0.1 * slope
                second = self._second[place][k] = 0.999 * self._second[place][k] + 0.001 * slope**2
                lift = first / (1 - 0.9**self._steps)
                row[k] += self.rate * lift / (math.sqrt(second / (1 - 0.999**self._steps)) + 1e-8)

    def _chances(self, place: Place) -> list[float]:
        row = self.logits[place]
        top = max(row)
        raw = [math.exp(one - top) for one in row]
        total = math.fsum(raw)
        return [one / total for one in raw]

    def _draw(self, place: Place, rng: Random) -> int:
        left = rng.random()
        chances = self._chances(place)
        for k, chance in enumerate(chances):
            left -= chance
            if left < 0:
                return k
        return len(chances) - 1
