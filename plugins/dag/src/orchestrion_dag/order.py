"""The order of a graph, and which of its nodes can run at all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from graphlib import TopologicalSorter
from itertools import islice, product

from orchestrion_dag.conditions import (
    Condition,
    ConditionError,
    Constant,
    Operation,
    Path,
    Value,
    compiled,
    parse,
    paths,
    same,
)
from orchestrion_dag.graph import START, Edge, Wiring

MAX_SCENARIOS = 4096


def outgoing(edges: Iterable[Edge]) -> dict[str, list[Edge]]:
    """Return edges by source."""
    by_source: dict[str, list[Edge]] = {}
    for edge in edges:
        by_source.setdefault(edge.source, []).append(edge)
    return by_source


def sources(edges: Iterable[Edge]) -> dict[str, list[str]]:
    """Return the sources of edges by target."""
    by_target: dict[str, list[str]] = {}
    for edge in edges:
        by_target.setdefault(edge.target, []).append(edge.source)
    return by_target


def topological(wiring: Wiring) -> list[str]:
    """Return the nodes with every source before its targets, otherwise in order of first mention.

    Raises:
        CycleError: there is a cycle; its second argument has the first node again at the end.
    """
    sorter: TopologicalSorter[str] = TopologicalSorter(dict.fromkeys(wiring.nodes, ()))
    for edge in wiring.edges:
        if edge.source != START:
            sorter.add(edge.target, edge.source)
    return list(sorter.static_order())


def leads_to(wiring: Wiring, goals: Iterable[str]) -> set[str]:
    """Return the goals and every node from which edges lead to one of them."""
    before = sources(wiring.edges)
    reached, waiting = set(goals), list(goals)
    while waiting:
        for name in before.get(waiting.pop(), ()):
            if name not in reached:
                reached.add(name)
                waiting.append(name)
    return reached


# ------------------------------------------------------------------------------------ branches


def _parsed(when: str) -> Condition | None:
    try:
        return parse(when)
    except ConditionError:
        return None


def _case(condition: Condition | None) -> tuple[str, object] | None:
    """Return (path, value) of a condition `path == value`, which excludes other values."""
    match condition:
        case Operation(name="==", operands=(Path() as path, Constant(value=value))):
            return str(path), value
        case Operation(name="==", operands=(Constant(value=value), Path() as path)):
            return str(path), value
    return None


def _cases(edges: list[Edge]) -> list[set[int]]:
    """Return the largest sets of a node's out-edges (by position) that can be taken together."""
    if not any(edge.when or edge.otherwise or edge.on == "failure" for edge in edges):
        return [set(range(len(edges)))]
    unconditional = {i for i, e in enumerate(edges) if not e.when and not e.otherwise}
    otherwise = {i for i, e in enumerate(edges) if e.otherwise}
    parsed = {i: _parsed(e.when) for i, e in enumerate(edges) if e.when}
    conditional = {i for i, condition in parsed.items() if not _never_holds(condition)}
    switch = {i: case for i in conditional if (case := _case(parsed[i])) is not None}
    together: list[set[int]] = []
    if len({path for path, _ in switch.values()}) == 1:
        # Branches of a switch exclude each other; other conditions may all hold.
        for value in sorted({repr(value) for _, value in switch.values()}):
            branch = {i for i, case in switch.items() if repr(case[1]) == value}
            together.append(conditional - set(switch) | branch)
    elif conditional:
        together = [conditional]
    sets = [unconditional | conditions for conditions in together]
    if otherwise or not together:
        sets.append(unconditional | otherwise)
    by_outcome = [
        {i for i in taken if edges[i].on in (outcome, "done")}
        for outcome in ("success", "failure")
        for taken in sets
    ]
    # Subsets and duplicates of other cases need not be tried.
    return [
        case
        for i, case in enumerate(by_outcome)
        if not any(case < other for other in by_outcome) and case not in by_outcome[:i]
    ]


def _never_holds(condition: Condition | None) -> bool:
    """Return whether a condition is recognisably false always."""
    if condition is None:
        return False
    if next(paths(condition), None) is None:
        return not compiled(condition, _no_names)(None)
    match condition:
        case Operation(name="or", operands=operands):
            return all(map(_never_holds, operands))
        case Operation(name="and", operands=operands):
            cases = [case for case in map(_case, operands) if case is not None]
            clash = any(a[0] == b[0] and not same(a[1], b[1]) for a in cases for b in cases)
            return clash or any(map(_never_holds, operands))
    return False


def _no_names(root: str) -> Value:
    raise KeyError(root)


def _scenarios(wiring: Wiring) -> Iterator[set[int]]:
    """Yield sets of edges (by position) that one run could take, if their sources run."""
    by_source: dict[str, list[int]] = {}
    for i, edge in enumerate(wiring.edges):
        by_source.setdefault(edge.source, []).append(i)
    choices: list[list[set[int]]] = []
    always: set[int] = set()
    total = 1
    for own in by_source.values():
        cases = [{own[i] for i in case} for case in _cases([wiring.edges[i] for i in own])]
        if len(cases) == 1:
            always |= cases[0]
            continue
        choices.append(cases)
        total *= len(cases)
    if total > MAX_SCENARIOS:
        # Too many to try: assume that everything can be taken together.
        choices = [[set().union(*cases)] for cases in choices]
    for picked in islice(product(*choices), MAX_SCENARIOS):
        yield always.union(*picked)


def can_run(wiring: Wiring, sorted_nodes: Iterable[str]) -> tuple[set[str], dict[str, int]]:
    """Return the nodes that can run, and by node the maximum number of edges taken to it."""
    order = list(sorted_nodes)
    incoming: dict[str, list[int]] = {name: [] for name in order}
    for i, edge in enumerate(wiring.edges):
        incoming[edge.target].append(i)
    reachable: set[str] = set()
    maximum = dict.fromkeys(order, 0)
    for taken in _scenarios(wiring):
        runs = {START}
        for name in order:
            count = sum(i in taken and wiring.edges[i].source in runs for i in incoming[name])
            maximum[name] = max(maximum[name], count)
            node = wiring.nodes[name]
            needed = {"all_done": 0, "k_of_n": node.k}.get(node.join, 1)
            if not incoming[name] or count >= needed:
                runs.add(name)
        reachable |= runs
    return reachable, maximum


def is_sequence(wiring: Wiring) -> bool:
    """Return whether no two nodes can ever run at once, as far as the structure tells."""
    targets = {edge.target for edge in wiring.edges}
    roots = [name for name in wiring.nodes if name not in targets]
    after = outgoing(wiring.edges)
    if len(roots) + (START in after) != 1:
        return False
    if any(node.body is not None for node in wiring.nodes.values()):
        return False
    return all(len(case) <= 1 for edges in after.values() for case in _cases(edges))
