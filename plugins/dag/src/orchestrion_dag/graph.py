"""Graphs of agents: as written in a config, and with every shorthand expanded.

    Graph(chain="planner -> coder -> tester")
    Graph(
        nodes={"review": Node(agent="critic", output={"ok": "boolean"})},
        edges=["draft -> review", "review -> publish when data.ok", "review -> revise otherwise"],
    )

`wire` expands every shorthand: a `Wiring` has a `Node` for each name and an `Edge` for each arrow.
Both are plain frozen records; `validation.validate` checks them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Annotated, Any, Literal

from attrs import Factory, evolve, field, fields, frozen

from orchestrion import JSON, Meta, learnable

START = "start"
"""Name of the beginning of a graph, as the source of an edge."""

Join = Literal["all", "any", "k_of_n", "all_done"]
OnError = Literal["fail", "skip", "continue"]
When = Literal["success", "failure", "done"]


@frozen
class Node:
    """One place in a graph: an agent, or a graph of its own (`body`).

    Args:
        agent: "agent" or "agent:option"; by default the node's own name.
        body: a graph in the place of an agent; its outputs are the node's.
        until: repeat the body until this condition on it holds, e.g. "review.data.ok".
        max: maximum number of runs of the body; needed with `until`. Reaching it is no failure;
            conditions see it as `capped`.
        join: when it runs. `all`: every edge that leads here is decided, at least one is taken,
            and no node before it failed; `any`: the first edge is taken; `k_of_n`: the k-th edge
            is taken; `all_done`: every edge is decided, taken or not.
        k: for `k_of_n`.
        retries: number of further tries of a failed turn, in addition to the retries of calls.
        timeout: seconds for one try; by default the run's.
        fallback: "agent" or "agent:option" to run in its place when every try failed.
        on_error: the effect of a failure that no `on failure` edge handles. `fail`: the graph
            fails at once; `skip`: every node that needs it is skipped; `continue`: it counts as
            a skipped node.
        inputs: types of what it reads, by name; "text?" is optional, "text*" takes several edges.
        output: type of its data, or of each field of it; "text" means its content.
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
    """An arrow: its target may read the result of its source.

    Args:
        source: a node, or "start".
        target: a node.
        when: a condition, see `conditions`; the edge is taken if it holds.
        otherwise: the edge is taken if no condition of its source holds.
        on: whether it follows the source's `success`, its `failure`, or both (`done`).
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
    """Nodes and edges. A name that `nodes` does not define is a node that runs that agent.

    Args:
        chain: nodes in one line, "a -> b -> c"; a repeated name is another node.
        nodes: settings by name; a string stands for its `agent`.
        edges: as text, "a, b -> c", "a -> b when data.ok", "a -> c otherwise",
            "a -> d on failure", "a.score -> b.limit", or as mappings.
        outputs: the nodes whose results are the graph's; by default those without outgoing edges.
    """

    chain: str = learnable("")
    nodes: Mapping[str, Node | str] = learnable(Factory(dict))
    edges: Sequence[Edge | str] = learnable(Factory(list))
    outputs: Sequence[str] = learnable(Factory(list))


@frozen
class Wiring:
    """A graph with every shorthand expanded.

    Args:
        nodes: by name, in the order in which they were first named.
        edges: one for each arrow.
        outputs: never empty, unless there are no nodes.
        places: where each edge comes from, e.g. "edges[2]".
        problems: what could not be read, with places.
    """

    nodes: Mapping[str, Node]
    edges: tuple[Edge, ...]
    outputs: tuple[str, ...]
    places: tuple[str, ...] = field(default=(), eq=False)
    problems: tuple[str, ...] = ()

    @property
    def labels(self) -> Sequence[str]:
        """Return where each edge comes from; without that, its own place."""
        return self.places or [f"edges[{i}]" for i in range(len(self.edges))]


def wire(graph: Graph) -> Wiring:
    """Return the graph with every shorthand expanded."""
    nodes = {
        name: Node(agent=node) if isinstance(node, str) else node
        for name, node in graph.nodes.items()
    }
    placed: list[tuple[str, Edge]] = []
    problems: list[str] = []
    try:
        placed += [("chain", edge) for edge in _chain(graph.chain, nodes)]
    except ValueError as error:
        problems.append(f"chain: {error}")
    for i, given in enumerate(graph.edges):
        try:
            several = [given] if isinstance(given, Edge) else edges_of(given)
        except ValueError as error:
            problems.append(f"edges[{i}]: {error}")
            continue
        placed += [(f"edges[{i}]", _with_ports(edge, nodes)) for edge in several]
    edges = tuple(edge for _, edge in placed)
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
    return Wiring(nodes, edges, outputs, tuple(place for place, _ in placed), tuple(problems))


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
        node = nodes.get(name, Node())
        agent = node.agent if node.agent or node.body is not None else name
        nodes.setdefault(place, evolve(node, agent=agent))
        places.append(place)
    for source, target in pairwise(places):
        yield Edge(source, target)


def edges_of(text: str) -> list[Edge]:
    """Return the edges that a line of text stands for.

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
        raise ValueError(
            f"{text!r}: a condition belongs to one arrow; write that arrow on a line of its own"
        )
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
        raise ValueError(f"{text!r}: 'on' takes success, failure or done, got {on}")
    return {
        "on": on or "success",
        "when": (when or "").strip(),
        "otherwise": otherwise is not None,
    }


def _name(name: str, text: str) -> str:
    name = name.strip()
    if not name or re.search(r"\s", name):
        raise ValueError(f"{text!r}: {name!r} is not a node's name; write edges as 'a -> b'")
    return name


def _with_ports(edge: Edge, nodes: Mapping[str, Node]) -> Edge:
    """Read "a.score" as the output `score` of `a`, if `nodes` defines `a` and not `a.score`."""
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
    """Return the graph as settings of the policy `dag`, without those at their defaults."""
    wiring = wire(graph) if isinstance(graph, Graph) else graph
    return {
        "nodes": {name: _node_config(name, node) for name, node in wiring.nodes.items()},
        "edges": [_edge_config(edge) for edge in wiring.edges],
        "outputs": list(wiring.outputs),
    }


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
    changed: dict[str, JSON] = {}
    for name in (attribute.name for attribute in fields(type(record))):
        value = getattr(record, name)
        if value != getattr(plain, name):
            changed[name] = dict(value) if isinstance(value, Mapping) else value
    return changed
