"""Who follows whom, drawn: Mermaid, DOT, and SVG with the agents on a circle.

An arrow from A to B says in how many of the steps after A it was B that acted; its width says the
same. What the graph was like, episode by episode, stands below it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from math import ceil, cos, hypot, pi, sin
from typing import NamedTuple

from orchestrion import END, START, Activations
from orchestrion_dag.drawing import dot_text, mermaid_text
from orchestrion_dag.svg import CHARACTER, LINE, PAD, Place, box, document

__all__ = ["DRAWINGS", "Arrow", "arrows", "following_dot", "following_mermaid", "following_svg"]

WIDEST = 4.0
"""Pixels of an arrow that is always taken."""
MARGIN = 46.0
"""Room around the circle, for arrows that lead from a box back to itself."""


class Arrow(NamedTuple):
    """In which share of the steps from `source` it was `target` that followed."""

    source: str
    target: str
    share: float

    @property
    def label(self) -> str:
        """The share in per cent."""
        return f"{100 * self.share:.0f}%"

    @property
    def width(self) -> float:
        """Of the line, in pixels."""
        return 0.5 + (WIDEST - 0.5) * self.share


def arrows(given: Activations, least: float = 0.0) -> list[Arrow]:
    """All that are at least so frequent, each source's together, the most frequent first."""
    pairs = {**given.edges, **given.ends}
    leaving: dict[str, int] = {}
    for (source, _), count in pairs.items():
        leaving[source] = leaving.get(source, 0) + count
    found = [Arrow(a, b, count / leaving[a]) for (a, b), count in pairs.items()]
    order = {name: i for i, name in enumerate(names(given))}
    found.sort(key=lambda one: (order[one.source], -one.share, order[one.target]))
    return [one for one in found if one.share >= least]


def names(given: Activations) -> list[str]:
    """The beginning, the agents in the order of their number of turns, the end."""
    agents = sorted(given.turns, key=lambda name: (-given.turns[name], name))
    return [START, *agents, END] if agents else []


def _label(given: Activations, name: str) -> tuple[str, ...]:
    if name in (START, END):
        return (name,)
    return name, f"{given.turns[name] / given.episodes:.2f} turns"


def _summary(given: Activations, drawn: Sequence[Arrow]) -> list[str]:
    hidden = len(given.edges) + len(given.ends) - len(drawn)
    return given.summary() + ([f"{hidden} rarer arrows are left out"] if hidden else [])


# ------------------------------------------------------------------------------------ as text


def following_mermaid(given: Activations, least: float = 0.0) -> str:
    """A Mermaid flowchart."""
    ids = {name: f"n{i}" for i, name in enumerate(names(given))}
    drawn = arrows(given, least)
    lines = ["flowchart LR", *(f"  %% {line}" for line in _summary(given, drawn))]
    for name, number in ids.items():
        text = mermaid_text(_label(given, name))
        lines.append(f'  {number}(("{text}"))' if name in (START, END) else f'  {number}["{text}"]')
    lines += [f'  {ids[one.source]} -->|"{one.label}"| {ids[one.target]}' for one in drawn]
    for i, one in enumerate(drawn):
        lines.append(f"  linkStyle {i} stroke-width:{one.width:.1f}px")
    return "\n".join(lines) + "\n"


def following_dot(given: Activations, least: float = 0.0) -> str:
    """A DOT digraph, for Graphviz."""
    ids = {name: f"n{i}" for i, name in enumerate(names(given))}
    drawn = arrows(given, least)
    below = dot_text(_summary(given, drawn))
    lines = ["digraph {", f'  rankdir=LR; label="{below}"; node [shape=box, style=rounded];']
    for name, number in ids.items():
        shape = ", shape=circle" if name in (START, END) else ""
        lines.append(f'  {number} [label="{dot_text(_label(given, name))}"{shape}];')
    for one in drawn:
        settings = f'label="{one.label}", penwidth={one.width:.1f}'
        lines.append(f"  {ids[one.source]} -> {ids[one.target]} [{settings}];")
    return "\n".join([*lines, "}"]) + "\n"


# ------------------------------------------------------------------------------------ as SVG


def following_svg(given: Activations, least: float = 0.0) -> str:
    """Agents on a circle by their turns; it begins and ends at the left."""
    places = [Place(name, 0, _label(given, name)) for name in names(given)]
    for place in places:
        place.fit()
    drawn = arrows(given, least)
    below = _summary(given, drawn)
    size = _arrange(places)
    where = {place.name: place for place in places}
    lines: list[str] = []
    for one in drawn:
        lines += _arrow(one, where[one.source], where[one.target], size / 2)
    for place in places:
        lines += box(place)
    for i, text in enumerate(below):
        lines.append(f'<text x="{PAD:g}" y="{size + LINE * (i + 1):.1f}">{escape(text)}</text>')
    width = max([size, *(len(text) * CHARACTER + 2 * PAD for text in below)])
    return document(width, size + LINE * (len(below) + 1), lines)


def _arrange(places: Sequence[Place]) -> float:
    """Put places on a circle on which no two can touch; the side of the square that holds it."""
    if not places:
        return 0.0
    largest = max(hypot(place.width, place.height) for place in places)
    radius = (largest + PAD) / (2 * sin(pi / max(3, len(places))))
    half = ceil(radius + largest / 2 + MARGIN)
    for i, place in enumerate(places):
        angle = pi - pi / len(places) - 2 * pi * i / len(places)
        place.x = half + radius * cos(angle) - place.width / 2
        place.y = half - radius * sin(angle) - place.height / 2
    return 2.0 * half


def _arrow(one: Arrow, source: Place, target: Place, centre: float) -> list[str]:
    x, y = source.x + source.width / 2, source.middle
    to_x, to_y = target.x + target.width / 2, target.middle
    if source is target:
        # Away from the centre and back.
        away = hypot(x - centre, y - centre)
        out_x, out_y = (x - centre) / away, (y - centre) / away
        # 0.85: so that both bends, half as far to the side, are within the margin.
        reach = 0.85 * (hypot(source.width, source.height) / 2 + MARGIN)
        bends = [
            (x + reach * (out_x + side * out_y / 2), y + reach * (out_y - side * out_x / 2))
            for side in (1, -1)
        ]
    else:
        # To the right of the straight line, so that the way back is another one.
        bow_x, bow_y = -(to_y - y) / 6, (to_x - x) / 6
        middle = (x + to_x) / 2 + bow_x, (y + to_y) / 2 + bow_y
        bends = [middle, middle]
    x, y = _border(source, *bends[0])
    to_x, to_y = _border(target, *bends[1])
    (a, b), (c, d) = bends
    path = f"M{x:.1f} {y:.1f}C{a:.1f} {b:.1f} {c:.1f} {d:.1f} {to_x:.1f} {to_y:.1f}"
    label_x, label_y = (x + 3 * a + 3 * c + to_x) / 8, (y + 3 * b + 3 * d + to_y) / 8
    return [
        f'<path d="{path}" stroke-width="{one.width:.1f}" marker-end="url(#arrow)"/>',
        f'<text x="{label_x:.1f}" y="{label_y:.1f}" text-anchor="middle" font-size="11">'
        f"{one.label}</text>",
    ]


def _border(place: Place, x: float, y: float) -> tuple[float, float]:
    """Where the way from the middle of a box to a point outside of it leaves the box."""
    middle_x, middle_y = place.x + place.width / 2, place.middle
    dx, dy = x - middle_x, y - middle_y
    share = min(
        place.width / 2 / abs(dx) if dx else 1.0, place.height / 2 / abs(dy) if dy else 1.0, 1.0
    )
    return middle_x + dx * share, middle_y + dy * share


DRAWINGS: dict[str, Callable[[Activations, float], str]] = {
    "mermaid": following_mermaid,
    "dot": following_dot,
    "svg": following_svg,
}
