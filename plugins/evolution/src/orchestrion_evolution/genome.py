"""Graphs of agents as genomes, with one canonical form for equal graphs.

Slot j of a genome holds a choice ("agent" or "agent:option", by its index in `Space.choices`) and
the earlier slots whose results it reads, as a bit mask. A slot with an empty mask reads only the
problem. The last slot is the output. Inputs point backwards, so every genome is an acyclic graph,
whatever mutation and crossover do. A slot that the output does not depend on is dead: it stays in
the genome, but it never runs.

`canonical` drops dead slots and sorts the others by what the graph alone determines: depth, last
input, choice. Two genomes have equal canonical forms exactly if they describe the same graph. Only
canonical forms run, and policy `dag` runs the nodes in the order of the canonical form.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from random import Random
from typing import Literal, NamedTuple

from attrs import Factory, frozen
from orchestrion_dag import DagPolicy, Edge, Graph, Node

from orchestrion import JSON

OnError = Literal["fail", "skip", "continue"]

_DIGITS = 4
"""A searched number is rounded to this many significant digits: closer values count as equal."""


class Slot(NamedTuple):
    """A node of a graph: the index of its choice, and a bit mask of the slots that it reads."""

    choice: int
    reads: int = 0


class Genome(NamedTuple):
    """Slots, of which the last is the output, and one number for each searched setting."""

    slots: tuple[Slot, ...]
    settings: tuple[float, ...] = ()


def genome_from_json(data: JSON) -> Genome:
    """Return the genome that was written as JSON, where tuples become lists."""
    slots, settings = data
    return Genome(tuple(Slot(*slot) for slot in slots), tuple(settings))


# ------------------------------------------------------------------------------- search space


@frozen
class Range:
    """The values that a searched setting can take: some given ones, or numbers in an interval.

    A genome holds the index of a value in `values`, or the number itself.

    Args:
        values: the possible values, at least two.
        low: smallest number, instead of `values`.
        high: largest number.
        whole: search whole numbers only.
        log: search ratios instead of differences; `low` must be above 0.
    """

    values: Sequence[JSON] = ()
    low: float | None = None
    high: float | None = None
    whole: bool = False
    log: bool = False

    def __attrs_post_init__(self) -> None:
        if self.values:
            if len(self.values) < 2 or self.low is not None or self.high is not None:
                raise ValueError("give two values or more, or `low` and `high`, not both")
            return
        if self.low is None or self.high is None or not self.low < self.high:
            raise ValueError("give `values`, or `low` and a greater `high`")
        if self.log and self.low <= 0:
            raise ValueError(f"`log` needs a range above 0, and `low` is {self.low}")

    def draw(self, rng: Random) -> float:
        """Return a random value, uniform on the scale that is searched."""
        if self.values:
            return rng.randrange(len(self.values))
        low, high = self._ends()
        return self.rounded(self._from_scale(rng.uniform(low, high)))

    def middle(self) -> float:
        """Return the value in the middle of the range, with which a search begins."""
        if self.values:
            return len(self.values) // 2
        low, high = self._ends()
        return self.rounded(self._from_scale(low + (high - low) / 2))

    def step(self, value: float, rng: Random) -> float:
        """Return a number near this one (a normal step), or any other of the given values."""
        if self.values:
            return rng.choice([i for i in range(len(self.values)) if i != value])
        low, high = self._ends()
        position = math.log(value) if self.log else value
        moved = self.rounded(self._from_scale(position + rng.gauss(0.0, 0.2 * (high - low))))
        if moved == value and self.whole:
            moved = self.rounded(value + rng.choice((-1, 1)))
        return moved

    def rounded(self, number: float) -> float:
        """Return the nearest number in the interval, rounded to what counts as different."""
        number = round(number) if self.whole else float(f"{number:.{_DIGITS}g}")
        assert self.low is not None
        assert self.high is not None
        return min(max(number, self.low), self.high)

    def in_config(self, value: float) -> JSON:
        """Return what the config gets for a genome's value."""
        if self.values:
            return self.values[int(value)]
        return int(value) if self.whole else float(value)

    def _ends(self) -> tuple[float, float]:
        """Return both ends on the scale that is searched."""
        assert self.low is not None
        assert self.high is not None
        return (math.log(self.low), math.log(self.high)) if self.log else (self.low, self.high)

    def _from_scale(self, position: float) -> float:
        return math.exp(position) if self.log else position


@frozen
class Space:
    """All graphs of up to `slots` nodes over some choices, with the settings searched beside them.

    Args:
        choices: what a node can run, "agent" or "agent:option".
        slots: maximum number of nodes.
        fan_in: maximum number of inputs of a node; None for no limit.
        settings: searched settings by config path, e.g. "agents.writer.instructions".
    """

    choices: Sequence[str]
    slots: int = 5
    fan_in: int | None = None
    settings: Mapping[str, Range] = Factory(dict)

    def draw(self, rng: Random) -> Genome:
        """Return a random genome: each slot is empty or any choice, each edge exists or not."""
        kinds, count = len(self.choices), 0
        while not count:
            count = sum(rng.randrange(kinds + 1) < kinds for _ in range(self.slots))
        slots = [Slot(rng.randrange(kinds), rng.getrandbits(j)) for j in range(count)]
        limited = tuple(self.limit_inputs(slots, rng))
        return Genome(limited, tuple(values.draw(rng) for values in self.settings.values()))

    def limit_inputs(self, slots: Sequence[Slot], rng: Random) -> list[Slot]:
        """Return the slots; a slot with more than `fan_in` inputs keeps a random part of them."""
        if self.fan_in is None:
            return list(slots)
        return [
            slot
            if slot.reads.bit_count() <= self.fan_in
            else slot._replace(
                reads=sum(1 << i for i in rng.sample(indices_of(slot.reads), self.fan_in))
            )
            for slot in slots
        ]

    def singles(self) -> list[Genome]:
        """Return one genome for each choice alone, with every setting in the middle."""
        settings = tuple(values.middle() for values in self.settings.values())
        return [Genome((Slot(choice),), settings) for choice in range(len(self.choices))]

    def overlay(self, genome: Genome) -> dict[str, JSON]:
        """Return the settings of a genome by config path."""
        return {
            path: values.in_config(value)
            for (path, values), value in zip(self.settings.items(), genome.settings, strict=True)
        }


# ------------------------------------------------------------------------------ canonical form


def indices_of(mask: int) -> list[int]:
    """Return the indices of the bits that are set, in ascending order."""
    return [i for i in range(mask.bit_length()) if mask >> i & 1]


def size_of(graph: Genome) -> tuple[int, int]:
    """Return the numbers of nodes and edges; of equally good graphs the smaller is preferred."""
    return len(graph.slots), sum(slot.reads.bit_count() for slot in graph.slots)


def live_slots(slots: Sequence[Slot]) -> list[int]:
    """Return the indices of the slots that the output depends on, in ascending order."""
    mask = 1 << (len(slots) - 1)
    for j in reversed(range(len(slots))):
        if mask >> j & 1:
            mask |= slots[j].reads
    return indices_of(mask)


def canonical(genome: Genome) -> Genome:
    """Return the graph of a genome: no dead slots, and the one order that equal graphs share."""
    return Genome(_canonical(genome.slots), genome.settings)


@lru_cache(1 << 16)
def _canonical(slots: tuple[Slot, ...]) -> tuple[Slot, ...]:
    live = live_slots(slots)
    position = {old: new for new, old in enumerate(live)}
    choices = [slots[old].choice for old in live]
    inputs = [[position[i] for i in indices_of(slots[old].reads)] for old in live]
    readers: list[list[int]] = [[] for _ in live]
    depths: list[int] = []
    for j, reads in enumerate(inputs):
        depths.append(1 + max((depths[i] for i in reads), default=-1))
        for i in reads:
            readers[i].append(j)
    colours = _refined_colours(choices, inputs, readers)
    best: list[Slot] = []

    def extend(order: dict[int, int], sorted_slots: list[Slot]) -> None:
        nonlocal best
        if len(sorted_slots) == len(live):
            if not best or sorted_slots < best:
                best = list(sorted_slots)
            return
        ready = []
        for j in range(len(live)):
            if j not in order and all(i in order for i in inputs[j]):
                reads = sum(1 << order[i] for i in inputs[j])
                ready.append(((depths[j], reads.bit_length(), colours[j], reads), j))
        smallest = min(ready)[0]
        # Nodes that tie are tried in every order. Of ties with the same readers one is enough.
        tried: set[tuple[int, ...]] = set()
        for rank, j in ready:
            if rank == smallest and tuple(readers[j]) not in tried:
                tried.add(tuple(readers[j]))
                extend({**order, j: len(sorted_slots)}, [*sorted_slots, Slot(choices[j], rank[-1])])

    extend({}, [])
    return tuple(best)


def _refined_colours(
    choices: list[int], inputs: list[list[int]], readers: list[list[int]]
) -> list[int]:
    """Refine colours until nodes of one colour have the same choice and alike neighbours."""
    colours = _ranks_of_values(choices)
    while True:
        neighbourhoods = [
            (colour, sorted(colours[i] for i in inputs[j]), sorted(colours[k] for k in readers[j]))
            for j, colour in enumerate(colours)
        ]
        finer = _ranks_of_values(neighbourhoods)
        if max(finer) == max(colours):
            return finer
        colours = finer


def _ranks_of_values(values: Sequence[object]) -> list[int]:
    """Return the rank of each value among the different values."""
    different: list[object] = []
    for value in sorted(values):  # type: ignore[type-var]
        if not different or different[-1] != value:
            different.append(value)
    return [different.index(value) for value in values]


def voting(single: Genome, aggregator: int, count: int) -> Genome:
    """Return the graph in which an aggregator reads `count` nodes that run the same choice."""
    voters = (single.slots[0],) * count
    return canonical(Genome((*voters, Slot(aggregator, (1 << count) - 1)), single.settings))


# ----------------------------------------------------------------------- graphs of policy `dag`


def graph_of(genome: Genome, names: Sequence[str], on_error: OnError = "continue") -> Graph:
    """Return the graph that policy `dag` runs for a canonical genome.

    Nodes have the names of what they run; a second one is called "name#2".

    Args:
        genome: in canonical form.
        names: the choices, "agent" or "agent:option".
        on_error: of every node, see `Node`.
    """
    nodes = _node_names(genome, names)
    return Graph(
        nodes={
            node: Node(agent=names[slot.choice], on_error=on_error)
            for node, slot in zip(nodes, genome.slots, strict=True)
        },
        edges=[
            Edge(nodes[i], nodes[j])
            for j, slot in enumerate(genome.slots)
            for i in indices_of(slot.reads)
        ],
        outputs=[nodes[-1]],
    )


def as_text(genome: Genome, names: Sequence[str]) -> str:
    """Return one line like "coder(planner, searcher)"; a shared node shows its inputs once."""
    nodes = _node_names(genome, names)
    expanded: set[int] = set()

    def expression(j: int) -> str:
        if j in expanded or not genome.slots[j].reads:
            return nodes[j]
        expanded.add(j)
        inputs = ", ".join(expression(i) for i in indices_of(genome.slots[j].reads))
        return f"{nodes[j]}({inputs})"

    return expression(len(genome.slots) - 1)


def _node_names(genome: Genome, names: Sequence[str]) -> list[str]:
    counts: Counter[str] = Counter()
    nodes = []
    for slot in genome.slots:
        name = names[slot.choice].replace(".", "_")  # "a.b" would be field b of node a
        counts[name] += 1
        nodes.append(name if counts[name] == 1 else f"{name}#{counts[name]}")
    return nodes


def genome_of(policy: DagPolicy, names: Sequence[str]) -> Genome | None:
    """Return the genome of a policy's graph.

    None if the graph has something that genomes cannot express (conditions, loops, other joins,
    fallbacks, several outputs), or runs something that is not among `names`.
    """
    plan = policy.plan
    if len(plan.outputs) != 1 or not plan.steps or plan.first:
        return None
    numbers = {name: number for number, name in enumerate(names)}
    reads = [0] * len(plan.steps)
    slots = []
    for step in plan.steps:
        plain = step.body is None and len(step.tries) == 1 and step.node.join == "all"
        if not plain or not step.simple or (step.links and step.is_output):
            return None
        agent, option = step.tries[0]
        choice = numbers.get(agent if option is None else f"{agent}:{option}")
        if choice is None:
            return None
        slots.append(Slot(choice, reads[step.place]))
        for link in step.links:
            reads[link.target] |= 1 << step.place
    return Genome(tuple(slots[: plan.outputs[0] + 1]))  # slots after the output are dead
