"""Draws what was learned as SVG: points with links, graphs of agents, trees of a search.

As in `drawing`, colours come from the style sheet, and each picture stands beside its table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from orchestrion_studio.drawing import (
    BOTTOM,
    LEFT,
    RIGHT,
    TOP,
    WIDTH,
    Scale,
    axes,
    short,
)
from orchestrion_studio.wording import figure

__all__ = ["graph", "scatter", "tree"]

HEIGHT = 300
BOX, ROW, COLUMN = 132, 44, 176
STEP, LINE = 150, 24
"""Of a tree: between turns, and between leaves."""


def scatter(section: Mapping[str, Any]) -> Markup:
    """Return the front of a search: each member links to its graph, `#front-NAME` on the page."""
    rivals = [row for row in section["baselines"] if row["cost"] is not None]
    members = [row for row in section["members"] if row["cost"] is not None]
    shown = [row for row in (*members, *rivals) if _quality(row) is not None]
    points = [(cost, quality) for cost, quality in section["others"] if quality is not None]
    points += [(row["cost"], _quality(row)) for row in shown]
    if not points:
        return Markup("")
    ends = [row[name] for row in shown for name in ("low", "high") if row[name] is not None]
    across = Scale([cost for cost, _ in points], LEFT, WIDTH - RIGHT)
    up = Scale([*(quality for _, quality in points), *ends], HEIGHT - BOTTOM, TOP)
    unit = "agents' unit" if section["measure"] == "cost" else section["measure"]
    parts = [axes(across, up, f"cost of an episode, {unit}", "reward", HEIGHT)]
    for cost, quality in section["others"]:
        parts.append(
            Markup('<circle class="tried" cx="{}" cy="{}" r="2"/>').format(
                across(cost), up(quality)
            )
        )
    for kind, rows in (("rival", rivals), ("member", members)):
        parts += [_point(row, kind, across, up) for row in rows if _quality(row) is not None]
    label = "The front: reward over cost; the table has the figures"
    return Markup(
        '<svg class="scatter" viewBox="0 0 {} {}" role="group" aria-label="{}">{}</svg>'
    ).format(WIDTH, HEIGHT, label, Markup("").join(parts))


def _quality(row: Mapping[str, Any]) -> float | None:
    """Return the reward that may be quoted: held out, or else measured again, or in the search."""
    for name in ("mean", "fresh", "search"):
        if row[name] is not None:
            return float(row[name])
    return None


def _point(row: Mapping[str, Any], kind: str, across: Scale, up: Scale) -> Markup:
    quality = _quality(row)
    assert quality is not None
    x, y = across(row["cost"]), up(quality)
    whisker = Markup("")
    if row["low"] is not None and row["high"] is not None:
        whisker = Markup('<path class="whisker" d="M{} {}V{}"/>').format(
            x, up(row["low"]), up(row["high"])
        )
    title = f"{row['name']}: reward {figure(quality)} at cost {figure(row['cost'])}: {row['graph']}"
    dot = Markup('{}<circle cx="{}" cy="{}" r="{}"><title>{}</title></circle>').format(
        whisker, x, y, 6 if row["chosen"] else 4, title
    )
    classes = f"{kind} picked" if row["chosen"] else kind
    if not row["nodes"]:
        return Markup('<g class="{}">{}</g>').format(classes, dot)
    return Markup('<a class="{}" href="#front-{}" aria-label="{}">{}</a>').format(
        classes, row["name"], title, dot
    )


def graph(nodes: Sequence[str], links: Sequence[Sequence[str]], outputs: Sequence[str]) -> Markup:
    """Return a graph of agents, from left to right; nodes of `outputs` end it."""
    names = list(dict.fromkeys([*nodes, *(name for link in links for name in link)]))[:60]
    depth = dict.fromkeys(names, 0)
    for _ in names:  # longest paths; as many rounds as there are nodes end a loop
        for first, second in links:
            if first in depth and second in depth and first != second:
                depth[second] = min(max(depth[second], depth[first] + 1), len(names) - 1)
    columns: dict[int, list[str]] = {}
    for name in names:
        columns.setdefault(depth[name], []).append(name)
    order = {old: new for new, old in enumerate(sorted(columns))}
    tallest = max(map(len, columns.values()), default=1)
    place = {
        name: (8 + order[level] * COLUMN, 8 + (row + (tallest - len(members)) / 2) * ROW)
        for level, members in columns.items()
        for row, name in enumerate(members)
    }
    parts = []
    for first, second in links:
        if first not in place or second not in place:
            continue
        (x, y), (to_x, to_y) = place[first], place[second]
        start, end, middle = (x + BOX, y + 15), (to_x, to_y + 15), (x + BOX + to_x) / 2
        parts.append(
            Markup(
                '<path class="link" d="M{} {}C{} {} {} {} {} {}"/>'
                '<path class="head" d="M{} {}l-7 -4v8z"/>'
            ).format(*start, middle, start[1], middle, end[1], end[0] - 6, end[1], *end)
        )
    for name, (x, y) in place.items():
        parts.append(
            Markup(
                '<g class="{}"><rect x="{}" y="{}" width="{}" height="30" rx="6"/>'
                '<text class="middle" x="{}" y="{}">{}</text></g>'
            ).format(
                *("node out" if name in outputs else "node", x, y, BOX),
                *(x + BOX / 2, y + 20, short(name, 18)),
            )
        )
    width, height = 16 + (len(columns) - 1) * COLUMN + BOX, 16 + tallest * ROW
    text = "; ".join(f"{first} to {second}" for first, second in links) or ", ".join(names)
    return Markup(
        '<svg class="graph" viewBox="0 0 {} {}" width="{}" height="{}" role="img" '
        'aria-label="{}">{}</svg>'
    ).format(width, height, width, height, f"Graph: {text}", Markup("").join(parts))


def tree(nodes: Sequence[Mapping[str, Any]]) -> Markup:
    """Return the tree of a beam search, from left to right; `path` "0.1" is below "0".

    Each node is named by its last turn, and a leaf by its value as well.
    """
    paths = {node["path"]: node for node in nodes}
    ordered = sorted(
        paths, key=lambda path: [int(n) if n.isdecimal() else 0 for n in path.split(".")]
    )
    parents = {path: path.rpartition(".")[0] for path in ordered}
    leaves, place = 0, dict[str, tuple[float, float]]()
    for path in reversed(["", *ordered]):
        below = [place[other][1] for other in place if parents[other] == path]
        if not below:
            leaves += 1
        y = sum(below) / len(below) if below else -LINE * leaves
        place[path] = (STEP * (path.count(".") + 1 if path else 0) + 12.0, y)
    height, grown = LINE * (leaves + 1), set(parents.values())
    links, dots = list[Markup](), list[Markup]()
    for path in ordered:
        (x, y), (from_x, from_y), node = place[path], place[parents.get(path, "")], paths[path]
        links.append(
            Markup('<path class="link" d="M{} {}C{} {} {} {} {} {}"/>').format(
                *(from_x, height + from_y, from_x + STEP / 2, height + from_y),
                *(x - STEP / 2, height + y, x, height + y),
            )
        )
        value = figure(node["value"])
        title = f"{path}: {' + '.join(node['turns'])}, {node['fate']}, value {value}"
        name = f"{short((node['turns'] or [''])[-1], 14)} {value}"
        dots.append(
            Markup(
                '<g class="fate {}"><circle cx="{}" cy="{}" r="5"><title>{}</title></circle>'
                '<text class="{}" x="{}" y="{}">{}</text></g>'
            ).format(
                "".join(c for c in node["fate"] if c.isalpha()),
                *(x, height + y, title),
                # Above a node that others follow, where no line is.
                *(("middle", x, height + y - 10) if path in grown else ("", x + 9, height + y + 4)),
                name,
            )
        )
    width = STEP * max((path.count(".") + 2 for path in ordered), default=1) + 24
    label = f"Tree of {len(nodes)} trajectories; the table lists them"
    return Markup(
        '<svg class="tree" viewBox="0 0 {} {}" width="{}" height="{}" role="img" '
        'aria-label="{}">{}</svg>'
    ).format(width, height, width, height, label, Markup("").join([*links, *dots]))
