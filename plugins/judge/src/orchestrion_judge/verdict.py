"""Read a judge's answer strictly: an object that is not exactly as requested is not a verdict."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from typing import Any

from orchestrion import JSON, json_object
from orchestrion_judge.rubric import Criterion, Rubric, Scale

_FRACTION = re.compile(r"(-?\d{1,9}(?:\.\d{1,9})?) ?/ ?(\d{1,9}(?:\.\d{1,9})?)")
_LONGEST = 100_000


class UnusableError(Exception):
    """Raised for an answer that is not a verdict; its text says why."""


def parse_verdict(text: str, rubric: Rubric, mark: str) -> dict[str, float]:
    """Return the score of every criterion.

    Raises:
        UnusableError: something is missing, extra, repeated, outside its scale or of a wrong type,
            or the mark is a different one.
    """
    answer = _read(text)
    _has_exactly(answer, ("mark", "reason", "scores"), "the answer")
    if answer["mark"] != mark:
        raise UnusableError("the mark is not the one in the first line")
    if type(answer["reason"]) is not str:
        raise UnusableError("the reason is not text")
    scores = answer["scores"]
    if type(scores) is not dict:
        raise UnusableError("scores is not an object")
    _has_exactly(scores, [criterion.name for criterion in rubric.criteria], "scores")
    return {
        criterion.name: _score(criterion, scores[criterion.name]) for criterion in rubric.criteria
    }


def _read(text: str) -> dict[str, Any]:
    if len(text) > _LONGEST:
        raise UnusableError(f"it has {len(text)} characters")
    try:
        return json_object(text)
    except ValueError as error:
        raise UnusableError(str(error)) from None


def _has_exactly(data: dict[str, Any], names: Sequence[str], what: str) -> None:
    if missing := [name for name in names if name not in data]:
        raise UnusableError(f"{what} lacks {', '.join(missing)}")
    if extra := data.keys() - set(names):
        raise UnusableError(f"{what} has {len(extra)} keys that were not asked for")


def _score(criterion: Criterion, given: JSON) -> float:
    scale = criterion.scale
    score = _fraction(scale, given) if scale.written == "fraction" else _number(given)
    if score is None or not math.isfinite(score) or not scale.has(score):
        shown = json.dumps(given)[:60]
        raise UnusableError(f"{criterion.name} is {shown}, which is no {scale.in_words}")
    return score


def _number(given: JSON) -> float | None:
    return float(given) if type(given) in (int, float) and abs(given) < 1e9 else None


def _fraction(scale: Scale, given: JSON) -> float | None:
    match = _FRACTION.fullmatch(given) if type(given) is str else None
    if match is None or float(match[2]) != scale.high:
        return None
    return float(match[1])
