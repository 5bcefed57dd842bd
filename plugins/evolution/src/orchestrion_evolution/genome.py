"""Topologies as genomes: slots whose inputs only point backwards, and one form for equal graphs.

Slot j holds a choice ("agent" or "agent:option", as its place in `Space.choices`) and the earlier
slots that it reads, as bits; without any it reads the problem alone. The last slot is the output.
So every genome is a graph without a cycle, whatever mutation and crossover do. Slots that the
output does not depend on are dead: they are carried along, and cost nothing.

`canonical` drops what is dead and puts the rest into an order that depends on the graph alone: by
depth, by the last input, by choice; policy `dag` runs nodes in that order, too. Two genomes with
equal canonical forms are the same graph, and what runs is always that form.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from random import Random
from typing import NamedTuple

from attrs import frozen

from orchestrion import JSON

__all__ = [
    "Genome",
    "Setting",
    "Slot",
    "Space",
    "canonical",
    "depths_of",
    "extent",
    "live",
    "places",
    "valid",
]

_DIGITS = 4
"""Significant digits of a number that is searched: others are no different setting."""


class Slot(NamedTuple):
    """One place: what runs there, and the earlier slots it reads, as bits."""

    choice: int
    reads: int = 0


class Genome(NamedTuple):
    """Slots, the last of which is the output, and a value for each setting that is searched."""

    slots: tuple[Slot, ...]
    settings: tuple[float, ...] = ()


@frozen
class Setting:
    """A learnable setting of the config that is searched along with the graph.

    It has `values` to choose from (a genome then holds the place of one), or a range of numbers.

    Args:
        path: in the config, e.g. "agents.writer.instructions".
        values: what it may be.
        low: least number, instead of `values`.
        high: greatest number.
        whole: numbers without a fraction only.
        log: draw and step by ratios, not by differences.
    """

    path: str
    values: tuple[JSON, ...] = ()
    low: float = 0.0
    high: float = 1.0
    whole: bool = False
    log: bool = False

    def draw(self, rng: Random) -> float:
        """Any value, uniformly."""
        if self.values:
            return rng.randrange(len(self.values))
        return self.clipped(self._back(rng.uniform(self._at(self.low), self._at(self.high))))

    def step(self, value: float, rng: Random) -> float:
        """A value near this one: a bounded normal step of a number, else any other value."""
        if self.values:
            others = [n for n in range(len(self.values)) if n != value]
            return rng.choice(others) if others else value
        width = self._at(self.high) - self._at(self.low)
        moved = self.clipped(self._back(self._at(value) + rng.gauss(0.0, 0.2 * width)))
        if moved == value and self.whole:
            moved = self.clipped(value + rng.choice((-1, 1)))
        return moved

    def grid(self, most: int = 9) -> tuple[float, ...]:
        """All values of a genome, or at most so many spread over the range."""
        if self.values:
            return tuple(range(len(self.values)))
        low, high = self._at(self.low), self._at(self.high)
        spread = [self._back(low + (high - low) * i / (most - 1)) for i in range(most)]
        return tuple(dict.fromkeys(self.clipped(one) for one in spread))

    def allows(self, value: float) -> bool:
        """Whether a genome may hold this value."""
        if self.values:
            return value in range(len(self.values))
        return self.low <= value <= self.high and value == self.clipped(value)

    def clipped(self, value: float) -> float:
        """The nearest number within the range that counts as different."""
        value = round(value) if self.whole else float(f"{value:.{_DIGITS}g}")
        return min(max(value, self.low), self.high)

    def shown(self, value: float) -> JSON:
        """What goes into the config for a genome's value."""
        if self.values:
            return self.values[int(value)]
        return int(value) if self.whole else float(value)

    def _at(self, value: float) -> float:
        return math.log(value) if self.log else value

    def _back(self, value: float) -> float:
        return math.exp(value) if self.log else value


@frozen
class Space:
    """What is searched: graphs of at most `slots` nodes over some choices, and settings.

    Args:
        choices: what a node may run, "agent" or "agent:option".
        slots: nodes at most.
        fan_in: inputs of a node at most; None for no limit.
        settings: searched along with the graph.
    """

    choices: tuple[str, ...]
    slots: int = 5
    fan_in: int | None = None
    settings: tuple[Setting, ...] = ()

    def draw(self, rng: Random) -> Genome:
        """Any genome: each slot empty or any choice, each edge there or not, alike."""
        count = 0
        while not count:
            kinds = len(self.choices)
            count = sum(rng.randrange(kinds + 1) < kinds for _ in range(self.slots))
        slots = [Slot(rng.randrange(len(self.choices)), rng.getrandbits(j)) for j in range(count)]
        return Genome(tuple(self.fitted(slots, rng)), tuple(one.draw(rng) for one in self.settings))

    def fitted(self, slots: Sequence[Slot], rng: Random) -> list[Slot]:
        """These slots with no more inputs each than allowed."""
        if self.fan_in is None:
            return list(slots)
        return [
            slot
            if slot.reads.bit_count() <= self.fan_in
            else Slot(slot.choice, sum(1 << i for i in rng.sample(places(slot.reads), self.fan_in)))
            for slot in slots
        ]

    def singles(self) -> list[Genome]:
        """One node each, with the middle of every setting's range."""
        middle = tuple(grid[len(grid) // 2] for grid in (one.grid() for one in self.settings))
        return [Genome((Slot(choice),), middle) for choice in range(len(self.choices))]

    def overlay(self, genome: Genome) -> Mapping[str, JSON]:
        """Its settings, by config path."""
        return {
            one.path: one.shown(value)
            for one, value in zip(self.settings, genome.settings, strict=True)
        }


def places(bits: int) -> list[int]:
    """The slots that bits stand for, in order."""
    return [i for i in range(bits.bit_length()) if bits >> i & 1]


def valid(genome: Genome, space: Space) -> bool:
    """Whether a genome is one of the space."""
    most = space.slots if space.fan_in is None else space.fan_in
    return (
        0 < len(genome.slots) <= space.slots
        and all(
            0 <= slot.choice < len(space.choices)
            and 0 <= slot.reads < 1 << j
            and slot.reads.bit_count() <= most
            for j, slot in enumerate(genome.slots)
        )
        and len(genome.settings) == len(space.settings)
        and all(
            one.allows(value) for one, value in zip(space.settings, genome.settings, strict=True)
        )
    )


def live(slots: Sequence[Slot]) -> list[int]:
    """The slots that the output depends on, in order."""
    found = 1 << (len(slots) - 1)
    for j in reversed(range(len(slots))):
        if found >> j & 1:
            found |= slots[j].reads
    return places(found)


def extent(graph: Genome) -> tuple[int, int]:
    """Nodes and edges: of graphs that are as good as each other the smaller one is preferred."""
    return len(graph.slots), sum(slot.reads.bit_count() for slot in graph.slots)


# ------------------------------------------------------------------------------ canonical form


def canonical(genome: Genome) -> Genome:
    """The genome without dead slots, in the order that all genomes of the same graph share."""
    return Genome(_canonical(genome.slots), genome.settings)


@lru_cache(1 << 16)
def _canonical(slots: tuple[Slot, ...]) -> tuple[Slot, ...]:
    kept = live(slots)
    place = {old: new for new, old in enumerate(kept)}
    choices = [slots[old].choice for old in kept]
    inputs = [[place[i] for i in places(slots[old].reads)] for old in kept]
    return _ordered(choices, inputs)


def depths_of(inputs: Sequence[Sequence[int]]) -> list[int]:
    """How many nodes come before each on the longest way; inputs point backwards."""
    depths: list[int] = []
    for reads in inputs:
        depths.append(1 + max((depths[i] for i in reads), default=-1))
    return depths


def _ordered(choices: list[int], inputs: list[list[int]]) -> tuple[Slot, ...]:
    readers: list[list[int]] = [[] for _ in choices]
    for j, reads in enumerate(inputs):
        for i in reads:
            readers[i].append(j)
    colours, depths = _colours(choices, inputs, readers), depths_of(inputs)
    best: list[Slot] = []

    def place(done: dict[int, int], slots: list[Slot]) -> None:
        nonlocal best
        if len(slots) == len(choices):
            if not best or slots < best:
                best = list(slots)
            return
        ready = []
        for j in range(len(choices)):
            if j not in done and all(i in done for i in inputs[j]):
                reads = sum(1 << done[i] for i in inputs[j])
                ready.append(((depths[j], reads.bit_length(), colours[j], reads), j))
        least = min(ready)[0]
        # Where colours do not tell nodes apart every order is tried, but twins are all the same.
        tried: set[tuple[int, ...]] = set()
        for order, j in ready:
            twin = tuple(readers[j])
            if order == least and twin not in tried:
                tried.add(twin)
                place({**done, j: len(slots)}, [*slots, Slot(choices[j], order[-1])])

    place({}, [])
    return tuple(best)


def _colours(choices: list[int], inputs: list[list[int]], readers: list[list[int]]) -> list[int]:
    """Colour refinement: nodes of one colour have the same choice and alike surroundings."""
    colours = _ranked(choices)
    while True:
        finer = _ranked(
            [
                (
                    colours[j],
                    sorted(colours[i] for i in inputs[j]),
                    sorted(colours[k] for k in readers[j]),
                )
                for j in range(len(choices))
            ]
        )
        if max(finer) == max(colours):
            return finer
        colours = finer


def _ranked(values: Sequence[object]) -> list[int]:
    order: list[object] = []
    for value in sorted(values):  # type: ignore[type-var]
        if not order or order[-1] != value:
            order.append(value)
    return [order.index(value) for value in values]
