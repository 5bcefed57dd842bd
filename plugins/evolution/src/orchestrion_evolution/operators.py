"""Mutation and crossover: every child of a valid genome is a valid genome.

Each operator takes slots and gives slots; one that finds nothing to do gives them as they are. The
inputs of a slot that is moved, inserted or removed are renumbered, so they still point backwards.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from orchestrion_evolution.genome import Genome, Slot, Space, places

__all__ = ["OPERATORS", "crossover", "mutate"]

Slots = Sequence[Slot]
Operator = Callable[[Slots, Space, Random], Slots]

MORE = 0.35
"""How likely another mutation follows one."""
WHOLE = 0.3
"""How likely a child is cut from its parents once; else slot by slot."""


def change_choice(slots: Slots, space: Space, rng: Random) -> Slots:
    """Another agent, or another option, in one slot."""
    if len(space.choices) < 2:
        return slots
    j = rng.randrange(len(slots))
    choice = (slots[j].choice + rng.randrange(1, len(space.choices))) % len(space.choices)
    return _replaced(slots, j, Slot(choice, slots[j].reads))


def toggle_edge(slots: Slots, space: Space, rng: Random) -> Slots:
    """One edge more, or one less."""
    if len(slots) < 2:
        return slots
    j = rng.randrange(1, len(slots))
    return _replaced(slots, j, Slot(slots[j].choice, slots[j].reads ^ 1 << rng.randrange(j)))


def rewire(slots: Slots, space: Space, rng: Random) -> Slots:
    """One input replaced by another earlier slot."""
    fitting = [j for j, slot in enumerate(slots) if slot.reads and slot.reads + 1 < 1 << j]
    if not fitting:
        return slots
    j = rng.choice(fitting)
    reads = slots[j].reads
    old = rng.choice(places(reads))
    new = rng.choice([i for i in range(j) if not reads >> i & 1])
    return _replaced(slots, j, Slot(slots[j].choice, reads ^ 1 << old | 1 << new))


def insert_on_edge(slots: Slots, space: Space, rng: Random) -> Slots:
    """A new node between a node and one that it reads."""
    edges = [(i, j) for j, slot in enumerate(slots) for i in places(slot.reads)]
    if not edges or len(slots) >= space.slots:
        return slots
    i, j = rng.choice(edges)
    grown = _inserted(slots, j, Slot(rng.randrange(len(space.choices)), 1 << i))
    reader = grown[j + 1]
    return _replaced(grown, j + 1, Slot(reader.choice, reader.reads ^ 1 << i | 1 << j))


def add_node(slots: Slots, space: Space, rng: Random) -> Slots:
    """A new node with any inputs, for some node to read."""
    if len(slots) >= space.slots:
        return slots
    j = rng.randrange(len(slots))
    grown = _inserted(slots, j, Slot(rng.randrange(len(space.choices)), rng.getrandbits(j)))
    k = rng.randrange(j + 1, len(grown))
    return _replaced(grown, k, Slot(grown[k].choice, grown[k].reads | 1 << j))


def add_output(slots: Slots, space: Space, rng: Random) -> Slots:
    """A new output that reads the one there was, and perhaps others."""
    if len(slots) >= space.slots:
        return slots
    last = len(slots) - 1
    reads = 1 << last | (rng.getrandbits(last) if last and rng.random() < 0.5 else 0)
    return [*slots, Slot(rng.randrange(len(space.choices)), reads)]


def remove_output(slots: Slots, space: Space, rng: Random) -> Slots:
    """The last slot is gone; the one before it is the output."""
    return slots[:-1] if len(slots) > 1 else slots


def delete_and_bypass(slots: Slots, space: Space, rng: Random) -> Slots:
    """A node is gone; who read it reads what it read."""
    if len(slots) < 2:
        return slots
    gone = rng.randrange(len(slots) - 1)
    above = slots[gone].reads
    result = []
    for slot in (*slots[:gone], *slots[gone + 1 :]):
        reads = slot.reads | (above if slot.reads >> gone & 1 else 0)
        result.append(Slot(slot.choice, _without(reads, gone)))
    return result


def duplicate(slots: Slots, space: Space, rng: Random) -> Slots:
    """A second node like one, with the same inputs, read by the same nodes."""
    if len(slots) >= space.slots:
        return slots
    i = rng.randrange(len(slots))
    grown = list(_inserted(slots, i, slots[i]))
    if i == len(slots) - 1:  # nobody reads the output: the second one reads the first
        return _replaced(grown, i + 1, Slot(grown[-1].choice, grown[-1].reads | 1 << i))
    return [
        Slot(slot.choice, slot.reads | (slot.reads >> 1 & 1 << i) if j > i + 1 else slot.reads)
        for j, slot in enumerate(grown)
    ]


def swap_order(slots: Slots, space: Space, rng: Random) -> Slots:
    """Two slots change places; edges that would point forwards are dropped."""
    if len(slots) < 2:
        return slots
    a, b = sorted(rng.sample(range(len(slots)), 2))
    moved = {a: b, b: a}
    order = [moved.get(j, j) for j in range(len(slots))]
    return [
        Slot(
            slots[old].choice,
            sum(1 << moved.get(i, i) for i in places(slots[old].reads) if moved.get(i, i) < new),
        )
        for new, old in enumerate(order)
    ]


OPERATORS: tuple[Operator, ...] = (
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


def mutate(genome: Genome, space: Space, rng: Random) -> Genome:
    """A genome near this one: an operator or a step of a setting, sometimes several."""
    slots, settings = list(genome.slots), list(genome.settings)
    while True:
        n = rng.randrange(len(OPERATORS) + min(len(settings), len(OPERATORS)))
        if n < len(OPERATORS):
            slots = list(OPERATORS[n](slots, space, rng))
        else:
            i = rng.randrange(len(settings))
            settings[i] = space.settings[i].step(settings[i], rng)
        if rng.random() >= MORE:
            return Genome(tuple(space.fitted(slots, rng)), tuple(settings))


def crossover(first: Genome, second: Genome, space: Space, rng: Random) -> Genome:
    """A child of two: each slot, with all its inputs, is from one of them.

    Inputs still point backwards, since a slot's number does not change.
    """
    a, b = (first, second) if rng.random() < 0.5 else (second, first)
    most, least = len(a.slots), min(len(a.slots), len(b.slots))
    if rng.random() < WHOLE:
        cut = rng.randint(0, least)
        slots = [*b.slots[:cut], *a.slots[cut:]]
    else:
        slots = [
            b.slots[j] if j < least and rng.random() < 0.5 else a.slots[j] for j in range(most)
        ]
    settings = tuple(
        x if rng.random() < 0.5 else y for x, y in zip(a.settings, b.settings, strict=True)
    )
    return Genome(tuple(slots), settings)


def _replaced(slots: Slots, j: int, slot: Slot) -> list[Slot]:
    return [*slots[:j], slot, *slots[j + 1 :]]


def _inserted(slots: Slots, at: int, slot: Slot) -> list[Slot]:
    """The slots with one more at this place; inputs are renumbered."""
    low = (1 << at) - 1
    later = [Slot(s.choice, s.reads & low | (s.reads & ~low) << 1) for s in slots[at:]]
    return [*slots[:at], slot, *later]


def _without(reads: int, gone: int) -> int:
    low = (1 << gone) - 1
    return reads & low | reads >> 1 & ~low
