"""How figures, times and sizes read: the filters of all templates."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from decimal import Decimal

__all__ = [
    "count",
    "difference",
    "duration",
    "figure",
    "fixed",
    "percent",
    "plain_time",
    "signed",
    "usd",
]

NONE = "\N{EN DASH}"


def figure(value: float | None, digits: int = 3) -> str:
    """Return a number with some significant digits; a dash for None and NaN."""
    if value is None or not math.isfinite(value):
        return NONE
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return _plain(f"{value:.{digits}g}")


def fixed(value: float | None) -> str:
    """Return a number with three decimals, so that those below each other can be compared."""
    if value is None or not math.isfinite(value) or not 0 < abs(value) < 100:
        return figure(value)
    return f"{value:.3f}" if abs(value) >= 0.0005 else figure(value)


def _plain(text: str) -> str:
    """Return a small number without an exponent, as the command line writes it."""
    return f"{Decimal(text):f}" if "e-0" in text else text


def signed(value: float | None) -> str:
    """Return a number with its sign."""
    return _with_sign(value, figure(value))


def difference(value: float | None) -> str:
    """Return a number with its sign and three decimals."""
    return _with_sign(value, fixed(value))


def _with_sign(value: float | None, text: str) -> str:
    return f"+{text}" if value is not None and value > 0 else text


def count(value: float | None) -> str:
    """Return a whole number with separators of thousands."""
    return NONE if value is None or not math.isfinite(value) else f"{value:,.0f}"


def percent(value: float | None) -> str:
    """Return a share as per cent."""
    return NONE if value is None or not math.isfinite(value) else f"{value:.1%}"


def usd(value: float | None) -> str:
    """Return US dollars: to the cent, or with three digits where they are less than 1."""
    if value is None or not math.isfinite(value):
        return NONE
    return f"${value:,.2f}" if value == 0 or value >= 1 else f"${_plain(f'{value:.3g}')}"


def duration(seconds: float | None) -> str:
    """Return a time span in its two largest units."""
    if seconds is None or not math.isfinite(seconds):
        return NONE
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    days, hours, minutes = whole // 86400, whole // 3600 % 24, whole // 60 % 60
    if days:
        return f"{days} d {hours} h"
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {whole % 60} s" if minutes else f"{whole} s"


def plain_time(at: float | None) -> str:
    """Return a Unix time as date and time, UTC."""
    if at is None:
        return NONE
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M")
