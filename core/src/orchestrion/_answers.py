"""The JSON object that a model was asked for, in what it answered."""

from __future__ import annotations

import json
from math import isinf
from typing import Any


def json_object(answer: str) -> dict[str, Any]:
    """Return the one JSON object in a model's answer, read strictly.

    A fence or sentences around it, as many models write them, are left out.

    Raises:
        ValueError: there is none, or more than one, or braces in the text around it; it has a name
            twice, or a number that is none. The text says why.
    """
    try:
        value = _read(answer)
    except (ValueError, RecursionError) as error:
        start, end = answer.find("{"), answer.rfind("}") + 1
        try:
            value = _read(answer[start:end])
        except (ValueError, RecursionError) as inner:
            raise ValueError(f"it is not JSON ({inner if start >= 0 else error})") from None
    if not isinstance(value, dict):
        raise ValueError("it is not a JSON object")
    return value


def _read(text: str) -> Any:
    value = json.loads(
        text, object_pairs_hook=_once, parse_constant=_no_number, parse_float=_finite
    )
    json.dumps(value, ensure_ascii=False).encode()  # refuses half of a surrogate pair
    return value


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse repeated names: it is undefined which of two values counts."""
    data = dict(pairs)
    if len(data) < len(pairs):
        raise ValueError("a name stands there twice")
    return data


def _no_number(name: str) -> Any:
    raise ValueError(f"{name} is not a number")


def _finite(text: str) -> float:
    number = float(text)
    if isinf(number):
        raise ValueError(f"{text[:40]} is too large")
    return number
