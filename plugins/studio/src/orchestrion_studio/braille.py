"""Curves as text: each character has two columns of four dots."""

from __future__ import annotations

import math
from collections.abc import Sequence

_DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
_BARS = "▁▂▃▄▅▆▇█"


def braille(values: Sequence[float], width: int, height: int) -> list[str]:
    """Return `height` lines of `width` characters with the curve of the values.

    The first value is at the left, the largest at the top; NaN and infinities leave a gap. Where
    there are more values than dots, a column of dots shows the range of its values.
    """
    width, height = max(1, width), max(1, height)
    known = [value for value in values if math.isfinite(value)]
    cells = [[0] * width for _ in range(height)]
    if known:
        low, high = min(known), max(known)
        columns, rows = 2 * width, 4 * height
        previous: tuple[int, int] | None = None
        for i, value in enumerate(values):
            if not math.isfinite(value):
                previous = None
                continue
            x = round(i * (columns - 1) / max(1, len(values) - 1))
            share = (value - low) / (high - low) if high > low else 0.5
            y = round((1 - share) * (rows - 1))
            for dot_x, dot_y in _line(previous or (x, y), (x, y)):
                cells[dot_y // 4][dot_x // 2] |= _DOTS[dot_x % 2][dot_y % 4]
            previous = x, y
    return ["".join(chr(0x2800 + cell) for cell in row) for row in cells]


def _line(first: tuple[int, int], last: tuple[int, int]) -> list[tuple[int, int]]:
    """Return the dots of a straight line, both ends included."""
    (x, y), (to_x, to_y) = first, last
    steps = max(abs(to_x - x), abs(to_y - y), 1)
    return [
        (round(x + (to_x - x) * n / steps), round(y + (to_y - y) * n / steps))
        for n in range(steps + 1)
    ]


def sparkline(values: Sequence[float], width: int) -> str:
    """Return one line of bars; a space where a value is missing."""
    known = [value for value in values if math.isfinite(value)]
    if not known or width < 1:
        return ""
    low, high = min(known), max(known)
    count = min(width, len(values))
    picked = [values[round(i * (len(values) - 1) / max(1, count - 1))] for i in range(count)]
    return "".join(_bar(value, low, high) for value in picked)


def _bar(value: float, low: float, high: float) -> str:
    if not math.isfinite(value):
        return " "
    share = (value - low) / (high - low) if high > low else 0.5
    return _BARS[min(len(_BARS) - 1, int(share * len(_BARS)))]
