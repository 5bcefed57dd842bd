"""NSGA-II over graphs: quality up, cost down.

Source: Deb, Pratap, Agarwal and Meyarivan, A fast and elitist multiobjective genetic algorithm:
NSGA-II, IEEE Transactions on Evolutionary Computation 6(2), 2002; ranks of two objectives after
Jensen 2003. Deviations:

- Each graph is evaluated once; a genome whose graph is known is drawn again.
- The number of children is up to the caller of `ask`, and new values may replace old ones.
- Of values that are equal, only the two newest members survive. That lets the search drift along
  plateaus and keeps one value from filling the population.
- Of equal values on one front, all but the first have crowding distance 0.
- Mutation and crossover are those of graphs, below. A child of a valid genome is a valid genome.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from random import Random

from orchestrion_evolution.genome import Genome, Slot, Space, canonical, indices_of
from orchestrion_evolution.search import Evaluated, Search, Value

TWO_PARENTS = 0.4
"""Probability that a child has two parents."""
NOT_MUTATED = 0.3
"""Probability that a child of two parents is not mutated as well."""
ONE_MORE = 0.35
"""Probability that one more mutation follows a mutation."""
ONE_CUT = 0.3
"""Probability that crossover cuts the parents at one point; else it goes slot by slot."""
EQUAL_MEMBERS = 2
"""How many members of a population may have the same value."""


class NSGA2(Search):
    """Finds a whole front. Survivors are the first fronts, and of the last one the least crowded.

    Args:
        space: the graphs that are searched.
        size: how many genomes survive.
        cost_weight: quality that one unit of cost is worth, for `best` alone.
        seeds: genomes to try first; by default every choice alone.
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
        self.members: list[Genome] = []
        """The population, best first; dead slots are kept, as they may live again in a child."""
        self._order: list[tuple[int, float]] = []

    def propose(self, rng: Random) -> Genome:
        """Return a child, or a random genome until the population is full."""
        if len(self.members) < min(self.size, len(self.known) + 1) or not self.members:
            return self.space.draw(rng)
        child = self._parent(rng)
        if rng.random() < TWO_PARENTS:
            child = crossover(child, self._parent(rng), self.space, rng)
            if rng.random() < NOT_MUTATED:
                return child
        return mutate(child, self.space, rng)

    def _parent(self, rng: Random) -> Genome:
        """Return the winner of a tournament of two: by front, then by crowding distance."""
        first, second = rng.randrange(len(self.members)), rng.randrange(len(self.members))
        return self.members[second if self._order[second] < self._order[first] else first]

    def tell(self, results: Sequence[Evaluated]) -> None:
        """Take values; members and new graphs compete for a place in the population."""
        new = [genome for genome, _ in results if canonical(genome) not in self.known]
        super().tell(results)
        pool = {canonical(genome): genome for genome in (*self.members, *new)}
        pairs = [(genome, self.known[graph]) for graph, genome in pool.items()]
        pairs = _without_equals([pair for pair in pairs if pair[1].samples])
        order = front_order([value for _, value in pairs])[: self.size]
        self.members = [pairs[i][0] for i, _ in order]
        self._order = [rank for _, rank in order]


def _without_equals(pairs: Sequence[Evaluated]) -> list[Evaluated]:
    """For each value keep only the newest `EQUAL_MEMBERS` pairs."""
    counts: Counter[tuple[float, float]] = Counter()
    kept = []
    for genome, value in reversed(pairs):
        counts[value.quality, value.cost] += 1
        if counts[value.quality, value.cost] <= EQUAL_MEMBERS:
            kept.append((genome, value))
    return kept[::-1]


# --------------------------------------------------------------------------- fronts and crowding


def ranks(values: Sequence[Value]) -> list[int]:
    """Return the front of each value: 0 if no other dominates it, 1 without those of 0, ..."""
    # In this order a value can be dominated by earlier ones only. It belongs to the first front
    # whose latest value, which is the best so far, does not dominate it.
    order = sorted(range(len(values)), key=lambda i: (values[i].cost, -values[i].quality))
    result = [0] * len(values)
    latest: list[tuple[float, float]] = []  # by front: (-quality, cost), ascending
    for i in order:
        key = (-values[i].quality, values[i].cost)
        result[i] = bisect_left(latest, key)
        latest[result[i] : result[i] + 1] = [key]
    return result


def crowding(values: Sequence[Value]) -> list[float]:
    """Return the crowding distance of each value of one front (section III-B of the paper).

    It is infinite at both ends of the front, and 0 for all but the first of equal values.
    """
    result = [0.0] * len(values)
    firsts = {value[:2]: i for i, value in reversed(list(enumerate(values)))}
    order = sorted(firsts.values(), key=lambda i: values[i].cost)
    if not order:
        return result
    low, high = values[order[0]], values[order[-1]]
    for before, i, after in zip(order, order[1:], order[2:], strict=False):
        a, b = values[before], values[after]
        result[i] = _share(b.cost - a.cost, high.cost - low.cost)
        result[i] += _share(b.quality - a.quality, high.quality - low.quality)
    result[order[0]] = result[order[-1]] = math.inf
    return result


def _share(part: float, whole: float) -> float:
    return part / whole if math.isfinite(whole) and whole else 0.0


def front_order(values: Sequence[Value]) -> list[tuple[int, tuple[int, float]]]:
    """Return the index of each value with its rank and negative crowding distance, best first."""
    fronts: dict[int, list[int]] = {}
    for i, rank in enumerate(ranks(values)):
        fronts.setdefault(rank, []).append(i)
    order = []
    for rank, front in sorted(fronts.items()):
        distances = crowding([values[i] for i in front])
        order += [(i, (rank, -distance)) for i, distance in zip(front, distances, strict=True)]
    return sorted(order, key=lambda item: item[1])


def finalists(results: Sequence[Evaluated], count: int, best: Genome | None) -> list[Genome]:
    """Return the `count` graphs to measure again: the best, then front by front the least crowded.

    The first front alone is not enough where values are noisy: a lucky graph hides those that are
    as good.
    """
    order = [results[i][0] for i, _ in front_order([value for _, value in results])]
    return list(dict.fromkeys([*([] if best is None else [best]), *order]))[:count]


# ---------------------------------------------------------------------- crossover and mutation


def crossover(first: Genome, second: Genome, space: Space, rng: Random) -> Genome:
    """Return a child that has each slot, with all its inputs, from one of two genomes.

    Slots keep their number, so inputs still point backwards.
    """
    a, b = (first, second) if rng.random() < 0.5 else (second, first)
    common = min(len(a.slots), len(b.slots))
    if rng.random() < ONE_CUT:
        cut = rng.randint(0, common)
        slots = [*b.slots[:cut], *a.slots[cut:]]
    else:
        slots = [
            b.slots[j] if j < common and rng.random() < 0.5 else slot
            for j, slot in enumerate(a.slots)
        ]
    settings = tuple(
        x if rng.random() < 0.5 else y for x, y in zip(a.settings, b.settings, strict=True)
    )
    return Genome(tuple(slots), settings)


def mutate(genome: Genome, space: Space, rng: Random) -> Genome:
    """Return a genome near this one: one operator or one step of a setting, sometimes several."""
    slots, settings = list(genome.slots), list(genome.settings)
    while True:
        n = rng.randrange(len(OPERATORS) + min(len(settings), len(OPERATORS)))
        if n < len(OPERATORS):
            slots = OPERATORS[n](slots, space, rng)
        else:
            i = rng.randrange(len(settings))
            settings[i] = list(space.settings.values())[i].step(settings[i], rng)
        if rng.random() >= ONE_MORE:
            return Genome(tuple(space.limit_inputs(slots, rng)), tuple(settings))


# An operator returns new slots, or the same if it does not apply. Where it moves, inserts or
# removes a slot it renumbers the inputs, so that they still point backwards.
Slots = list[Slot]


def change_choice(slots: Slots, space: Space, rng: Random) -> Slots:
    """Let one slot run another agent or option."""
    if len(space.choices) < 2:
        return slots
    j = rng.randrange(len(slots))
    choice = (slots[j].choice + rng.randrange(1, len(space.choices))) % len(space.choices)
    return _replaced(slots, j, Slot(choice, slots[j].reads))


def toggle_edge(slots: Slots, space: Space, rng: Random) -> Slots:
    """Add or remove one edge."""
    if len(slots) < 2:
        return slots
    j = rng.randrange(1, len(slots))
    return _replaced(slots, j, Slot(slots[j].choice, slots[j].reads ^ 1 << rng.randrange(j)))


def rewire(slots: Slots, space: Space, rng: Random) -> Slots:
    """Replace one input by another earlier slot."""
    candidates = [j for j, slot in enumerate(slots) if slot.reads and slot.reads + 1 < 1 << j]
    if not candidates:
        return slots
    j = rng.choice(candidates)
    reads = slots[j].reads
    old = rng.choice(indices_of(reads))
    new = rng.choice([i for i in range(j) if not reads >> i & 1])
    return _replaced(slots, j, Slot(slots[j].choice, reads ^ 1 << old | 1 << new))


def insert_on_edge(slots: Slots, space: Space, rng: Random) -> Slots:
    """Put a new node between a node and one of its inputs."""
    edges = [(i, j) for j, slot in enumerate(slots) for i in indices_of(slot.reads)]
    if not edges or len(slots) >= space.slots:
        return slots
    i, j = rng.choice(edges)
    grown = _inserted(slots, j, Slot(rng.randrange(len(space.choices)), 1 << i))
    reader = grown[j + 1]
    return _replaced(grown, j + 1, Slot(reader.choice, reader.reads ^ 1 << i | 1 << j))


def add_node(slots: Slots, space: Space, rng: Random) -> Slots:
    """Add a node with random inputs that some later node reads."""
    if len(slots) >= space.slots:
        return slots
    j = rng.randrange(len(slots))
    grown = _inserted(slots, j, Slot(rng.randrange(len(space.choices)), rng.getrandbits(j)))
    k = rng.randrange(j + 1, len(grown))
    return _replaced(grown, k, Slot(grown[k].choice, grown[k].reads | 1 << j))


def add_output(slots: Slots, space: Space, rng: Random) -> Slots:
    """Add a new output that reads the old one, and sometimes others."""
    if len(slots) >= space.slots:
        return slots
    last = len(slots) - 1
    reads = 1 << last | (rng.getrandbits(last) if last and rng.random() < 0.5 else 0)
    return [*slots, Slot(rng.randrange(len(space.choices)), reads)]


def remove_output(slots: Slots, space: Space, rng: Random) -> Slots:
    """Remove the last slot; the one before it becomes the output."""
    return slots[:-1] if len(slots) > 1 else slots


def delete_and_bypass(slots: Slots, space: Space, rng: Random) -> Slots:
    """Remove a node; its readers read its inputs instead."""
    if len(slots) < 2:
        return slots
    j = rng.randrange(len(slots) - 1)
    low = (1 << j) - 1
    result = []
    for slot in (*slots[:j], *slots[j + 1 :]):
        reads = slot.reads | (slots[j].reads if slot.reads >> j & 1 else 0)
        result.append(Slot(slot.choice, reads & low | reads >> 1 & ~low))
    return result


def duplicate(slots: Slots, space: Space, rng: Random) -> Slots:
    """Add a copy of a node with the same inputs, read by the same nodes."""
    if len(slots) >= space.slots:
        return slots
    i = rng.randrange(len(slots))
    grown = _inserted(slots, i, slots[i])
    if i == len(slots) - 1:  # nobody reads the output, so the copy reads the original
        return _replaced(grown, i + 1, Slot(grown[-1].choice, grown[-1].reads | 1 << i))
    return [
        Slot(slot.choice, slot.reads | (slot.reads >> 1 & 1 << i) if j > i + 1 else slot.reads)
        for j, slot in enumerate(grown)
    ]


def swap_order(slots: Slots, space: Space, rng: Random) -> Slots:
    """Swap two slots; edges that would point forwards are dropped."""
    if len(slots) < 2:
        return slots
    a, b = rng.sample(range(len(slots)), 2)
    order = list(range(len(slots)))
    order[a], order[b] = b, a  # its own inverse
    return [
        Slot(
            slots[old].choice,
            sum(1 << order[i] for i in indices_of(slots[old].reads) if order[i] < new),
        )
        for new, old in enumerate(order)
    ]


OPERATORS: tuple[Callable[[Slots, Space, Random], Slots], ...] = (
    change_choice,
    toggle_edge,
    rewire,
    insert_on_edge,
    add_node,
    add_output,
    remove_output,
    delete_and_bypass,
    duplicate,
    swap_order,
)


def _replaced(slots: Slots, j: int, slot: Slot) -> Slots:
    return [*slots[:j], slot, *slots[j + 1 :]]


def _inserted(slots: Slots, j: int, slot: Slot) -> Slots:
    """Return the slots with one more at index `j`; the inputs of later ones are renumbered."""
    low = (1 << j) - 1
    later = [Slot(s.choice, s.reads & low | (s.reads & ~low) << 1) for s in slots[j:]]
    return [*slots[:j], slot, *later]
