"""The normal form of an answer's text: what the graders of GSM8K and MATH do not tell apart.

Signs of money and percent, units, degrees, spacing, sizes of brackets, forms of fractions, a
leading "x =" and separators of thousands go; a number is then read as an exact fraction.
"""

from __future__ import annotations

import re
from fractions import Fraction

__all__ = ["normal", "number"]

_GONE = re.compile(
    r"\\(?:left|right|displaystyle|textstyle|big|Big|bigg|Bigg)(?![a-zA-Z])"
    r"|(?<!\\)\\[!,;:> ]|\\q?quad(?![a-zA-Z])|\\?\$|\\?%"
    r"|\^\s*\{?\s*\\(?:circ|degree)\s*\}?|\\degree|°|~"
)
_WORDS = r"\\(?:text|textbf|textit|mathrm|mathbf|mbox|rm|operatorname)\s*\{([^{}]*)\}"
_UNIT = re.compile(rf"(?<=[\d.)}}\]])\s*(?:{_WORDS}\s*)(?:\^\s*\{{?\d\}}?)?$")
_PLAIN_UNIT = re.compile(r"(?<=\d)\s+[a-zA-Z]{2,}\.?(?:\s+[a-zA-Z]+\.?)*$")
_NAMED = re.compile(r"^[a-zA-Z](?:\([a-zA-Z]\))?\s*(?:=|\\in(?![a-zA-Z]))\s*(?![^=]*=)")
_THOUSANDS = re.compile(r"[-+]?\d{1,3}(?:,\d{3})+(?:\.\d+)?")
_SHORT_FRAC = re.compile(r"\\frac\s*(?:\{([^{}]*)\}|(\d))\s*(?:\{([^{}]*)\}|(\w))")
_SHORT_ROOT = re.compile(r"\\sqrt\s*(\w)")
_SIGN = r"([-+]?)"
_PLAIN = re.compile(rf"{_SIGN}(\d+\.?\d*|\.\d+)")
_RATIO = re.compile(rf"{_SIGN}(?:(\d+)?\\frac\{{(-?\d+)\}}\{{(-?\d+)\}}|(\d+)/(\d+))")


def normal(text: str) -> str:
    """The normal form of an answer."""
    text = " ".join(text.split()).strip().rstrip(".").strip()
    text = text.replace("{,}", ",").replace("−", "-").replace("\\cdot", "\\times")  # noqa: RUF001
    text = re.sub(r"\\[dt]frac(?![a-zA-Z])", r"\\frac", _GONE.sub("", text))
    text = _UNIT.sub("", text.strip())
    text = re.sub(_WORDS, r"\1", text).strip()
    text = _PLAIN_UNIT.sub("", text)
    text = _NAMED.sub("", text)
    text = _SHORT_FRAC.sub(lambda m: f"\\frac{{{m[1] or m[2]}}}{{{m[3] or m[4]}}}", text)
    text = _SHORT_ROOT.sub(r"\\sqrt{\1}", text)
    # A command is told from letters after it by the blank.
    text = re.sub(r"(\\[a-zA-Z]+) (?=[a-zA-Z])", "\\1\0", text).replace(" ", "").replace("\0", " ")
    return text.replace(",", "") if _THOUSANDS.fullmatch(text) else text


def number(text: str) -> Fraction | None:
    """The value of a normal form that is a number: whole, decimal, fraction or mixed."""
    if found := _PLAIN.fullmatch(text):
        return Fraction(found[1] + found[2].rstrip("."))
    found = _RATIO.fullmatch(text)
    if found is None:
        return None
    sign, whole, over, under, a, b = found.groups()
    over, under = int(over or a), int(under or b)
    if under == 0 or (whole and (over < 0 or under < 0)):
        return None
    value = int(whole or 0) + Fraction(over, under)
    return -value if sign == "-" else value
