"""Words the problems of values: what was expected, what was given, how to correct it."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

from orchestrion._config.documents import scalar
from orchestrion._config.nodes import Node
from orchestrion._config.shapes import (
    Anything,
    Choice,
    Fixed,
    Items,
    Ref,
    Scalar,
    Shape,
    Variants,
)
from orchestrion._suggest import article, did_you_mean, shown

__all__ = ["expected", "got", "habit", "named", "violations"]

_NAMES: dict[type, str] = {
    bool: "true or false",
    int: "an integer",
    float: "a number",
    str: "text",
    Path: "a path",
    type(None): "null",
}


def expected(shape: Shape) -> str:
    """Return in words what a value of this shape is."""
    match shape:
        case Scalar(type=kind):
            return _NAMES[kind]
        case Choice(values=values):
            return "one of " + ", ".join(_literal(v) for v in values)
        case Items():
            return "a list"
        case Fixed(items=items):
            return f"a list of {len(items)}"
        case Ref(kind=kind):
            return f"the name of {article(kind)}, or {{use: ...}}"
        case Variants(members=members):
            words = [expected(member) for member in members]
            return " or ".join(sorted(words, key=lambda word: word == "null"))
        case Anything():
            return "plain data"
    return "a mapping"


def _literal(value: Any) -> str:
    return repr(value) if isinstance(value, str) else shown(value).partition(" (")[0]


def named(node: Node) -> str:
    """Return a name in quotes; one from the environment as it was written."""
    return repr(node.raw if node.raw is not None else node.value)


def got(node: Node, secret: bool = False) -> str:
    """Return a value as a message may show it: without anything that may be a secret."""
    if node.raw is not None:
        return f"{node.raw!r} (text from the environment)"
    return "a secret" if secret and node.value is not None else shown(node.value)


def habit(shape: Shape, value: Any) -> str:
    """Return how to correct a common mistake, or ""."""
    if isinstance(shape, Choice):
        texts = [v for v in shape.values if isinstance(v, str)]
        return did_you_mean(value, texts) if isinstance(value, str) else ""
    shapes = shape.members if isinstance(shape, Variants) else (shape,)
    kinds = {s.type for s in shapes if isinstance(s, Scalar)}
    if isinstance(value, float) and not math.isfinite(value):
        plain = any(isinstance(s, Anything) for s in shapes)
        return "; it must be finite" if plain or float in kinds else ""
    if isinstance(value, str):
        if bool in kinds and value.lower() in ("yes", "no", "on", "off", "y", "n"):
            return "; in YAML 1.2 that is a word"
        try:
            meant = scalar(value)
        except ValueError:
            return ""
        if meant is not None and not isinstance(meant, str) and type(meant) in kinds | {int}:
            return "; leave out the quotes" if kinds & {bool, int, float} else ""
        if any(isinstance(s, Items) for s in shapes):
            return f"; for one element, write [{value}]" if len(value) < 40 else ""
    elif str in kinds and isinstance(value, (bool, int, float)):
        return "; put it in quotes"
    return ""


def violations(meta: Any, value: Any) -> list[str]:
    """Return the demands of a msgspec `Meta` that a value does not meet.

    As in JSON Schema, a constraint on numbers is not applied to text, and so on.
    """
    unmet = []
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        bounds = (
            ("be at least", meta.ge, lambda limit: value >= limit),
            ("be greater than", meta.gt, lambda limit: value > limit),
            ("be at most", meta.le, lambda limit: value <= limit),
            ("be less than", meta.lt, lambda limit: value < limit),
            ("be a multiple of", meta.multiple_of, lambda limit: _multiple(value, limit)),
        )
        unmet += [
            f"{text} {limit}" for text, limit, ok in bounds if limit is not None and not ok(limit)
        ]
    if isinstance(value, str) and meta.pattern is not None and not re.search(meta.pattern, value):
        unmet.append(f"match {meta.pattern}")
    if isinstance(value, (str, list, dict)):
        unit = "characters" if isinstance(value, str) else "elements"
        if meta.min_length is not None and len(value) < meta.min_length:
            unmet.append(f"have at least {meta.min_length} {unit}")
        if meta.max_length is not None and len(value) > meta.max_length:
            unmet.append(f"have at most {meta.max_length} {unit}")
    return unmet


def _multiple(value: float, of: float) -> bool:
    quotient = value / of
    return math.isfinite(quotient) and quotient == int(quotient)
