"""Drawings as Mermaid and DOT text: of graphs, and of who acted after whom in episodes.

Bodies and nested teams are boxes around their nodes. In a drawing of episodes, an arrow from A to B
says in which share of the steps after A it was B that acted; its width says the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple

from attrs import Factory, frozen

from orchestrion import END, START, Activations
from orchestrion_dag.graph import Edge, Graph, Node, Wiring, wire

Inner = Mapping[str, Graph | Wiring]
"""Graphs inside agents: what the nested team of that name runs."""

MAX_WIDTH = 4.0
"""Pixels of an arrow that is always taken."""

Shape = Literal["circle", "node", "output", "box", "end of box"]


class _Arrow(NamedTuple):
    source: str
    target: str
    label: str = ""
    dashed: bool = False
    width: float | None = None


@frozen
class _Drawing:
    """What to draw; nodes have ids, since their names may hold any character.

    A shape has its depth, its kind, its id and the lines of its label; arrows are between ids, and
    notes stand below the drawing.
    """

    shapes: list[tuple[int, Shape, str, tuple[str, ...]]] = Factory(list)
    arrows: list[_Arrow] = Factory(list)
    notes: tuple[str, ...] = ()


# ------------------------------------------------------------------------------------ graphs


def drawn(graph: Graph | Wiring, inner: Inner | None = None, form: Form = "mermaid") -> str:
    """Return a graph as text in one of the formats."""
    return FORMATS[form](_of_graph(graph, inner or {}))


def to_mermaid(graph: Graph | Wiring, inner: Inner | None = None) -> str:
    """Return a graph as a Mermaid flowchart."""
    return drawn(graph, inner)


def to_dot(graph: Graph | Wiring, inner: Inner | None = None) -> str:
    """Return a graph as a DOT digraph, for Graphviz."""
    return drawn(graph, inner, "dot")


def _of_graph(graph: Graph | Wiring, inner: Inner) -> _Drawing:
    drawing, count = _Drawing(), 0

    def add(given: Graph | Wiring, depth: int, teams: tuple[str, ...]) -> None:
        nonlocal count
        wiring, ids = wire(given) if isinstance(given, Graph) else given, {}
        begins = [START] if any(edge.source == START for edge in wiring.edges) else []
        for name in (*begins, *wiring.nodes):
            count += 1
            ids[name] = id_ = f"n{count}"
            if name == START:
                drawing.shapes.append((depth, "circle", id_, (START,)))
                continue
            node = wiring.nodes[name]
            # A team may run itself: draw it once.
            within = inner.get(node.agent) if node.agent not in teams else None
            body = within if node.body is None else node.body
            if body is None:
                shape: Shape = "output" if name in wiring.outputs else "node"
                drawing.shapes.append((depth, shape, id_, _node_label(name, node)))
            else:
                drawing.shapes.append((depth, "box", id_, _node_label(name, node)))
                add(body, depth + 1, (*teams, node.agent))
                drawing.shapes.append((depth, "end of box", id_, ()))
        for edge in wiring.edges:
            dashed = bool(edge.when or edge.otherwise or edge.on == "failure")
            arrow = _Arrow(ids[edge.source], ids[edge.target], _edge_label(edge), dashed)
            drawing.arrows.append(arrow)

    add(graph, 1, ())
    return drawing


def _node_label(name: str, node: Node) -> tuple[str, ...]:
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


def _edge_label(edge: Edge) -> str:
    words = [] if edge.on == "success" else [f"on {edge.on}"]
    if edge.when:
        words.append(edge.when)
    if edge.otherwise:
        words.append("otherwise")
    if edge.output or edge.input:
        words.append(f"{edge.output or 'all'} as {edge.input or 'input'}")
    return ", ".join(words)


# ------------------------------------------------------------------------------------ episodes


class Follower(NamedTuple):
    """The share of the steps after `source` in which `target` acted."""

    source: str
    target: str
    share: float


def followers(acted: Activations, least: float = 0.0) -> list[Follower]:
    """Return all pairs with at least this share, by source, the most frequent first."""
    pairs = {**acted.edges, **acted.ends}
    leaving: dict[str, int] = {}
    for (source, _), count in pairs.items():
        leaving[source] = leaving.get(source, 0) + count
    shares = [Follower(a, b, count / leaving[a]) for (a, b), count in pairs.items()]
    order = {name: i for i, name in enumerate(names(acted))}
    shares.sort(key=lambda pair: (order[pair.source], -pair.share, order[pair.target]))
    return [pair for pair in shares if pair.share >= least]


def names(acted: Activations) -> list[str]:
    """Return the start, the agents from most to fewest turns, and the end."""
    agents = sorted(acted.turns, key=lambda name: (-acted.turns[name], name))
    return [START, *agents, END] if agents else []


def following(acted: Activations, least: float = 0.0, form: Form = "mermaid") -> str:
    """Return who acted after whom as text in one of the formats."""
    return FORMATS[form](_of_activations(acted, least))


def _of_activations(acted: Activations, least: float) -> _Drawing:
    ids = {name: f"n{i}" for i, name in enumerate(names(acted))}
    kept = followers(acted, least)
    hidden = len(acted.edges) + len(acted.ends) - len(kept)
    more = [f"{hidden} rarer arrows are left out"] if hidden else []
    drawing = _Drawing(notes=(*acted.summary(), *more))
    for name, id_ in ids.items():
        if name in (START, END):
            drawing.shapes.append((1, "circle", id_, (name,)))
        else:
            turns = f"{acted.turns[name] / acted.episodes:.2f} turns"
            drawing.shapes.append((1, "node", id_, (name, turns)))
    for pair in kept:
        width = 0.5 + (MAX_WIDTH - 0.5) * pair.share
        label = f"{100 * pair.share:.0f}%"
        arrow = _Arrow(ids[pair.source], ids[pair.target], label, width=width)
        drawing.arrows.append(arrow)
    return drawing


# ------------------------------------------------------------------------------------ formats

_CODES = str.maketrans(
    {"#": "#35;", '"': "#quot;", "<": "#lt;", ">": "#gt;", "|": "#124;", "`": "#96;"}
)


def _mermaid(drawing: _Drawing) -> str:
    lines = ["flowchart LR", *(f"  %% {note}" for note in drawing.notes)]
    for depth, shape, id_, label in drawing.shapes:
        text = "<br/>".join(line.translate(_CODES) for line in label)
        form = {
            "circle": f"{id_}(({text}))",
            "node": f'{id_}["{text}"]',
            "output": f'{id_}(["{text}"])',
            "box": f'subgraph {id_}["{text}"]',
            "end of box": "end",
        }[shape]
        lines.append("  " * depth + form)
    for arrow in drawing.arrows:
        line = "-.->" if arrow.dashed else "-->"
        label_text = f'|"{arrow.label.translate(_CODES)}"|' if arrow.label else ""
        lines.append(f"  {arrow.source} {line}{label_text} {arrow.target}")
    for i, arrow in enumerate(drawing.arrows):
        if arrow.width is not None:
            lines.append(f"  linkStyle {i} stroke-width:{arrow.width:.1f}px")
    return "\n".join(lines) + "\n"


def _dot(drawing: _Drawing) -> str:
    """Arrows to a box end at a point inside it, and are cut off at its border."""
    notes = f" label={_quoted(drawing.notes)};" if drawing.notes else ""
    lines = [
        "digraph {",
        f"  rankdir=LR; compound=true;{notes}",
        "  node [shape=box, style=rounded];",
    ]
    boxes = {id_ for _, shape, id_, _ in drawing.shapes if shape == "box"}
    for depth, shape, id_, label in drawing.shapes:
        text = _quoted(label)
        form = {
            "circle": f"{id_} [label={text}, shape=circle];",
            "node": f"{id_} [label={text}];",
            "output": f"{id_} [label={text}, peripheries=2];",
            "box": f"subgraph cluster_{id_} {{ label={text}; "
            f'{id_} [label="", shape=point, style=invis];',
            "end of box": "}",
        }[shape]
        lines.append("  " * depth + form)
    for arrow in drawing.arrows:
        settings = [f"label={_quoted([arrow.label])}"] if arrow.label else []
        settings += ["style=dashed"] if arrow.dashed else []
        settings += [f"ltail=cluster_{arrow.source}"] if arrow.source in boxes else []
        settings += [f"lhead=cluster_{arrow.target}"] if arrow.target in boxes else []
        settings += [f"penwidth={arrow.width:.1f}"] if arrow.width is not None else []
        end = f" [{', '.join(settings)}];" if settings else ";"
        lines.append(f"  {arrow.source} -> {arrow.target}{end}")
    return "\n".join([*lines, "}"]) + "\n"


def _quoted(lines: Sequence[str]) -> str:
    text = "\\n".join(line.replace("\\", "\\\\").replace('"', '\\"') for line in lines)
    return f'"{text}"'


Form = Literal["mermaid", "dot"]
FORMATS: Mapping[Form, Callable[[_Drawing], str]] = {"mermaid": _mermaid, "dot": _dot}
