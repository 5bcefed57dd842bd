"""Who follows whom: how often an agent had its turn after another, at places of a training."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise, product

from attrs import frozen

from orchestrion.runs import Iteration, RunReader
from orchestrion_studio.page import Data

PLACES = 24
"""Number of iterations shown, evenly spaced and including the last one."""
EPISODES = 32
"""Limit of training episodes read per iteration."""
KEPT = 256
"""Limit of iterations kept in memory."""
START, END = "(start)", "(end)"
Order = Sequence[tuple[int, str]]


@frozen
class _TurnSummary:
    """What the turns of some episodes say: how many, the edges, and by agent turns and ranks."""

    episodes: int
    edges: list[Data]
    seen: Counter[str]
    ranks: dict[str, float]


_known: dict[tuple[object, ...], _TurnSummary] = {}


def topology_of(
    reader: RunReader, iterations: Sequence[Iteration], colours: Mapping[str, int]
) -> Data | None:
    """Return nodes with places that never change, and at each iteration looked at the edges.

    Of a run that does not train, the evaluation of its team takes the place of iterations.

    An edge leads from each turn of a decision to each turn of the next one, in equal parts; its
    share is out of all such steps. None if no turns are stored.
    """
    places = sorted({round(i * (len(iterations) - 1) / (PLACES - 1)) for i in range(PLACES)})
    looked = [(f"iteration {i + 1}", _at(reader, iterations[i])) for i in places if iterations]
    own = next(iter(reader.evaluation_names()), "")
    if own and not any(step.episodes for _, step in looked):  # it did not train
        orders = reader.turn_orders(source=own, limit=EPISODES)
        looked = [(f"evaluation of {own}", _summary(orders))]
    seen, ranks = Counter[str](), Counter[str]()
    for _, step in looked:
        seen.update(step.seen)
        ranks.update(step.ranks)
    if not seen:
        return None
    names = sorted(seen, key=lambda agent: (ranks[agent] / seen[agent], agent))
    steps = [
        {"title": title, "episodes": step.episodes, "edges": step.edges}
        for title, step in looked
        if step.episodes
    ]
    nodes = [{**node, "colour": colours.get(node["name"])} for node in _nodes(names)]
    return {"nodes": nodes, "steps": steps}


def _at(reader: RunReader, iteration: Iteration) -> _TurnSummary:
    """Return what an iteration's first episodes say; what was read once is kept."""
    # An iteration that is committed again, after a resume, took another time.
    key = (reader.directory, iteration.stage, iteration.iteration, iteration.seconds)
    if key not in _known:
        looked = _summary(reader.turn_orders(iteration.stage, iteration.iteration, EPISODES))
        if len(_known) >= KEPT:
            _known.pop(next(iter(_known)), None)
        _known[key] = looked
    return _known[key]


def _summary(orders: Sequence[Order]) -> _TurnSummary:
    orders = [order for order in orders if order]
    seen, ranks, weights = Counter[str](), dict[str, float](), dict[tuple[str, str], float]()
    for order in orders:
        groups: dict[int, list[str]] = {}
        for number, (decision, agent) in enumerate(order):
            groups.setdefault(decision, []).append(agent)
            ranks[agent] = ranks.get(agent, 0.0) + (number + 1) / (len(order) + 1)
            seen[agent] += 1
        chain = [[START], *(groups[decision] for decision in sorted(groups)), [END]]
        for before, after in pairwise(chain):
            for pair in product(before, after):
                weights[pair] = weights.get(pair, 0.0) + 1 / (len(before) * len(after))
    total = sum(weights.values())
    edges = [
        {"from": first, "to": second, "share": weight / total}
        for (first, second), weight in sorted(weights.items(), key=lambda item: -item[1])
    ]
    return _TurnSummary(len(orders), edges, seen, ranks)


def _nodes(names: Sequence[str]) -> list[Data]:
    """Return nodes on an ellipse, from the start at the left to the end at the right.

    Agents that come early stand at the left, above and below in turn, so that they keep their
    places while edges come and go.
    """
    nodes = [{"name": START, "x": 0.0, "y": 0.5}, {"name": END, "x": 1.0, "y": 0.5}]
    columns = math.ceil(len(names) / 2)
    for number, name in enumerate(names):
        angle = math.pi * (number // 2 + 1) / (columns + 1)
        above = number % 2 == 0
        nodes.append(
            {
                "name": name,
                "x": round(0.5 - 0.42 * math.cos(angle), 4),
                "y": round(0.5 - (1 if above else -1) * (0.18 + 0.3 * math.sin(angle)), 4),
            }
        )
    return nodes
