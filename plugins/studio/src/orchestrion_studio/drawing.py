"""Plots as plain data, and where everything stands in their pictures.

`templates/drawings.html` draws them as SVG, each with the table of its figures, for pages and
reports alike; on a page, studio.js replaces the curves by ones that can be zoomed and read under
the pointer.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from orchestrion_studio.wording import difference, percent
from orchestrion_studio.wording import figure as figure_text

__all__ = ["chart", "forest_rows", "plot_of", "series_of", "short", "spark", "topology"]

WIDTH, HEIGHT = 640, 240
LEFT, RIGHT, TOP, BOTTOM = 92, 12, 10, 38
COLOURS = 12
"""Number of colours; the last one is grey."""
MIDDLE = 150
"""The middle of the picture of who follows whom: a name stands above a node that is above it."""
POINTS = 240
"""Limit of points in a curve; a longer one is reduced to means of neighbours."""
ROWS = 80
"""Limit of rows in a plot's table; of a longer one, every n-th row is shown."""

Number = float | None
Plot = dict[str, Any]


def series_of(
    name: str,
    x: Sequence[Number],
    y: Sequence[Number],
    *,
    low: Sequence[Number] | None = None,
    high: Sequence[Number] | None = None,
    style: str = "line",
    colour: int | None = None,
) -> dict[str, Any]:
    """Return a series of a plot, as plain data.

    Args:
        name: in the legend and at the head of the table's column.
        x: positions.
        y: values; None where there is none.
        low: lower ends of intervals around the values.
        high: upper ends.
        style: "line"; "faint", e.g. raw values behind smoothed ones; "points"; or "rule", a
            horizontal line at the first value, e.g. a limit.
        colour: number of its colour, so that the same thing looks the same in all plots; by
            default that of its place among the plot's series.
    """
    series: dict[str, Any] = {
        "name": name,
        "x": list(x),
        "y": [_finite(value) for value in y],
        "style": style,
    }
    if colour is not None:
        series["colour"] = colour % COLOURS
    if low is not None and high is not None:
        series |= {"low": [_finite(v) for v in low], "high": [_finite(v) for v in high]}
    return series


def plot_of(
    title: str,
    x: str,
    y: str,
    series: Sequence[Mapping[str, Any]],
    *,
    id: str = "",
    shares: bool = False,
) -> Plot:
    """Return a plot, as plain data.

    Args:
        title: above the plot.
        x: name of the axis, with its unit.
        y: likewise.
        series: made by `series_of`.
        id: of the figure on its page; by default from the title.
        shares: whether values are shares, which are written as per cent.
    """
    coloured, lines = [], 0
    for each in series:
        coloured.append({"colour": lines % COLOURS, **each})
        lines += each["style"] != "faint"  # a faint one looks like the line it belongs to
    return {
        "id": id or title.lower().replace(" ", "-"),
        "title": title,
        "x": x,
        "y": y,
        "series": coloured,
        "shares": shares,
    }


def _finite(value: Number) -> Number:
    """Return a number that can be drawn; None for what is infinite or all but that."""
    if value is None or not abs(value) < 1e100:
        return None
    return value if abs(value) > 1e-100 else 0.0


def chart(plot: Plot) -> dict[str, Any]:
    """Return what is drawn of a plot: `series` with their marks, `axes` and `table`.

    `data` is what the browser draws it from; `axes` is None where there is nothing to draw yet.
    """
    drawn = [_thinned(series) for series in plot["series"]]
    known = {"data": json.dumps({**plot, "series": drawn}), "table": _table_of(plot)}
    xs = [x for series in drawn for x in series["x"] if x is not None]
    names = ("y", "low", "high")
    ys = [v for series in drawn for name in names for v in series.get(name, ()) if v is not None]
    if not xs or not ys:
        return {**known, "series": drawn, "axes": None}
    across, up = Scale(xs, LEFT, WIDTH - RIGHT), Scale(ys, HEIGHT - BOTTOM, TOP)
    return {
        **known,
        "series": [{**series, **_marks(series, across, up)} for series in drawn],
        "axes": axes(across, up, plot["x"], plot["y"], shares=plot["shares"]),
    }


def _thinned(series: Mapping[str, Any]) -> dict[str, Any]:
    size = len(series["x"])
    step = math.ceil(size / POINTS)
    if step <= 1 or series["style"] in ("points", "rule"):
        return {**series, "y": [_rounded(y) for y in series["y"]]}
    starts = range(0, size, step)
    return {
        **series,
        "x": [series["x"][start] for start in starts],
        "y": [_rounded(_mean(series["y"][start : start + step])) for start in starts],
    }


def _rounded(value: Number) -> Number:
    return None if value is None else float(f"{value:.6g}")


def _mean(values: Sequence[Number]) -> Number:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


class Scale:
    """Maps values to positions, with room around them, and knows round values between them."""

    def __init__(self, values: Iterable[float], start: float, end: float) -> None:
        known = list(values)
        low, high = min(known), max(known)
        self._whole = high - low >= 1 and all(value == round(value) for value in known)
        if high - low <= 1e-9 * max(abs(low), abs(high)):
            low, high = low - (abs(low) / 2 or 0.5), high + (abs(high) / 2 or 0.5)
        self.low, self.high = low, high
        self._start, self._factor = start, (end - start) / (high - low)

    def __call__(self, value: float) -> float:
        """Return the position of a value."""
        return round(self._start + (value - self.low) * self._factor, 1)

    def ticks(self, about: int) -> list[float]:
        """Return round values, roughly so many."""
        step = 10.0 ** math.floor(math.log10((self.high - self.low) / about))
        for factor in (2.0, 2.5, 2.0):
            if (self.high - self.low) / step > about * 1.5:
                step *= factor
        if self._whole:
            step = max(1.0, math.ceil(step))
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        return [round(number * step, 12) for number in range(first, last + 1)]


def axes(
    across: Scale, up: Scale, x: str, y: str, height: int = HEIGHT, shares: bool = False
) -> dict[str, Any]:
    """Return both axes of a plot of this height: names, ends, and the place of each round value."""
    return {
        "x": x,
        "y": y,
        "width": WIDTH,
        "height": height,
        "left": LEFT,
        "right": WIDTH - RIGHT,
        "top": TOP,
        "bottom": height - BOTTOM,
        "rows": [(up(value), _tick(value, shares)) for value in up.ticks(4)],
        "columns": [(across(value), figure_text(value)) for value in across.ticks(8)],
    }


def _tick(value: float, shares: bool) -> str:
    return f"{figure_text(round(100 * value, 9))}%" if shares else figure_text(value)


def _marks(series: Mapping[str, Any], across: Scale, up: Scale) -> dict[str, Any]:
    """Return what is drawn of a series: a height for a `rule`, or `whiskers`, `dots`, `line`."""
    marks: dict[str, Any] = {"rule": None, "whiskers": "", "dots": [], "line": None}
    if series["style"] == "rule":
        rule = next((up(value) for value in series["y"] if value is not None), None)
        return marks | {"rule": rule}
    points = [
        (across(x), None if y is None else up(y))
        for x, y in zip(series["x"], series["y"], strict=True)
        if x is not None
    ]
    known = [(x, y) for x, y in points if y is not None]
    intervals = zip(series["x"], series.get("low", ()), series.get("high", ()), strict=False)
    whiskers = [
        f"M{across(x)} {up(low)}V{up(high)}"
        for x, low, high in intervals
        if low is not None and high is not None
    ]
    marks["whiskers"] = "".join(whiskers)
    if series["style"] == "points" or len(known) == 1:
        return marks | {"dots": known}
    path, pen = [], "M"
    for x, y in points:
        if y is None:
            pen = "M"
            continue
        path.append(f"{pen}{x} {y}")
        pen = "L"
    return marks | {"line": "".join(path)}


def _table_of(plot: Plot) -> dict[str, Any]:
    """Return the figures of a plot, as `data_table` takes them."""
    shown = plot["series"]
    write = percent if plot["shares"] else partial(figure_text, digits=4)
    places = sorted({x for series in shown for x in series["x"] if x is not None})
    step = math.ceil(len(places) / ROWS) or 1
    rows = {x: [""] * len(shown) for x in places[::step]}
    for number, series in enumerate(shown):
        lows, highs = series.get("low"), series.get("high")
        for place, (x, y) in enumerate(zip(series["x"], series["y"], strict=True)):
            if x in rows:
                rows[x][number] = write(y)
                if lows and highs and lows[place] is not None:
                    ends = f" [{write(lows[place])}, {write(highs[place])}]"
                    rows[x][number] += ends
    return {
        "heads": [plot["x"], *(series["name"] for series in shown)],
        "rows": [[figure_text(x), *texts] for x, texts in rows.items()],
        "note": f"every {step}th row of {len(places)}" if step > 1 else "",
    }


def forest_rows(rows: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the rows of a forest plot, with places in per cent of its width, and `ticks`.

    Args:
        rows: with `name`, `mean`, `low`, `high`; None where nothing is known.
    """
    known = [row for row in rows if row["mean"] is not None]
    if not known:
        return {"rows": []}
    values = [row[name] for row in known for name in ("low", "high") if row[name] is not None]
    across = Scale([0.0, *(row["mean"] for row in known), *values], 2, 98)
    drawn = []
    for row in known:
        low = row["mean"] if row["low"] is None else row["low"]
        high = row["mean"] if row["high"] is None else row["high"]
        text = difference(row["mean"])
        if row["low"] is not None and row["high"] is not None:
            text += f" [{difference(low)}, {difference(high)}]"
        drawn.append(
            {
                "kind": "better" if low > 0 else "worse" if high < 0 else "level",
                "name": short(row["name"], 40),
                "low": across(low),
                "high": across(high),
                "mean": across(row["mean"]),
                "text": text,
            }
        )
    ticks = [(across(value), value, figure_text(value)) for value in across.ticks(5)]
    return {"rows": drawn, "ticks": ticks}


def short(text: str, size: int) -> str:
    """Return the beginning of a text, with a mark where it is cut."""
    return text if len(text) <= size else f"{text[: size - 1]}…"


def spark(values: Sequence[Number]) -> dict[str, Any] | None:
    """Return the path of a small curve without axes, and both ends; None for less than a line."""
    known = [value for value in values if value is not None]
    if len(known) < 2:
        return None
    across, up = Scale([0, len(known) - 1], 1, 99), Scale(known, 21, 3)
    path = "L".join(f"{across(number)} {up(value)}" for number, value in enumerate(known))
    return {"path": path, "first": known[0], "last": known[-1]}


def topology(graph: Mapping[str, Any]) -> dict[str, Any]:
    """Return who follows whom at the last of its steps; studio.js adds a slider over all steps."""
    step = graph["steps"][-1]
    places = {
        node["name"]: (60 + node["x"] * (WIDTH - 120), 24 + node["y"] * 232)
        for node in graph["nodes"]
    }
    shares = {(edge["from"], edge["to"]): 0.0 for each in graph["steps"] for edge in each["edges"]}
    shares |= {(edge["from"], edge["to"]): edge["share"] for edge in step["edges"]}
    most = max(shares.values())
    ranked = sorted(shares.items(), key=lambda item: item[1])
    nodes = []
    for node in graph["nodes"]:
        x, y = places[node["name"]]
        kind = " ends" if node["colour"] is None else f" c{node['colour']}"
        text_y = y - 14 if y < MIDDLE else y + 22
        nodes.append({"kind": kind, "x": x, "y": y, "text_y": text_y, "name": node["name"]})
    return {
        "title": step["title"],
        "width": WIDTH,
        "edges": [_edge(pair, places, share, share / most) for pair, share in ranked],
        "nodes": nodes,
    }


def _edge(
    pair: tuple[str, str], places: Mapping[str, tuple[float, float]], share: float, weight: float
) -> dict[str, Any]:
    """Return a bent arrow: there and back are two lines; who follows himself has a loop."""
    (x, y), (to_x, to_y) = places[pair[0]], places[pair[1]]
    along_x, along_y = to_x - x, to_y - y
    if pair[0] == pair[1]:
        side = 1 if y < MIDDLE else -1  # away from the name
        path = f"M{x - 5:.1f} {y + 7 * side:.1f}c-21 {33 * side} 31 {33 * side} 10 0"
        middle_x, middle_y = x, y + 32 * side
    else:
        bend_x, bend_y = (x + to_x) / 2 - 0.12 * along_y, (y + to_y) / 2 + 0.12 * along_x
        path = f"M{x:.1f} {y:.1f}Q{bend_x:.1f} {bend_y:.1f} {to_x:.1f} {to_y:.1f}"
        middle_x, middle_y = (x + to_x + 2 * bend_x) / 4, (y + to_y + 2 * bend_y) / 4
    return {
        "pair": json.dumps(pair, ensure_ascii=False, separators=(",", ":")),
        "share": share,
        "weight": weight,
        "path": path,
        "x": middle_x,
        "y": middle_y,
        # In its middle, a line runs as from end to end.
        "turn": math.degrees(math.atan2(along_y, along_x)),
    }
