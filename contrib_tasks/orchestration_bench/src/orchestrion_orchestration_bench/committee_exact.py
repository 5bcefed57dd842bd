"""Committee as a decision process, all its committees at once, and their Pareto front."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from importlib.resources import files
from itertools import product

import numpy as np
from attrs import frozen

from orchestrion import Observation, UsageError
from orchestrion_orchestration_bench.committee import (
    STOP,
    Committee,
    Genotype,
    Slot,
    places,
    readers,
)
from orchestrion_orchestration_bench.process import Action, Floats, Ints, Layer, Process

LARGEST = 5
"""Slots up to which every committee is looked at; five make a million."""

CHUNK = 8192


@frozen
class FrontPoint:
    """A committee that no other one beats in both cost and accuracy."""

    cost: float
    accuracy: float
    genotype: Genotype


# ---------------------------------------------------------------------- many committees at once


def genotypes(task: Committee, slots: int) -> Iterator[tuple[Ints, Ints]]:
    """Yield every committee of exactly `slots` members, each once, in chunks.

    Yields types [g, slots] as places in the table and readers [g, slots] as bits; all members
    of one chunk's rows share their types.
    """
    edges = product(*(range(1, 1 << place) if place else (0,) for place in range(slots)))
    readings = np.array(list(edges), dtype=np.int64).reshape(-1, slots)
    for types in product(range(len(task.members)), repeat=slots):
        yield np.broadcast_to(np.array(types), readings.shape), readings


def accuracies(task: Committee, types: Ints, reading: Ints) -> Floats:
    """Return exact accuracy of many committees without empty slots [g].

    `types` are places in the table of members [g, slots], `reading` the earlier slots that read
    each slot, as bits [g, slots].
    """
    result = np.empty(len(types))
    for start in range(0, len(types), CHUNK):
        part = slice(start, start + CHUNK)
        result[part] = _accuracies(task, types[part], reading[part])
    return result


def _accuracies(task: Committee, types: Ints, reading: Ints) -> Floats:
    count, slots = types.shape
    patterns = np.array(list(product((1, -1), repeat=slots)))  # [p, slots]
    unique, which = np.unique(types, axis=0, return_inverse=True)
    chances = np.stack([_chances(task, row, patterns) for row in unique])  # [u, p]
    voters = list(task.members.values())
    own = np.array([voter.own if voter.right else 0.0 for voter in voters])
    message = np.array([voter.message for voter in voters])
    signal = np.array([float(bool(voter.right)) for voter in voters])
    says = np.zeros((slots, count, len(patterns)))
    for place in reversed(range(slots)):
        received = np.zeros((count, len(patterns)))
        for later in range(place + 1, slots):
            received += says[later] * (reading[:, later, None] >> place & 1)
        kind = types[:, place]
        total = own[kind, None] * patterns[:, place] + message[kind, None] * received
        tie = signal[kind, None] * patterns[:, place]
        says[place] = np.where(np.abs(total) < 1e-9, tie, np.sign(total))
    worth = (says[0] + 1) / 2  # right 1, silent a half, wrong 0
    result: Floats = (worth * chances[which.reshape(-1)]).sum(axis=1)
    return result


def _chances(task: Committee, types: Ints, patterns: Ints) -> Floats:
    """Return the chance of each pattern of signals, given the members' types."""
    voters = list(task.members.values())
    kinds = task.rules.questions
    total = np.zeros(len(patterns))
    for kind in range(kinds):
        joint = np.ones(len(patterns))
        for member in np.unique(types):
            right = voters[member].right[kind] if voters[member].right else 0.5
            rho = voters[member].rho
            signals = patterns[:, types == member]
            law = np.where(signals > 0, right, 1 - right)
            joint *= sum(
                (right if common > 0 else 1 - right)
                * (rho * (signals == common) + (1 - rho) * law).prod(axis=1)
                for common in (1, -1)
            )
        total += joint
    return total / kinds


# ---------------------------------------------------------------------- the front


def pareto_front(task: Committee, slots: int | None = None) -> tuple[FrontPoint, ...]:
    """Return every non-dominated (cost, accuracy), cheapest first, each with one committee.

    Raises:
        UsageError: there are too many committees to look at.
    """
    limit = slots or task.slots
    _check_size(limit)
    names, rules = task.rules.names, task.rules
    front: list[FrontPoint] = []
    for size in range(1, limit + 1):
        for types, reading in genotypes(task, size):
            costs = _costs(task, types, reading)
            scores = accuracies(task, types, reading)
            for i in _frontier(costs, scores):
                slots_ = tuple(
                    Slot(names[kind], int(bits))
                    for kind, bits in zip(types[i], reading[i], strict=True)
                )
                front.append(FrontPoint(rules.cost(slots_), float(scores[i]), slots_))
        costs, scores = np.array([(point.cost, point.accuracy) for point in front]).T
        front = [front[i] for i in _frontier(costs, scores)]
    return tuple(front)


def _check_size(slots: int) -> None:
    if slots > LARGEST:
        raise UsageError(
            f"committee: every committee of up to {LARGEST} slots can be looked at, not {slots}"
        )


def stored_front() -> tuple[FrontPoint, ...]:
    """Return the front of the default tables with five slots, as this module prints it."""
    text = (files("orchestrion_orchestration_bench") / "data" / "front_5.json").read_text("utf-8")
    return tuple(
        FrontPoint(
            point["cost"],
            point["accuracy"],
            tuple(
                Slot(slot["type"], sum(1 << i - 1 for i in slot["read_by"]))
                for slot in point["members"]
            ),
        )
        for point in json.loads(text)["front"]
    )


def _costs(task: Committee, types: Ints, reading: Ints) -> Floats:
    price = np.array([voter.cost for voter in task.members.values()])
    edges = (reading[:, :, None] >> np.arange(LARGEST) & 1).sum(axis=(1, 2))
    costs: Floats = price[types].sum(axis=1) + task.edge_cost * edges
    return costs


def _frontier(costs: Floats, scores: Floats) -> list[int]:
    """Return the places of the non-dominated points, cheapest first; of equal ones the first."""
    order = np.lexsort((-np.round(scores, 12), np.round(costs, 9)))
    best, kept = -np.inf, []
    for i in order:
        if scores[i] > best + 1e-12:
            best = scores[i]
            kept.append(int(i))
    return kept


# ---------------------------------------------------------------------- the process


def process_of(task: Committee) -> Process:
    """Return the process of building a committee; it is deterministic and fully observed.

    Raises:
        UsageError: there are too many committees to look at.
    """
    _check_size(task.slots)
    rules = task.rules
    columns = [(name, option) for name in rules.names for option in rules.options]
    actions = (*(Action(name, option) for name, option in columns), Action(STOP, final=True))
    kinds, reading = np.zeros((1, 0), np.int64), np.zeros((1, 0), np.int64)
    worth = np.zeros(1)
    layers = []
    for step in range(task.slots):
        placed = (Slot(rules.names[0]),) * step
        fits = [i for i, (_, option) in enumerate(columns) if rules.fits(placed, option)]
        added = np.array([[rules.names.index(columns[i][0]), readers(columns[i][1])] for i in fits])
        n, m = len(kinds), len(fits)
        layer = _layer(task, worth, columns, fits, _shower(task, kinds, reading))
        layers.append(layer)
        kinds = np.column_stack([np.repeat(kinds, m, axis=0), np.tile(added[:, 0], n)])
        reading = np.column_stack([np.repeat(reading, m, axis=0), np.tile(added[:, 1], n)])
        worth = accuracies(task, kinds, reading)
        if step + 1 == task.slots:
            layer.pay[:, fits] = worth.reshape(n, m)
        else:
            layer.to[:, fits, 0] = np.arange(n * m).reshape(n, m)
            layer.chance[:, fits, 0] = 1.0
    return Process(actions, len(columns), ("committee",), np.ones(1), tuple(layers))


def _layer(
    task: Committee,
    worth: Floats,
    columns: Sequence[tuple[str, str]],
    fits: Sequence[int],
    show: Callable[[int], Observation],
) -> Layer:
    """Return a layer whose placements lead nowhere yet; stopping pays what is there."""
    n, a = len(worth), len(columns) + 1
    pay, cost = np.zeros((n, a)), np.zeros((n, a))
    pay[:, -1] = worth
    for i in fits:
        cost[:, i] = task.rules.cost((Slot(columns[i][0], readers(columns[i][1])),))
    allowed = np.zeros((n, a), dtype=bool)
    allowed[:, [*fits, a - 1]] = True
    shape = (n, a, 1)
    group: Ints = np.zeros(n, np.int64)
    return Layer(group, np.zeros(shape, np.int64), np.zeros(shape), pay, cost, allowed, show)


def _shower(task: Committee, kinds: Ints, reading: Ints) -> Callable[[int], Observation]:
    def show(i: int) -> Observation:
        pairs = zip(kinds[i].tolist(), reading[i].tolist(), strict=True)
        return task.rules.observe(tuple(Slot(task.rules.names[t], bits) for t, bits in pairs))

    return show


def main() -> None:
    """Print the front of the default tables with five slots, as `data/front_5.json` has it."""
    points = [
        {
            "cost": round(point.cost, 10),
            "accuracy": point.accuracy,
            "members": [
                {"type": slot.type, "read_by": places(slot.readers)} for slot in point.genotype
            ],
        }
        for point in pareto_front(Committee(slots=5))
    ]
    lines = ",\n".join(f"    {json.dumps(point)}" for point in points)
    print(f'{{\n  "slots": 5,\n  "front": [\n{lines}\n  ]\n}}')


if __name__ == "__main__":
    main()
