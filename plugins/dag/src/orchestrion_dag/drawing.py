"""Graphs as Mermaid and DOT text. Bodies and nested teams are boxes around their nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from orchestrion_dag.graph import START, Edge, Graph, Node, Wiring, wire

__all__ = [
    "Inner",
    "dot_text",
    "edge_label",
    "escaped",
    "mermaid_text",
    "node_label",
    "to_dot",
    "to_mermaid",
    "wired",
]

Inner = Mapping[str, Graph | Wiring]
"""Graphs inside agents: what a nested team that an agent's name stands for runs."""


def wired(graph: Graph | Wiring) -> Wiring:
    """The graph written out."""
    return wire(graph) if isinstance(graph, Graph) else graph


def node_label(name: str, node: Node) -> tuple[str, ...]:
    """A node's name, and what a reader should know of it, line by line."""
    lines = [name]
    if node.body is None and node.agent not in ("", name):
        lines.append(node.agent)
    if node.body is not None and node.until:
        lines.append(f"until {node.until}, at most {node.max}")
    elif node.body is not None and (node.max or 1) > 1:
        lines.append(f"{node.max} times")
    if node.join != "all":
        lines.append(f"{node.k} of n" if node.join == "k_of_n" else node.join.replace("_", " "))
    if node.retries:
        lines.append(f"{node.retries + 1} tries")
    if node.fallback:
        lines.append(f"else {node.fallback}")
    return tuple(lines)


def edge_label(edge: Edge) -> str:
    """What an edge says beside its arrow."""
    words = [] if edge.on == "success" else [f"on {edge.on}"]
    if edge.when:
        words.append(edge.when)
    if edge.otherwise:
        words.append("otherwise")
    if edge.output or edge.input:
        words.append(f"{edge.output or 'all'} as {edge.input or 'input'}")
    return ", ".join(words)


class _Writer:
    """One drawing; nodes are numbered, since their names may hold anything."""

    def __init__(self, inner: Inner) -> None:
        self.inner = inner
        self.count = 0
        self.edges: list[str] = []

    def nodes(self, wiring: Wiring, depth: int, seen: tuple[str, ...]) -> Iterator[str]:
        ids = {}
        if any(edge.source == START for edge in wiring.edges):
            ids[START] = self._next()
            yield "  " * depth + self.start(ids[START])
        for name, node in wiring.nodes.items():
            ids[name] = self._next()
            body = self._body(node, seen)
            label = node_label(name, node)
            if body is None:
                yield "  " * depth + self.node(ids[name], label, name in wiring.outputs)
            else:
                yield "  " * depth + self.opening(ids[name], label)
                yield from self.nodes(body, depth + 1, (*seen, node.agent))
                yield "  " * depth + self.closing()
        for edge in wiring.edges:
            self.edges.append(self.edge(ids[edge.source], ids[edge.target], edge))

    def _body(self, node: Node, seen: tuple[str, ...]) -> Wiring | None:
        if node.body is not None:
            return wire(node.body)
        within = self.inner.get(node.agent) if node.agent not in seen else None
        return None if within is None else wired(within)

    def _next(self) -> str:
        self.count += 1
        return f"n{self.count}"

    def start(self, number: str) -> str:
        raise NotImplementedError

    def node(self, number: str, label: Sequence[str], is_output: bool) -> str:
        raise NotImplementedError

    def opening(self, number: str, label: Sequence[str]) -> str:
        raise NotImplementedError

    def closing(self) -> str:
        raise NotImplementedError

    def edge(self, source: str, target: str, edge: Edge) -> str:
        raise NotImplementedError


class _Mermaid(_Writer):
    def start(self, number: str) -> str:
        return f"{number}((start))"

    def node(self, number: str, label: Sequence[str], is_output: bool) -> str:
        text = mermaid_text(label)
        return f'{number}(["{text}"])' if is_output else f'{number}["{text}"]'

    def opening(self, number: str, label: Sequence[str]) -> str:
        return f'subgraph {number}["{mermaid_text(label)}"]'

    def closing(self) -> str:
        return "end"

    def edge(self, source: str, target: str, edge: Edge) -> str:
        label = edge_label(edge)
        arrow = "-.->" if edge.when or edge.otherwise or edge.on == "failure" else "-->"
        return f"{source} {arrow}" + (f'|"{escaped(label)}"| ' if label else " ") + target


def mermaid_text(lines: Sequence[str]) -> str:
    """Lines as a label in Mermaid."""
    return "<br/>".join(map(escaped, lines))


_CODES = str.maketrans(
    {"#": "#35;", '"': "#quot;", "<": "#lt;", ">": "#gt;", "|": "#124;", "`": "#96;"}
)


def escaped(text: str) -> str:
    """Text without what Mermaid would read as its own."""
    return text.translate(_CODES)


def to_mermaid(graph: Graph | Wiring, inner: Inner | None = None) -> str:
    """A Mermaid flowchart, for documents on many platforms."""
    writer = _Mermaid(inner or {})
    lines = ["flowchart LR", *writer.nodes(wired(graph), 1, ())]
    return "\n".join([*lines, *(f"  {edge}" for edge in writer.edges)]) + "\n"


class _Dot(_Writer):
    """Edges to a box end at a point inside it, and are cut off at its border."""

    def __init__(self, inner: Inner) -> None:
        super().__init__(inner)
        self.boxes: set[str] = set()

    def start(self, number: str) -> str:
        return f'{number} [label="start", shape=circle];'

    def node(self, number: str, label: Sequence[str], is_output: bool) -> str:
        shape = ", peripheries=2" if is_output else ""
        return f'{number} [label="{dot_text(label)}"{shape}];'

    def opening(self, number: str, label: Sequence[str]) -> str:
        self.boxes.add(number)
        anchor = f'{number} [label="", shape=point, style=invis];'
        return f'subgraph cluster_{number} {{ label="{dot_text(label)}"; {anchor}'

    def closing(self) -> str:
        return "}"

    def edge(self, source: str, target: str, edge: Edge) -> str:
        settings = []
        if label := edge_label(edge):
            settings.append(f'label="{dot_text([label])}"')
        if edge.when or edge.otherwise or edge.on == "failure":
            settings.append("style=dashed")
        if source in self.boxes:
            settings.append(f"ltail=cluster_{source}")
        if target in self.boxes:
            settings.append(f"lhead=cluster_{target}")
        return f"{source} -> {target}" + (f" [{', '.join(settings)}]" if settings else "") + ";"


def dot_text(lines: Sequence[str]) -> str:
    """Lines as a label in DOT."""
    return "\\n".join(line.replace("\\", "\\\\").replace('"', '\\"') for line in lines)


def to_dot(graph: Graph | Wiring, inner: Inner | None = None) -> str:
    """A DOT digraph, for Graphviz."""
    writer = _Dot(inner or {})
    head = ["digraph {", "  rankdir=LR; compound=true;", "  node [shape=box, style=rounded];"]
    lines = [*head, *writer.nodes(wired(graph), 1, ())]
    return "\n".join([*lines, *(f"  {edge}" for edge in writer.edges), "}"]) + "\n"
