"""Where everything stands in pictures of what was learned: points with links, graphs, trees.

`templates/drawings.html` draws them; each picture stands beside its table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from orchestrion_studio.drawing import BOTTOM, LEFT, RIGHT, TOP, WIDTH, Scale, axes, short
from orchestrion_studio.wording import figure

__all__ = ["front_points", "graph_places", "tree_places"]

HEIGHT = 300
BOX, ROW, COLUMN = 132, 44, 176
STEP, LINE = 150, 24
"""Distances in a tree: between turns, and between leaves."""


def front_points(section: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the points of the front of a search, and its axes; None without a point.

    Each member links to its graph, `#front-NAME` on the page.
    """
    rows = [("rival", row) for row in section["baselines"]]
    rows += [("member", row) for row in section["members"]]
    shown = [(kind, row, _quality(row)) for kind, row in rows if row["cost"] is not None]
    points = [(cost, quality) for cost, quality in section["others"] if quality is not None]
    points += [(row["cost"], quality) for _, row, quality in shown if quality is not None]
    if not points:
        return None
    ends = [
        row[name]
        for _, row, quality in shown
        for name in ("low", "high")
        if quality is not None and row[name] is not None
    ]
    across = Scale([cost for cost, _ in points], LEFT, WIDTH - RIGHT)
    up = Scale([*(quality for _, quality in points), *ends], HEIGHT - BOTTOM, TOP)
    unit = "agents' unit" if section["measure"] == "cost" else section["measure"]
    return {
        "axes": axes(across, up, f"cost of an episode, {unit}", "reward", HEIGHT),
        "tried": [(across(cost), up(quality)) for cost, quality in section["others"]],
        "points": [
            _point(row, kind, quality, across, up)
            for kind, row, quality in shown
            if quality is not None
        ],
    }


def _quality(row: Mapping[str, Any]) -> float | None:
    """Return the reward that may be quoted: held out, or else measured again, or in the search."""
    for name in ("mean", "fresh", "search"):
        if row[name] is not None:
            return float(row[name])
    return None


def _point(
    row: Mapping[str, Any], kind: str, quality: float, across: Scale, up: Scale
) -> dict[str, Any]:
    whisker = None
    if row["low"] is not None and row["high"] is not None:
        whisker = (up(row["low"]), up(row["high"]))
    return {
        "x": across(row["cost"]),
        "y": up(quality),
        "whisker": whisker,
        "radius": 6 if row["chosen"] else 4,
        "kind": f"{kind} picked" if row["chosen"] else kind,
        "link": f"#front-{row['name']}" if row["nodes"] else "",
        "title": f"{row['name']}: reward {figure(quality)} at cost {figure(row['cost'])}: "
        f"{row['graph']}",
    }


def graph_places(nodes: Sequence[str], links: Sequence[Sequence[str]]) -> dict[str, Any]:
    """Return where the agents of a graph and the arrows between them stand, from left to right."""
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
    arrows = []
    for first, second in links:
        if first in place and second in place:
            (x, y), (to_x, to_y) = place[first], place[second]
            arrows.append(((x + BOX, y + 15), (x + BOX + to_x) / 2, (to_x, to_y + 15)))
    return {
        "places": place,
        "arrows": arrows,
        "box": BOX,
        "width": 16 + (len(columns) - 1) * COLUMN + BOX,
        "height": 16 + tallest * ROW,
        "text": "; ".join(f"{first} to {second}" for first, second in links) or ", ".join(names),
    }


def tree_places(nodes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return where the nodes of a beam search stand, from left to right; "0.1" is below "0".

    Each node is named by its last turn and its value.
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
    drawn = []
    for path in ordered:
        (x, y), (from_x, from_y), node = place[path], place[parents.get(path, "")], paths[path]
        value = figure(node["value"])
        drawn.append(
            {
                "x": x,
                "y": height + y,
                "from_x": from_x,
                "from_y": height + from_y,
                "kind": "".join(c for c in node["fate"] if c.isalpha()),
                "title": f"{path}: {' + '.join(node['turns'])}, {node['fate']}, value {value}",
                "name": f"{short((node['turns'] or [''])[-1], 14)} {value}",
                "is_grown": path in grown,
            }
        )
    width = STEP * max((path.count(".") + 2 for path in ordered), default=1) + 24
    return {"nodes": drawn, "bend": STEP / 2, "width": width, "height": height}
