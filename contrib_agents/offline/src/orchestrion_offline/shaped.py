"""Answers in the form that was asked for: by a JSON Schema, or by an example in the question."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from attrs import frozen

from orchestrion import JSON
from orchestrion_offline.reading import asked_text, system_text

__all__ = ["Filler", "Place", "filled", "form_of"]

_DEPTH = 12


@frozen
class Place:
    """A value to be given.

    Args:
        path: names and indices that lead to it.
        schema: what it must be like.
        index: its place among the values of its object.
        among: how many these are.
    """

    path: tuple[str | int, ...]
    schema: Mapping[str, Any]
    index: int = 0
    among: int = 1

    @property
    def name(self) -> str:
        """The last name on the way."""
        return next((str(part) for part in reversed(self.path) if isinstance(part, str)), "")

    @property
    def about(self) -> str:
        """What the schema says about it."""
        return str(self.schema.get("description", ""))


class Filler:
    """Gives the values of a form; speakers override what they have something to say about."""

    def text(self, place: Place) -> str | None:
        """A text; None where null is allowed and nothing is to be said."""
        return "simulated"

    def number(self, place: Place) -> float:
        """A number."""
        low = place.schema.get("minimum", 0)
        return float(low)

    def choice(self, place: Place, options: list[Any]) -> Any:
        """One of these values."""
        return options[0]

    def length(self, place: Place) -> int:
        """How many elements a list has."""
        return int(place.schema.get("minItems", 1))


def form_of(request: Mapping[str, JSON]) -> Mapping[str, Any] | None:
    """The JSON Schema of the answer that is wanted; None if a plain text is.

    A question without a schema may show the form: the last JSON object with a value in it in the
    instructions counts as an example, else that in the last of the other messages.
    """
    schema = request.get("schema")
    if isinstance(schema, dict) and schema.get("properties"):
        return schema
    for text in (system_text(request), asked_text(request)):
        if "JSON" in text and (example := _last_object(text)) is not None:
            return _like(example)
    return schema if isinstance(schema, dict) else None


def _last_object(text: str) -> dict[str, Any] | None:
    decoder, found, place = json.JSONDecoder(), None, text.find("{")
    while place >= 0:
        try:
            value, end = decoder.raw_decode(text, place)
        except (ValueError, RecursionError):
            end = place + 1
        else:
            found = value or found
        place = text.find("{", end)
    return found


def _like(example: Any) -> dict[str, Any]:
    """A schema of what an example shows."""
    match example:
        case None:
            return {"type": "null"}
        case bool():
            return {"type": "boolean"}
        case int() | float():
            return {"type": "number"}
        case str():
            return {"type": "string", "example": example}
        case list():
            return {"type": "array", "items": _like(example[0]) if example else {"type": "null"}}
        case _:
            properties = {name: _like(value) for name, value in example.items()}
            return {"type": "object", "properties": properties, "required": list(properties)}


def filled(schema: Mapping[str, Any], filler: Filler) -> str:
    """A document of this form, as JSON."""
    return json.dumps(_value(Place((), schema), filler, schema), ensure_ascii=False)


def _value(place: Place, filler: Filler, root: Mapping[str, Any]) -> Any:
    schema = _resolved(place.schema, root)
    if len(place.path) > _DEPTH:
        return None
    if "const" in schema:
        return schema["const"]
    at = Place(place.path, schema, place.index, place.among)
    if schema.get("enum"):
        return filler.choice(at, list(schema["enum"]))
    kind = schema.get("type", "object" if "properties" in schema else "string")
    optional = isinstance(kind, list) and "null" in kind
    if isinstance(kind, list):
        kind = next((one for one in kind if one != "null"), "null")
    if kind == "object":
        names: Mapping[str, Any] = schema.get("properties", {})
        return {
            name: _value(Place((*at.path, name), inner, i, len(names)), filler, root)
            for i, (name, inner) in enumerate(names.items())
        }
    if kind == "array":
        size, inner = filler.length(at), schema.get("items", {})
        return [_value(Place((*at.path, i), inner, i, size), filler, root) for i in range(size)]
    if kind == "integer":
        return round(filler.number(at))
    if kind == "number":
        return filler.number(at)
    if kind == "boolean":
        return filler.choice(at, [True, False])
    if kind == "null":
        return None
    said = filler.text(at)
    return said if said is not None or optional else ""


def _resolved(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Mapping[str, Any]:
    """A schema without references, and the first of alternatives that is not null."""
    for _ in range(_DEPTH):
        if "$ref" in schema:
            target: Any = root
            for part in str(schema["$ref"]).removeprefix("#/").split("/"):
                target = target.get(part, {})
            schema = target
        elif options := schema.get("anyOf") or schema.get("oneOf") or schema.get("allOf"):
            schema = next((one for one in options if one.get("type") != "null"), options[0])
        else:
            break
    return schema
