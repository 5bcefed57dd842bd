"""Draws plots as SVG, each with the table of its figures, for pages and reports alike.

A plot is plain data, so that the JSON of a page holds it too. Colours come from the style sheet,
by class; nothing has an inline style. On a page, studio.js replaces the curves of a
`figure[data-plot]` by ones that can be zoomed and read under the pointer.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from markupsafe import Markup, escape

from orchestrion_studio.wording import difference, percent
from orchestrion_studio.wording import figure as figure_text

__all__ = ["bar", "curves", "data_table", "forest", "plot_of", "series_of", "sparkline", "topology"]

WIDTH, HEIGHT = 640, 240
LEFT, RIGHT, TOP, BOTTOM = 92, 12, 10, 38
COLOURS = 12
"""The last one is grey."""
MIDDLE = 150
"""Of the picture of who follows whom: names stand above what is above it."""
POINTS = 240
"""Points that are drawn of a curve; of a longer one, means of neighbours."""
ROWS = 80
"""Rows of a plot's table; of a longer one, rows at equal distances."""

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


def curves(plot: Plot) -> Markup:
    """Return a plot of curves and points over one axis, with its legend and its table."""
    thinned = [_thinned(series) for series in plot["series"]]
    data = json.dumps({**plot, "series": thinned})
    return Markup(
        '<figure class="plot" id="plot-{}" data-plot="{}"><figcaption>{}</figcaption>{}'
        '<div class="canvas">{}</div>{}</figure>'
    ).format(
        plot["id"], data, plot["title"], _legend(thinned), _svg(plot, thinned), _table_of(plot)
    )


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


def _legend(drawn: Sequence[Mapping[str, Any]]) -> Markup:
    if len(drawn) < 2:
        return Markup("")
    items = (
        Markup('<li class="c{}"><i class="{}"></i>{}</li>').format(
            series["colour"], series["style"], series["name"]
        )
        for series in drawn
    )
    return Markup('<ul class="legend">{}</ul>').format(Markup("").join(items))


def _svg(plot: Plot, drawn: Sequence[Mapping[str, Any]]) -> Markup:
    xs = [x for series in drawn for x in series["x"] if x is not None]
    names = ("y", "low", "high")
    ys = [v for series in drawn for name in names for v in series.get(name, ()) if v is not None]
    if not xs or not ys:
        return Markup('<p class="empty">nothing to draw yet</p>')
    across, up = Scale(xs, LEFT, WIDTH - RIGHT), Scale(ys, HEIGHT - BOTTOM, TOP)
    parts = [axes(across, up, plot["x"], plot["y"], shares=plot["shares"])]
    parts += [_curve(series, across, up, f"c{series['colour']}") for series in drawn]
    label = f"{plot['title']}: {plot['y']} over {plot['x']}; the table below has the figures"
    return Markup('<svg viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>').format(
        WIDTH, HEIGHT, label, Markup("").join(parts)
    )


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
) -> Markup:
    """Return both axes of a plot of this height with their names, and a line at each round y."""
    parts = []
    for value in up.ticks(4):
        at = up(value)
        parts.append(
            Markup('<path class="grid" d="M{} {}H{}"/><text x="{}" y="{}" class="end">{}</text>')
            .format(LEFT, at, WIDTH - RIGHT, LEFT - 6, at + 4, _tick(value, shares))
        )  # fmt: skip
    for value in across.ticks(8):
        parts.append(
            Markup('<text x="{}" y="{}" class="middle">{}</text>').format(
                across(value), height - BOTTOM + 16, figure_text(value)
            )
        )
    middle = (TOP + height - BOTTOM) / 2
    return Markup(
        '<g class="axes">{}<path class="axis" d="M{} {}H{}"/>'
        '<text x="{}" y="{}" class="name end">{}</text>'
        '<text transform="translate(12 {}) rotate(-90)" class="name middle">{}</text></g>'
    ).format(
        Markup("").join(parts),
        *(LEFT, height - BOTTOM, WIDTH - RIGHT),
        *(WIDTH - RIGHT, height - 6, x),
        *(middle, y),
    )


def _tick(value: float, shares: bool) -> str:
    return f"{figure_text(round(100 * value, 9))}%" if shares else figure_text(value)


def _curve(series: Mapping[str, Any], across: Scale, up: Scale, name: str) -> Markup:
    if series["style"] == "rule":
        value = next((v for v in series["y"] if v is not None), None)
        if value is None:
            return Markup("")
        return Markup('<path class="rule {}" d="M{} {}H{}"/>').format(
            name, LEFT, up(value), WIDTH - RIGHT
        )
    points = [
        (across(x), None if y is None else up(y))
        for x, y in zip(series["x"], series["y"], strict=True)
        if x is not None
    ]
    known = [(x, y) for x, y in points if y is not None]
    parts = []
    for x, low, high in zip(
        series["x"], series.get("low", ()), series.get("high", ()), strict=False
    ):
        if low is not None and high is not None:
            parts.append(f"M{across(x)} {up(low)}V{up(high)}")
    whisker = Markup('<path class="whisker {}" d="{}"/>').format(name, "".join(parts))
    if series["style"] == "points" or len(known) == 1:
        dots = (
            Markup('<circle class="{}" cx="{}" cy="{}" r="3"/>').format(name, *p) for p in known
        )
        return (whisker if parts else Markup("")) + Markup("").join(dots)
    path, pen = [], "M"
    for x, y in points:
        if y is None:
            pen = "M"
            continue
        path.append(f"{pen}{x} {y}")
        pen = "L"
    return (whisker if parts else Markup("")) + Markup('<path class="line {} {}" d="{}"/>').format(
        name, series["style"], "".join(path)
    )


def _table_of(plot: Plot) -> Markup:
    """Return the figures of a plot, folded away."""
    shown, write = plot["series"], percent if plot["shares"] else _exact
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
    heads = [plot["x"], *(series["name"] for series in shown)]
    cells = [[figure_text(x), *texts] for x, texts in rows.items()]
    note = f"every {step}th row of {len(places)}" if step > 1 else ""
    return data_table(heads, cells, f"Table: {plot['title']}", note)


def _exact(value: Number) -> str:
    return figure_text(value, 4)


def data_table(
    heads: Sequence[str], rows: Sequence[Sequence[Any]], summary: str, note: str = ""
) -> Markup:
    """Return a table that is folded away behind its summary."""
    head = "".join(f'<th scope="col">{escape(text)}</th>' for text in heads)
    body = "".join(
        f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows
    )
    below = f"<p>{escape(note)}</p>" if note else ""
    return Markup(
        f'<details class="figures"><summary>{escape(summary)}</summary><div class="scroll" '
        f'tabindex="0" role="region" aria-label="{escape(summary)}"><table><thead><tr>{head}</tr>'
        f"</thead><tbody>{body}</tbody></table>{below}</div></details>"
    )


def forest(rows: Sequence[Mapping[str, Any]], axis: str) -> Markup:
    """Return a forest plot: a row each with its mean and interval, and a line at 0.

    Args:
        rows: with `name`, `mean`, `low`, `high`; None where nothing is known.
        axis: name and unit of the values.
    """
    known = [row for row in rows if row["mean"] is not None]
    if not known:
        return Markup("")
    values = [row[name] for row in known for name in ("low", "high") if row[name] is not None]
    across = Scale([0.0, *(row["mean"] for row in known), *values], 2, 98)
    ticks = across.ticks(5)
    grid = Markup("").join(
        Markup('<line class="{}" x1="{}%" x2="{}%" y2="100%"/>').format(
            "grid" if value else "zero", across(value), across(value)
        )
        for value in ticks
    )
    parts = []
    for row in known:
        low = row["mean"] if row["low"] is None else row["low"]
        high = row["mean"] if row["high"] is None else row["high"]
        kind = "better" if low > 0 else "worse" if high < 0 else "level"
        text = difference(row["mean"])
        if row["low"] is not None and row["high"] is not None:
            text += f" [{difference(low)}, {difference(high)}]"
        parts.append(
            Markup(
                '<div class="row {}"><span class="name">{}</span><svg>{}'
                '<line class="whisker" x1="{}%" x2="{}%" y1="50%" y2="50%"/>'
                '<circle cx="{}%" cy="50%" r="4"/></svg><span class="num">{}</span></div>'
            ).format(
                *(kind, short(row["name"], 40), grid),
                *(across(low), across(high), across(row["mean"]), text),
            )
        )
    labels = Markup("").join(
        Markup('<text class="middle" x="{}%" y="12">{}</text>').format(
            across(value), figure_text(value)
        )
        for value in ticks
    )
    return Markup(
        '<div class="forest" role="img" aria-label="{}">{}<div class="row axis">'
        '<svg>{}</svg><span class="name">{}</span></div></div>'
    ).format(
        f"Forest plot: {axis}; the table has the figures", Markup("").join(parts), labels, axis
    )


def short(text: str, size: int) -> str:
    """Return the beginning of a text, with a mark where it is cut."""
    return text if len(text) <= size else f"{text[: size - 1]}…"


def sparkline(values: Sequence[Number], name: str) -> Markup:
    """Return a small curve without axes; the name says what it shows."""
    known = [value for value in values if value is not None]
    if len(known) < 2:
        return Markup("")
    across, up = Scale([0, len(known) - 1], 1, 99), Scale(known, 21, 3)
    path = "L".join(f"{across(number)} {up(value)}" for number, value in enumerate(known))
    label = f"{name}: from {figure_text(known[0])} to {figure_text(known[-1])}"
    return Markup(
        '<svg class="spark" viewBox="0 0 100 24" role="img" aria-label="{}">'
        '<path class="line" d="M{}"/></svg>'
    ).format(label, path)


def bar(share: Number, name: str) -> Markup:
    """Return a bar that is filled to a share of its length."""
    width = round(100 * min(max(share or 0.0, 0.0), 1.0), 1)
    return Markup(
        '<svg class="bar" viewBox="0 0 100 6" preserveAspectRatio="none" role="img" '
        'aria-label="{}"><rect class="rest" width="100" height="6"/>'
        '<rect class="part" width="{}" height="6"/></svg>'
    ).format(escape(name), width)


def topology(graph: Mapping[str, Any]) -> Markup:
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
    parts = [_edge(pair, places, share, share / most) for pair, share in ranked]
    for node in graph["nodes"]:
        name, (x, y) = node["name"], places[node["name"]]
        kind = " ends" if node["colour"] is None else f" c{node['colour']}"
        parts.append(
            Markup(
                '<circle class="node{}" cx="{:.1f}" cy="{:.1f}" r="9"/>'
                '<text class="middle" x="{:.1f}" y="{:.1f}">{}</text>'
            ).format(kind, x, y, x, y - 14 if y < MIDDLE else y + 22, short(name, 22))
        )
    label = f"Who follows whom, {step['title']}; the table has the figures"
    return Markup('<svg viewBox="0 0 {} 290" role="img" aria-label="{}">{}</svg>').format(
        WIDTH, label, Markup("").join(parts)
    )


def _edge(
    pair: tuple[str, str], places: Mapping[str, tuple[float, float]], share: float, weight: float
) -> Markup:
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
    # In its middle, a line runs as from end to end.
    turn = math.degrees(math.atan2(along_y, along_x))
    return Markup(
        '<g class="edge" data-edge="{}" display="{}" stroke-width="{:.1f}" opacity="{:.2f}">'
        '<title>{}</title><path d="{}"/><path class="head" d="M6 0l-10 -5v10z" '
        'transform="translate({:.1f} {:.1f}) rotate({:.1f})"/></g>'
    ).format(
        json.dumps(pair, ensure_ascii=False, separators=(",", ":")),
        "inline" if share else "none",
        *(0.4 + 4 * weight, 0.2 + 0.6 * weight, percent(share), path, middle_x, middle_y, turn),
    )
