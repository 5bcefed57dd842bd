"""Orders, cycles, and what can happen in a graph at all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice, product

from orchestrion_dag.expressions import (
    Compare,
    Constant,
    Expression,
    ExpressionError,
    Junction,
    Path,
    Value,
    compiled,
    parse,
    paths,
    same,
)
from orchestrion_dag.graph import START, Edge, Wiring

__all__ = [
    "can_run",
    "find_cycle",
    "is_sequence",
    "leads_to",
    "outgoing",
    "topological",
]

_MOST_CASES = 4096


def outgoing(edges: Iterable[Edge]) -> dict[str, list[Edge]]:
    """Edges by source."""
    found: dict[str, list[Edge]] = {}
    for edge in edges:
        found.setdefault(edge.source, []).append(edge)
    return found


def topological(wiring: Wiring) -> list[str]:
    """Nodes with every source before its targets, else as they were first named.

    Nodes on a cycle, and what follows from them, are left out.
    """
    after = outgoing(wiring.edges)
    waits = dict.fromkeys(wiring.nodes, 0)
    for edge in wiring.edges:
        waits[edge.target] += edge.source != START
    ready = [name for name, count in waits.items() if not count]
    place = 0
    while place < len(ready):
        for edge in after.get(ready[place], ()):
            waits[edge.target] -= 1
            if not waits[edge.target]:
                ready.append(edge.target)
        place += 1
    return ready


def find_cycle(wiring: Wiring, sorted_nodes: Iterable[str]) -> list[str]:
    """A cycle, its first node again at the end; empty if there is none."""
    left = dict.fromkeys(wiring.nodes)
    for name in sorted_nodes:
        del left[name]
    if not left:
        return []
    # Everything left has a source that is left: going back must come round.
    before = {edge.target: edge.source for edge in wiring.edges if edge.source in left}
    trail: dict[str, None] = {}
    name = next(one for one in left if one in before)
    while name not in trail:
        trail[name] = None
        name = before[name]
    names = list(trail)
    circle = names[names.index(name) :][::-1]
    first = min(circle, key=list(wiring.nodes).index)
    at = circle.index(first)
    return [*circle[at:], *circle[:at], first]


def leads_to(wiring: Wiring, goals: Iterable[str]) -> set[str]:
    """Every node from which an edge leads towards one of the goals, and these."""
    before: dict[str, list[str]] = {}
    for edge in wiring.edges:
        before.setdefault(edge.target, []).append(edge.source)
    found, waiting = set(goals), list(goals)
    while waiting:
        for name in before.get(waiting.pop(), ()):
            if name not in found:
                found.add(name)
                waiting.append(name)
    return found


# ------------------------------------------------------------------------------------ branches


def _literal_case(when: str) -> tuple[str, object] | None:
    """(path, value) of a condition `path == value`, of which only one value can hold."""
    try:
        return _case(parse(when))
    except ExpressionError:
        return None


def _case(expression: Expression) -> tuple[str, object] | None:
    match expression:
        case Compare(operator="==", left=Path() as path, right=Constant(value=value)):
            return str(path), value
        case Compare(operator="==", left=Constant(value=value), right=Path() as path):
            return str(path), value
    return None


def _cases(edges: list[Edge]) -> list[set[int]]:
    """Sets of a node's out-edges (by place) that can be taken together, the largest ones."""
    if not any(edge.when or edge.otherwise or edge.on == "failure" for edge in edges):
        return [set(range(len(edges)))]
    plain = {i for i, e in enumerate(edges) if not e.when and not e.otherwise}
    conditional = [i for i, e in enumerate(edges) if e.when and not _never(e.when)]
    otherwise = {i for i, e in enumerate(edges) if e.otherwise}
    chosen: list[set[int]] = []
    literal = {i: case for i in conditional if (case := _literal_case(edges[i].when)) is not None}
    subjects = {case[0] for case in literal.values()}
    if len(subjects) == 1:
        # The branches of a switch exclude each other; other conditions may all hold.
        free = {i for i in conditional if i not in literal}
        values = {repr(case[1]) for case in literal.values()}
        chosen = [
            free | {i for i, case in literal.items() if repr(case[1]) == value}
            for value in sorted(values)
        ]
    elif conditional:
        chosen = [set(conditional)]
    sets = [plain | one for one in chosen]
    if otherwise or not chosen:
        sets.append(plain | otherwise)
    by_outcome = []
    for outcome in ("success", "failure"):
        by_outcome += [{i for i in one if edges[i].on in (outcome, "done")} for one in sets]
    # What another case holds as well need not be tried.
    return [
        one
        for i, one in enumerate(by_outcome)
        if not any(one < other for other in by_outcome) and one not in by_outcome[:i]
    ]


def _never(when: str) -> bool:
    try:
        return _fails(parse(when))
    except ExpressionError:
        return False


def _fails(expression: Expression) -> bool:
    """Whether a condition can be seen to hold never."""
    if next(paths(expression), None) is None:
        return not compiled(expression, _nothing)(None)
    match expression:
        case Junction(operator="or", parts=parts):
            return all(map(_fails, parts))
        case Junction(parts=parts):
            cases = [one for one in map(_case, parts) if one is not None]
            clash = any(a[0] == b[0] and not same(a[1], b[1]) for a in cases for b in cases)
            return clash or any(map(_fails, parts))
    return False


def _nothing(root: str) -> Value:
    raise KeyError(root)


def _scenarios(wiring: Wiring) -> Iterator[set[int]]:
    """Sets of edges (by place) that one run could take, if their sources run."""
    places: dict[str, list[int]] = {}
    for i, edge in enumerate(wiring.edges):
        places.setdefault(edge.source, []).append(i)
    choices: list[list[set[int]]] = []
    always: set[int] = set()
    total = 1
    for own in places.values():
        cases = _cases([wiring.edges[i] for i in own])
        if len(cases) == 1:
            always.update(own[i] for i in cases[0])
            continue
        choices.append([{own[i] for i in case} for case in cases])
        total *= len(cases)
    if total > _MOST_CASES:
        # Too many to try: as if everything could be taken together.
        choices = [[set().union(*cases)] for cases in choices]
    for picked in islice(product(*choices), _MOST_CASES):
        yield always.union(*picked)


def can_run(wiring: Wiring, sorted_nodes: Iterable[str]) -> tuple[set[str], dict[str, int]]:
    """The nodes that run in some case, and for each node the most edges that can be taken to it."""
    order = list(sorted_nodes)
    incoming: dict[str, list[int]] = {name: [] for name in order}
    for i, edge in enumerate(wiring.edges):
        incoming[edge.target].append(i)
    found: set[str] = set()
    most = dict.fromkeys(order, 0)
    for taken in _scenarios(wiring):
        runs = {START}
        for name in order:
            count = sum(i in taken and wiring.edges[i].source in runs for i in incoming[name])
            most[name] = max(most[name], count)
            if not incoming[name] or count >= _needed(wiring, name):
                runs.add(name)
        found |= runs
    return found, most


def is_sequence(wiring: Wiring) -> bool:
    """Whether no two nodes can ever run at once, as far as the shape tells."""
    targets = {edge.target for edge in wiring.edges}
    roots = [name for name in wiring.nodes if name not in targets]
    after = outgoing(wiring.edges)
    if len(roots) + (START in after) != 1:
        return False
    if any(node.body is not None for node in wiring.nodes.values()):
        return False
    return all(len(case) <= 1 for edges in after.values() for case in _cases(edges))


def _needed(wiring: Wiring, name: str) -> int:
    node = wiring.nodes[name]
    if node.join == "all_done":
        return 0
    return node.k if node.join == "k_of_n" else 1
