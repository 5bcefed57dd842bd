"""Graphs as SVG, laid out here: in layers from left to right, no program needed.

A node stands one layer after the last node that leads to it; an edge over several layers passes
through a place of its own in each; within a layer, places are ordered by the middle of their
neighbours, forth and back a few times (Sugiyama, Tagawa and Toda, 1981).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from itertools import pairwise

from attrs import Factory, define

from orchestrion_dag.drawing import Inner, edge_label, node_label, wired
from orchestrion_dag.graph import START, Edge, Graph, Node, Wiring, wire
from orchestrion_dag.order import topological

__all__ = ["CHARACTER", "LINE", "PAD", "Place", "box", "document", "to_svg"]

CHARACTER, LINE, PAD = 7.2, 16.0, 10.0
"""Width of a character, height of a line, room around text; pixels."""
GAP_X, GAP_Y = 56.0, 18.0
SWEEPS = 6


@define(eq=False)
class Place:
    """A node of a drawing, or where a long edge passes through a layer."""

    name: str
    layer: int
    label: tuple[str, ...] = ()
    inner: _Layout | None = None
    is_output: bool = False
    width: float = 0.0
    height: float = 12.0
    x: float = 0.0
    y: float = 0.0
    before: list[Place] = Factory(list)
    after: list[Place] = Factory(list)

    def fit(self) -> None:
        """As large as its label."""
        self.width = max(map(len, self.label)) * CHARACTER + 2 * PAD
        self.height = len(self.label) * LINE + PAD

    @property
    def middle(self) -> float:
        return self.y + self.height / 2


@define(eq=False)
class _Layout:
    """A graph with a place for everything, from (0, 0) to (width, height)."""

    places: list[Place]
    routes: list[tuple[Edge, list[Place]]]
    width: float = 0.0
    height: float = 0.0


def to_svg(graph: Graph | Wiring, inner: Inner | None = None) -> str:
    """An SVG drawing that follows the reader's light or dark colours."""
    layout = _layout(wired(graph), inner or {}, ())
    return document(layout.width + 2 * PAD, layout.height + 2 * PAD, _drawn(layout, PAD, PAD))


def document(width: float, height: float, lines: Iterable[str]) -> str:
    """A whole SVG file; `url(#arrow)` is the head of an arrow."""
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="graph" width="{width:.0f}" '
        f'height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}" '
        'font-family="monospace" font-size="12">',
        "<style>.graph{color:#222}@media(prefers-color-scheme:dark){.graph{color:#ddd}}"
        ".graph rect,.graph path{fill:none;stroke:currentColor}.graph text{fill:currentColor}"
        ".graph marker path{fill:currentColor}</style>",
        '<defs><marker id="arrow" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" '
        'markerHeight="8" markerUnits="userSpaceOnUse" orient="auto">'
        '<path d="M0 0L8 4L0 8Z"/></marker></defs>',
    ]
    return "\n".join([*head, *lines, "</svg>"]) + "\n"


# ------------------------------------------------------------------------------------ layout


def _layout(wiring: Wiring, inner: Inner, seen: tuple[str, ...]) -> _Layout:
    nodes = _nodes(wiring, inner, seen)
    places = list(nodes.values())
    routes = []
    for edge in wiring.edges:
        route = [nodes[edge.source]]
        for layer in range(route[0].layer + 1, nodes[edge.target].layer):
            route.append(Place("", layer))
            places.append(route[-1])
        route.append(nodes[edge.target])
        for source, target in pairwise(route):
            source.after.append(target)
            target.before.append(source)
        routes.append((edge, route))
    layers: list[list[Place]] = [[] for _ in range(1 + max((p.layer for p in places), default=0))]
    for place in places:
        layers[place.layer].append(place)
    _order(layers)
    layout = _Layout(places, routes)
    _put(layers, layout)
    return layout


def _nodes(wiring: Wiring, inner: Inner, seen: tuple[str, ...]) -> dict[str, Place]:
    found: dict[str, Place] = {}
    layer: dict[str, int] = {}
    if any(edge.source == START for edge in wiring.edges):
        found[START] = Place(START, 0, (START,))
        layer[START] = 0
    into: dict[str, list[str]] = {}
    for edge in wiring.edges:
        into.setdefault(edge.target, []).append(edge.source)
    for name in topological(wiring):
        layer[name] = max((layer[one] + 1 for one in into.get(name, ())), default=0)
        node = wiring.nodes[name]
        place = Place(name, layer[name], node_label(name, node), _inside(node, inner, seen))
        place.is_output = name in wiring.outputs
        found[name] = place
    for place in found.values():
        place.fit()
        if place.inner is not None:
            place.width = max(place.width, place.inner.width + 2 * PAD)
            place.height += place.inner.height + PAD
    return found


def _inside(node: Node, inner: Inner, seen: tuple[str, ...]) -> _Layout | None:
    if node.body is not None:
        return _layout(wire(node.body), inner, seen)
    within = inner.get(node.agent) if node.agent not in seen else None
    return None if within is None else _layout(wired(within), inner, (*seen, node.agent))


def _order(layers: list[list[Place]]) -> None:
    """Put neighbours beside each other."""
    for sweep in range(SWEEPS):
        forth = sweep % 2 == 0
        rank = {id(place): i for layer in layers for i, place in enumerate(layer)}
        for layer in layers if forth else reversed(layers):

            def middle(place: Place, rank: dict[int, int] = rank, forth: bool = forth) -> float:
                near = place.before if forth else place.after
                ranks = [rank[id(one)] for one in near]
                return sum(ranks) / len(ranks) if ranks else rank[id(place)]

            layer.sort(key=middle)
            rank.update({id(place): i for i, place in enumerate(layer)})


def _put(layers: Sequence[Sequence[Place]], layout: _Layout) -> None:
    heights = [sum(p.height for p in layer) + GAP_Y * (len(layer) - 1) for layer in layers]
    layout.height = max(heights, default=0.0)
    labels = {
        layer: max(
            (len(edge_label(edge)) for edge, route in layout.routes if route[0].layer == layer),
            default=0,
        )
        for layer in range(len(layers))
    }
    x = 0.0
    for number, (layer, height) in enumerate(zip(layers, heights, strict=True)):
        wide = max((place.width for place in layer), default=0.0)
        y = (layout.height - height) / 2
        for place in layer:
            place.x, place.y = x + (wide - place.width) / 2, y
            y += place.height + GAP_Y
        layout.width = x + wide
        x += wide + max(GAP_X, labels[number] * CHARACTER + 2 * PAD)


# ------------------------------------------------------------------------------------ drawing


def _drawn(layout: _Layout, dx: float, dy: float) -> list[str]:
    lines = []
    for edge, route in layout.routes:
        lines += _edge(edge, route, dx, dy)
    for place in layout.places:
        if place.name:
            lines += box(place, dx, dy)
    return lines


def box(place: Place, dx: float = 0.0, dy: float = 0.0) -> list[str]:
    """A node: its border, its label, and what is drawn inside it."""
    x, y = place.x + dx, place.y + dy
    width = ' stroke-width="2.5"' if place.is_output else ""
    lines = [
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{place.width:.1f}" height="{place.height:.1f}" '
        f'rx="6"{width}/>'
    ]
    for i, text in enumerate(place.label):
        lines.append(
            f'<text x="{x + place.width / 2:.1f}" y="{y + PAD / 2 + LINE * (i + 0.75):.1f}" '
            f'text-anchor="middle">{escape(text)}</text>'
        )
    if place.inner is not None:
        below = y + PAD / 2 + len(place.label) * LINE + PAD / 2
        lines += _drawn(place.inner, x + (place.width - place.inner.width) / 2, below)
    return lines


def _edge(edge: Edge, route: Sequence[Place], dx: float, dy: float) -> list[str]:
    start, *through = route
    x, y = start.x + start.width + dx, start.middle + dy
    path, first = f"M{x:.1f} {y:.1f}", (x, y)
    for place in through:
        to_x, to_y = place.x + dx, place.middle + dy
        bend = (x + to_x) / 2
        path += f"C{bend:.1f} {y:.1f} {bend:.1f} {to_y:.1f} {to_x:.1f} {to_y:.1f}"
        x, y = to_x + place.width, to_y
    sure = not (edge.when or edge.otherwise or edge.on == "failure")
    dashed = "" if sure else ' stroke-dasharray="5 4"'
    lines = [f'<path d="{path}"{dashed} marker-end="url(#arrow)"/>']
    if label := edge_label(edge):
        to = through[0]
        label_x, label_y = (first[0] + to.x + dx) / 2, (first[1] + to.middle + dy) / 2 - 4
        lines.append(
            f'<text x="{label_x:.1f}" y="{label_y:.1f}" text-anchor="middle" font-size="11">'
            f"{escape(label)}</text>"
        )
    return lines
