"""Graphs of agents, as a config writes them and written out.

    Graph(chain="planner -> coder -> tester")
    Graph(
        nodes={"review": Node(agent="critic", output={"ok": "boolean"})},
        edges=["draft -> review", "review -> publish when data.ok", "review -> revise otherwise"],
    )

`wire` writes every shorthand out: a `Wiring` has a `Node` for each name and an `Edge` for each
arrow. Both are plain frozen records; making them checks nothing (see `validation.validate`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Annotated, Any, Literal

from attrs import Factory, evolve, field, frozen

from orchestrion import JSON, Meta, learnable

__all__ = ["START", "Edge", "Graph", "Node", "Wiring", "as_config", "edges_of", "wire"]

START = "start"
"""Stands for the beginning of a graph, as the source of an edge."""

Join = Literal["all", "any", "k_of_n", "all_done"]
OnError = Literal["fail", "skip", "continue"]
When = Literal["success", "failure", "done"]


@frozen
class Node:
    """One place in a graph: an agent, or a graph of its own (`body`).

    Args:
        agent: "agent" or "agent:option"; by default the node's own name.
        body: a graph in the place of an agent; its outputs are the node's.
        until: repeat the body until this holds of it, e.g. "review.data.ok".
        max: run the body at most so often; needed with `until`. Reaching it is no failure, and
            conditions see it as `capped`.
        join: when it runs. `all`: every edge that leads here is decided, at least one is taken,
            and nothing before it failed; `any`: the first is taken; `k_of_n`: the k-th is;
            `all_done`: every edge is decided, whatever came of it.
        k: for `k_of_n`.
        retries: how often a failed turn is tried again. Calls have retries of their own, with
            pauses; these come on top.
        timeout: seconds for one try; by default the run's.
        fallback: "agent" or "agent:option" to run in its place when every try failed.
        on_error: what a failure means that no `on failure` edge takes care of. `fail`: the graph
            fails at once; `skip`: everything that needs it is skipped; `continue`: it counts as
            a node that was skipped.
        inputs: types of what it reads, by name; "text?" may be left out, "text*" takes many.
        output: type of its data, or of each field of it; "text" is its content.
        reuse: take the result of an equal activation of this run if there is one.
    """

    agent: str = ""
    body: Graph | None = None
    until: str = ""
    max: Annotated[int, Meta(ge=1)] | None = None
    join: Join = "all"
    k: Annotated[int, Meta(ge=0)] = 0
    retries: Annotated[int, Meta(ge=0, le=100)] = 0
    timeout: Annotated[float, Meta(gt=0)] | None = None
    fallback: str = ""
    on_error: OnError = "fail"
    inputs: Mapping[str, str] = Factory(dict)
    output: str | Mapping[str, str] = ""
    reuse: bool = False


@frozen
class Edge:
    """An arrow: its target may read what its source gave.

    Args:
        source: a node, or "start".
        target: a node.
        when: a condition, see `expressions`; the edge is taken if it holds.
        otherwise: taken if no conditional edge of its source is.
        on: whether it follows the source's `success`, its `failure`, or either (`done`).
        output: the field of the source's output that it carries.
        input: the input of the target that it feeds.
    """

    source: str
    target: str
    when: str = ""
    otherwise: bool = False
    on: When = "success"
    output: str = ""
    input: str = ""


@frozen
class Graph:
    """Nodes and edges. Names that `nodes` does not define are nodes that run that agent.

    Args:
        chain: nodes in one line, "a -> b -> c"; a name that comes again is another node.
        nodes: settings by name; text is short for its `agent`.
        edges: in words, "a, b -> c", "a -> b when data.ok", "a -> c otherwise",
            "a -> d on failure", "a.score -> b.limit", or as mappings.
        outputs: the nodes whose results are the graph's; by default those that lead nowhere.
    """

    chain: str = learnable("")
    nodes: Mapping[str, Node | str] = learnable(Factory(dict))
    edges: Sequence[Edge | str] = learnable(Factory(list))
    outputs: Sequence[str] = learnable(Factory(list))


@frozen
class Wiring:
    """A graph with every shorthand written out.

    Args:
        nodes: by name, in the order in which they were first named.
        edges: one for each arrow.
        outputs: never empty, unless there are no nodes.
        places: where each edge comes from, e.g. "edges[2]".
        problems: what could not be read.
    """

    nodes: Mapping[str, Node]
    edges: tuple[Edge, ...]
    outputs: tuple[str, ...]
    places: tuple[str, ...] = field(default=(), eq=False)
    problems: tuple[str, ...] = ()

    @property
    def labels(self) -> Sequence[str]:
        """Where each edge comes from, or else its own place."""
        return self.places or [f"edges[{i}]" for i in range(len(self.edges))]


def wire(graph: Graph) -> Wiring:
    """Write every shorthand out."""
    nodes = {
        name: Node(agent=node) if isinstance(node, str) else node
        for name, node in graph.nodes.items()
    }
    found: list[tuple[str, Edge]] = []
    problems: list[str] = []
    try:
        found += [("chain", edge) for edge in _chain(graph.chain, nodes)]
    except ValueError as error:
        problems.append(f"chain: {error}")
    for i, given in enumerate(graph.edges):
        try:
            several = [given] if isinstance(given, Edge) else edges_of(given)
        except ValueError as error:
            problems.append(f"edges[{i}]: {error}")
            continue
        found += [(f"edges[{i}]", _with_ports(edge, nodes)) for edge in several]
    edges = tuple(edge for _, edge in found)
    for edge in edges:
        for name in (edge.source, edge.target):
            if name != START and name not in nodes:
                nodes[name] = Node()
    for name, node in nodes.items():
        if not node.agent and node.body is None:
            nodes[name] = evolve(node, agent=name)
    outputs = tuple(graph.outputs)
    if not outputs:
        sources = {edge.source for edge in edges}
        outputs = tuple(name for name in nodes if name not in sources)
    return Wiring(nodes, edges, outputs, tuple(place for place, _ in found), tuple(problems))


_ARROW = re.compile(r"\s*->\s*")
_TAIL = re.compile(r"\s(?:(on)\s+(\w+))?(?:\s*\b(when)\s+(.+)|\s*\b(otherwise))?\s*$", re.S)
_TAIL_STARTS = re.compile(r"\s(?=(?:on|when|otherwise)\b)")


def _chain(text: str, nodes: dict[str, Node]) -> Iterator[Edge]:
    if not text.strip():
        return
    names = [_name(name, text) for name in _ARROW.split(text.strip())]
    seen: Counter[str] = Counter()
    places = []
    for name in names:
        seen[name] += 1
        place = name if seen[name] == 1 else f"{name}#{seen[name]}"
        known = nodes.get(name, Node())
        agent = known.agent if known.agent or known.body is not None else name
        nodes.setdefault(place, evolve(known, agent=agent))
        places.append(place)
    for source, target in pairwise(places):
        yield Edge(source, target)


def edges_of(text: str) -> list[Edge]:
    """The edges that a line of words stands for.

    Raises:
        ValueError: it cannot be read.
    """
    start = _TAIL_STARTS.search(text)
    arrows, tail = (text[: start.start()], text[start.start() :]) if start else (text, "")
    groups = [
        [_name(name, text) for name in group.split(",")] for group in _ARROW.split(arrows.strip())
    ]
    if len(groups) < 2:
        raise ValueError(f"{text!r} is no edge; write it as 'a -> b'")
    settings = _tail(tail, text) if tail.strip() else {}
    if settings and len(groups) > 2:
        raise ValueError(f"{text!r}: a condition belongs to one arrow; give it a line of its own")
    return [
        Edge(source, target, **settings)
        for sources, targets in pairwise(groups)
        for source in sources
        for target in targets
    ]


def _tail(tail: str, text: str) -> dict[str, Any]:
    match = _TAIL.fullmatch(tail)
    if match is None:
        raise ValueError(f"{text!r}: expected 'when CONDITION', 'otherwise' or 'on failure'")
    _, on, _, when, otherwise = match.groups()
    if on not in (None, "success", "failure", "done"):
        raise ValueError(f"{text!r}: 'on' takes success, failure or done, not {on}")
    return {
        "on": on or "success",
        "when": (when or "").strip(),
        "otherwise": otherwise is not None,
    }


def _name(name: str, text: str) -> str:
    name = name.strip()
    if not name or re.search(r"\s", name):
        raise ValueError(f"{text!r}: {name!r} is no name of a node; write edges as 'a -> b'")
    return name


def _with_ports(edge: Edge, nodes: Mapping[str, Node]) -> Edge:
    """ "a.score" means the output `score` of a node `a` that is defined."""
    source, output = _split(edge.source, nodes)
    target, port = _split(edge.target, nodes)
    if not output and not port:
        return edge
    return evolve(
        edge,
        source=source,
        target=target,
        output=edge.output or output,
        input=edge.input or port,
    )


def _split(name: str, nodes: Mapping[str, Node]) -> tuple[str, str]:
    node, dot, port = name.rpartition(".")
    return (node, port) if dot and name not in nodes and node in nodes else (name, "")


def as_config(graph: Graph | Wiring) -> dict[str, JSON]:
    """The settings of policy `dag` that mean this graph, without those at their defaults."""
    wiring = wire(graph) if isinstance(graph, Graph) else graph
    config: dict[str, JSON] = {
        "nodes": {name: _node_config(name, node) for name, node in wiring.nodes.items()},
        "edges": [_edge_config(edge) for edge in wiring.edges],
        "outputs": list(wiring.outputs),
    }
    return config


def _node_config(name: str, node: Node) -> JSON:
    config = _changed(node, Node())
    if node.body is not None:
        config["body"] = as_config(node.body)
        config.pop("agent", None)
    return node.agent if list(config) == ["agent"] else config


def _edge_config(edge: Edge) -> JSON:
    config = _changed(edge, Edge("", ""))
    plain = set(config) <= {"source", "target"} and "." not in edge.source + edge.target
    return f"{edge.source} -> {edge.target}" if plain else config


def _changed(record: Any, plain: Any) -> dict[str, JSON]:
    found: dict[str, JSON] = {}
    for name in record.__slots__:
        if name != "__weakref__" and getattr(record, name) != getattr(plain, name):
            value = getattr(record, name)
            found[name] = dict(value) if isinstance(value, Mapping) else value
    return found
