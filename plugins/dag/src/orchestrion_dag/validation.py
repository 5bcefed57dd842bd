"""Validation of graphs before anything runs.

Every problem names its place: `edges[2]`, `nodes.review.inputs.draft`, `nodes.polish.body.chain`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from graphlib import CycleError

from orchestrion import Member, choice_name, choices, did_you_mean
from orchestrion_dag.contents import RESERVED, Checker
from orchestrion_dag.graph import START, Graph, Node, Wiring, wire
from orchestrion_dag.order import can_run, leads_to, outgoing, sources, topological

MAX_TURNS = 1_000_000
"""Of one loop: each possible turn has an index."""
_NAME = re.compile(r"[A-Za-z_][\w-]*(?::\S+)?(?:#\d+)?")


def validate(graph: Graph | Wiring, roster: Sequence[Member] | None = None) -> Wiring:
    """Return the graph with every shorthand expanded; agents are checked if there is a roster.

    Raises:
        ValueError: the graph is invalid; lists all problems with their places, joined by "; ".
    """
    wiring = wire(graph) if isinstance(graph, Graph) else graph
    problems = problems_of(wiring)
    if not problems and roster is not None:
        problems = list(check_roster(wiring, roster))
    if problems:
        raise ValueError("; ".join(problems))
    return wiring


def problems_of(wiring: Wiring) -> list[str]:
    """Return everything that is wrong with a graph, apart from names of agents."""
    problems = [*wiring.problems, *_names(wiring)]
    if problems:
        return problems
    for name, node in wiring.nodes.items():
        problems += [f"nodes.{name}.{text}" for text in _settings(node)]
    try:
        order = topological(wiring)
    except CycleError as error:
        nodes = error.args[1][:-1]
        first = nodes.index(min(nodes, key=list(wiring.nodes).index))
        cycle = [*nodes[first:], *nodes[: first + 1]]
        problems.append(
            f"edges: {' -> '.join(cycle)} is a cycle; to repeat something, make it the body of a "
            "node with `until` and `max`"
        )
        return problems
    problems += [*Checker(wiring).edges(), *_bodies(wiring)]
    return problems or [*_joins(wiring, order)]


def check_roster(wiring: Wiring, roster: Sequence[Member], at: str = "") -> Iterator[str]:
    """Yield agents that are not in the team, or are named without one of their options."""
    members = {member.name: member for member in roster}
    names = {choice_name(choice) for choice in choices(roster)}
    for name, node in wiring.nodes.items():
        if node.body is not None:
            yield from check_roster(wire(node.body), roster, f"{at}nodes.{name}.body.")
            continue
        for field in ("agent", "fallback"):
            wanted = getattr(node, field)
            if not wanted or wanted in names:
                continue
            where = f"{at}nodes.{name}.{field}"
            if wanted in members:
                options = ", ".join(members[wanted].options)
                yield f"{where}: {wanted!r} needs one of its options: {options}"
            else:
                close = did_you_mean(wanted, [*names])
                yield f"{where}: no agent {wanted!r} in the team{close} ({', '.join(members)})"


# ------------------------------------------------------------------------------------ shape


def _names(wiring: Wiring) -> Iterator[str]:
    if not wiring.nodes:
        yield "the graph has no nodes; give `chain`, `nodes` or `edges`"
    for name in wiring.nodes:
        if name in RESERVED:
            yield (
                f"nodes.{name}: {name!r} is a reserved name; give the node another name and this "
                "`agent`"
            )
        elif not _NAME.fullmatch(name):
            yield f"nodes.{name}: {name!r} is not a valid name; use letters, digits, '-' and '_'"
    seen: set[tuple[str, ...]] = set()
    for place, edge in zip(wiring.labels, wiring.edges, strict=True):
        if edge.target == START:
            yield f"{place}: no edge can lead to {START!r}"
        for name in (edge.source, edge.target):
            if name != START and name not in wiring.nodes:
                yield f"{place}: no node is called {name!r}{did_you_mean(name, wiring.nodes)}"
        arrow = (edge.source, edge.output, edge.target, edge.input, edge.on, edge.when)
        if arrow in seen:
            yield f"{place}: {edge.source} -> {edge.target} is listed twice"
        seen.add(arrow)
    for i, name in enumerate(wiring.outputs):
        if name not in wiring.nodes:
            yield f"outputs: no node is called {name!r}{did_you_mean(name, wiring.nodes)}"
        elif name in wiring.outputs[:i]:
            yield f"outputs: {name!r} is listed twice"


def _settings(node: Node) -> Iterator[str]:
    if node.body is None:
        for name in ("until", "max"):
            if getattr(node, name):
                yield f"{name}: has no effect without a `body`; remove it"
    else:
        for name in ("agent", "retries", "timeout", "fallback", "reuse"):
            if getattr(node, name):
                yield f"{name}: has no effect on a node with a `body`; remove it"
        if node.until and node.max is None:
            yield "max: needed with `until`, so that the loop ends"
    if (node.join == "k_of_n") != bool(node.k):
        yield "k: needed with `join: k_of_n`, and only there"


def _bodies(wiring: Wiring) -> Iterator[str]:
    for name, node in wiring.nodes.items():
        if node.body is None:
            continue
        inner = wire(node.body)
        problems = problems_of(inner)
        if not problems and (turns := _turns(node)) > MAX_TURNS:
            yield (
                f"nodes.{name}.max: the loop could take {turns:,} turns; the maximum is "
                f"{MAX_TURNS:,}"
            )
        yield from (f"nodes.{name}.body.{problem}" for problem in problems)
        if node.until and not problems:
            yield from Checker(inner).until(f"nodes.{name}.until", node.until)


def _turns(node: Node) -> int:
    """Return the maximum number of turns of a node."""
    if node.body is None:
        return node.retries + 1 + bool(node.fallback)
    return (node.max or 1) * sum(map(_turns, wire(node.body).nodes.values()))


def _joins(wiring: Wiring, order: Sequence[str]) -> Iterator[str]:
    """Yield joins that can never run, unreachable outputs, and nodes that lead to no output."""
    runs, maximum = can_run(wiring, order)
    dead = [name for name in order if name not in runs]
    into = sources(wiring.edges)
    for name in dead:
        # A node that only follows from another unreachable one is not reported again.
        if any(source in dead for source in into[name]) and name not in wiring.outputs:
            continue
        node = wiring.nodes[name]
        join = f"k_of_n with k = {node.k}" if node.join == "k_of_n" else node.join
        edges = f"of the edges from {', '.join(into[name])} at most {maximum[name]}"
        kind = "an output that is never reached; " if name in wiring.outputs else ""
        what = f"its join ({join}) can never run: {edges} can be taken in one run"
        yield f"nodes.{name}: {kind}{what}"
    useful = leads_to(wiring, wiring.outputs)
    after = outgoing(wiring.edges)
    for name in wiring.nodes:
        if name not in useful:
            where = f" (it leads to {', '.join(e.target for e in after.get(name, ()))})"
            yield (
                f"nodes.{name}: it leads to no output{where if after.get(name) else ''}; the "
                f"outputs are {', '.join(wiring.outputs)}"
            )
