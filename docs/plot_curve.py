"""Draws a run's learning curve as SVG, with its baselines as lines.

python dev.py python docs/plot_curve.py runs/repair-1 docs/repair-curve.svg
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from xml.sax.saxutils import escape

from orchestrion.runs import RunReader, mean

WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 720, 360, 60, 50, 40, 170
COLOURS = ("#9a3412", "#166534", "#6b21a8", "#475569", "#854d0e")


def smooth(values: Sequence[float], width: int = 5) -> list[float]:
    """The mean of each value and those up to `width` - 1 before it."""
    return [mean(values[max(0, i - width + 1) : i + 1]) for i in range(len(values))]


def curve(directory: Path) -> str:
    """The figure of a run."""
    with RunReader(directory) as run:
        iterations = run.iterations(0)
        evaluations = run.load_evaluations()
    episodes, done = [], 0
    for iteration in iterations:
        done += iteration.episodes
        episodes.append(done)
    rewards = [iteration.metrics["reward"] for iteration in iterations]
    levels = {
        name: mean([r["reward"] for r in e["outcomes"].values() if r["reward"] is not None])
        for name, e in evaluations.items()
    }
    shown = [*smooth(rewards), *rewards, *levels.values()]
    low, high = min(shown), max(shown)
    span = (high - low) or 1.0

    def x(value: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * value / max(1, done)

    def y(value: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * (value - low) / span

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{LEFT}" y="22" font-size="14">Reward while training (line: mean of five '
        "iterations), and on held-out problems (dashed)</text>",
    ]
    for i in range(5):
        value = low + span * i / 4
        parts.append(
            f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(value):.1f}" y2="{y(value):.1f}" '
            f'stroke="#e5e7eb"/><text x="{LEFT - 8}" y="{y(value) + 4:.1f}" '
            f'text-anchor="end">{value:.2f}</text>'
        )
    for i in range(5):
        value = done * i / 4
        parts.append(
            f'<text x="{x(value):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">'
            f"{value:.0f}</text>"
        )
    parts.append(
        f'<text x="{x(done / 2):.1f}" y="{HEIGHT - 12}" text-anchor="middle">episodes</text>'
    )
    for n, reward in zip(episodes, rewards, strict=True):
        parts.append(f'<circle cx="{x(n):.1f}" cy="{y(reward):.1f}" r="1.6" fill="#93c5fd"/>')
    points = " ".join(
        f"{x(n):.1f},{y(r):.1f}" for n, r in zip(episodes, smooth(rewards), strict=True)
    )
    parts.append(f'<polyline points="{points}" fill="none" stroke="#1d4ed8" stroke-width="2"/>')
    parts += _levels(levels, y)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _levels(levels: dict[str, float], y: object) -> list[str]:
    """A dashed line and a label for each contender; labels are kept apart."""
    assert callable(y)
    parts, last = [], float("inf")
    ordered = sorted(levels.items(), key=lambda pair: pair[1])
    for i, (name, value) in enumerate(ordered):
        colour = "#1d4ed8" if name == "learned" else COLOURS[i % len(COLOURS)]
        at = y(value)
        label = min(at, last - 14)
        last = label
        parts.append(
            f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}" '
            f'stroke="{colour}" stroke-dasharray="5 4"/>'
            f'<text x="{WIDTH - RIGHT + 6}" y="{label + 4:.1f}" fill="{colour}">'
            f"{escape(name)} {value:.3f}</text>"
        )
    return parts


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    Path(sys.argv[2]).write_text(curve(Path(sys.argv[1])))
