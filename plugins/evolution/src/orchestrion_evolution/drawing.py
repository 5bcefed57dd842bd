"""The front as a picture and as a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape

from orchestrion import JSON

__all__ = ["front_svg", "front_table"]

WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 640.0, 400.0, 64.0, 48.0, 28.0, 24.0

STYLE = """<style>
text { font: 12px system-ui, sans-serif; fill: #222 } .axis { stroke: #999 }
.seen { fill: #bbb } .line { fill: none; stroke: #2563a8; stroke-width: 1.5 }
.front { fill: #2563a8 } .chosen { fill: #c2410c } .base { fill: none; stroke: #15803d }
@media (prefers-color-scheme: dark) { text { fill: #ddd } .seen { fill: #555 }
.line { stroke: #7ab8ff } .front { fill: #7ab8ff } .chosen { fill: #ff8a4c }
.base { stroke: #4ade80 } }
</style>"""


def front_svg(report: Mapping[str, JSON]) -> str:
    """Cost to the right, reward up: every graph that was searched, the front, and baselines.

    Points that were measured again stand at their fresh values.
    """
    front = [(one, *_at(one)) for one in report["front"]]
    bases = [(one, *_at(one)) for one in report["baselines"] if one["fresh"]]
    points = [*map(tuple, report["searched"]), *((x, y) for _, x, y in (*front, *bases))]
    place = _Scale(points)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH:g} {HEIGHT:g}" '
        f'width="{WIDTH:g}" height="{HEIGHT:g}" role="img">',
        f"<title>{escape(report['strategy'])}: {len(front)} graphs on the front</title>",
        STYLE,
        *_axes(place, str(report["measure"])),
        *(_dot(place, x, y, "seen", 2.0) for x, y in report["searched"]),
    ]
    path = " ".join(f"{place.x(x):.1f},{place.y(y):.1f}" for _, x, y in front)
    parts.append(f'<polyline class="line" points="{path}"/>')
    for one, x, y in front:
        parts.append(_dot(place, x, y, "chosen" if one["chosen"] else "front", 5.0, _label(one)))
    for one, x, y in bases:
        parts.append(_dot(place, x, y, "base", 6.0, f"{one['name']}: {one['graph']}"))
        parts.append(
            f'<text x="{place.x(x) + 9:.1f}" y="{place.y(y) + 4:.1f}">{escape(one["name"])}</text>'
        )
    return "\n".join([*parts, "</svg>"]) + "\n"


def _label(one: Mapping[str, JSON]) -> str:
    return f"{one['name']}{' (chosen)' if one['chosen'] else ''}: {one['graph']}"


def _at(one: Mapping[str, JSON]) -> tuple[float, float]:
    value = one["fresh"] or one["search"] or {"cost": 0.0, "quality": 0.0}
    return value["cost"], value["quality"]


class _Scale:
    """From values to pixels."""

    def __init__(self, points: Sequence[tuple[float, float]]) -> None:
        xs, ys = [x for x, _ in points] or [0.0], [y for _, y in points] or [0.0]
        self.low, self.high = (min(xs), min(ys)), (max(xs), max(ys))

    def x(self, value: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * self._share(value, 0)

    def y(self, value: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * self._share(value, 1)

    def _share(self, value: float, axis: int) -> float:
        width = self.high[axis] - self.low[axis]
        return (value - self.low[axis]) / width if width else 0.5


def _axes(place: _Scale, measure: str) -> Iterator[str]:
    base = HEIGHT - BOTTOM + 8
    yield f'<path class="axis" d="M{LEFT - 8:g} {TOP:g}V{base:g}H{WIDTH - RIGHT:g}" fill="none"/>'
    for share in (0.0, 0.5, 1.0):
        x = place.low[0] + share * (place.high[0] - place.low[0])
        y = place.low[1] + share * (place.high[1] - place.low[1])
        yield f'<text x="{place.x(x):.1f}" y="{base + 16:.1f}" text-anchor="middle">{x:.3g}</text>'
        yield f'<text x="{LEFT - 14:g}" y="{place.y(y) + 4:.1f}" text-anchor="end">{y:.3g}</text>'
    yield f'<text x="{WIDTH - RIGHT:g}" y="{HEIGHT - 6:g}" text-anchor="end">{measure}</text>'
    yield f'<text x="8" y="{TOP - 10:g}">reward</text>'


def _dot(place: _Scale, x: float, y: float, kind: str, size: float, title: str = "") -> str:
    inside = f"<title>{escape(title)}</title>" if title else ""
    return f'<circle class="{kind}" cx="{place.x(x):.1f}" cy="{place.y(y):.1f}" r="{size:g}">' + (
        f"{inside}</circle>"
    )


# ------------------------------------------------------------------------------- as a table


def front_table(report: Mapping[str, JSON]) -> str:
    """The front, cheapest first, then the baselines; `*` is the graph that the run uses."""
    problems = report["held_out"]["problems"]
    rows: list[tuple[str, ...]] = [
        ("", "", "cost", "search", "fresh", f"held out ({problems})", "graph")
    ]
    for one in report["front"]:
        rows.append(_row("*" if one["chosen"] else "", one))
    rows += [_row("", one) for one in report["baselines"]]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    for one in report["baselines"]:
        if one["behind"] is not None and one["behind"]["mean"] is not None:
            lines.append(f"ahead of {one['name']} by {_interval(one['behind'])}")
    return "\n".join(lines) + "\n"


def _row(mark: str, one: Mapping[str, JSON]) -> tuple[str, ...]:
    fresh, search, held = one["fresh"], one["search"], one["held_out"]
    cost = held["cost"]["mean"] if held else (fresh or search or {}).get("cost")
    shown = [f"{value['quality']:.3f}" if value else "-" for value in (search, fresh)]
    reward = _interval(held["reward"]) if held and held["reward"]["mean"] is not None else "-"
    return mark, one["name"], "-" if cost is None else f"{cost:.3g}", *shown, reward, one["graph"]


def _interval(value: Mapping[str, float]) -> str:
    return f"{value['mean']:.3f} [{value['low']:.3f}, {value['high']:.3f}]"
