"""Read what a request says and answer in the form that it asks for: helpers of the speakers.

The form is a JSON Schema, or an example in JSON in the request.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from attrs import evolve, frozen

from orchestrion import JSON

_WORD = re.compile(r"[^\W_]+")
_DEPTH = 12


def system_text(request: Mapping[str, JSON]) -> str:
    """Return the instructions: all system messages."""
    return _contents(request, ("system",))


def asked_text(request: Mapping[str, JSON]) -> str:
    """Return all other messages, in order."""
    return _contents(request, ("user", "assistant", "tool"))


def last_text(request: Mapping[str, JSON]) -> str:
    """Return the content of the last message; "" if there is none."""
    messages: Sequence[Any] = request["messages"]
    return str(messages[-1].get("content") or "") if messages else ""


def _contents(request: Mapping[str, JSON], roles: Sequence[str]) -> str:
    return "\n".join(
        str(message.get("content") or "")
        for message in request["messages"]
        if message.get("role") in roles
    )


@lru_cache(maxsize=4096)
def words(text: str) -> str:
    """Return a text as lower-case words with a blank on either side, to look up phrases in it."""
    return f" {' '.join(_WORD.findall(text.lower()))} "


def mentioned(phrase: str, text: str) -> bool:
    """Return whether a text has a phrase; case, punctuation and line breaks do not matter."""
    return words(phrase) in words(text)


# ---------------------------------------------------------------- forms


@frozen
class Slot:
    """A value of a form.

    Args:
        path: names and indices that lead to it.
        schema: what it must be like.
        index: its index among the values of its object or list.
        siblings: number of those values.
    """

    path: tuple[str | int, ...]
    schema: Mapping[str, Any]
    index: int = 0
    siblings: int = 1

    @property
    def name(self) -> str:
        """The last name of the path."""
        return next((str(part) for part in reversed(self.path) if isinstance(part, str)), "")


class Filler:
    """Give the values of a form; speakers override what they have something to say about."""

    def text(self, slot: Slot) -> str | None:
        """Return a text, or None to give null where the schema allows it."""
        return "simulated"

    def number(self, slot: Slot) -> float:
        """Return a number."""
        return float(slot.schema.get("minimum", 0))

    def choice(self, slot: Slot, options: list[Any]) -> Any:
        """Return one of the options."""
        return options[0]

    def length(self, slot: Slot) -> int:
        """Return the number of elements of a list."""
        return int(slot.schema.get("minItems", 1))


def form_of(request: Mapping[str, JSON]) -> Mapping[str, Any] | None:
    """Return the JSON Schema of the requested answer; None if a plain text is requested.

    Without a schema that has properties, the last JSON object with a value in it counts as an
    example: in the instructions, else in the other messages.
    """
    schema = request.get("schema")
    if isinstance(schema, dict) and schema.get("properties"):
        return schema
    for text in (system_text(request), asked_text(request)):
        if "JSON" in text and (example := _last_object(text)) is not None:
            return _schema_of(example)
    return schema if isinstance(schema, dict) else None


def _last_object(text: str) -> dict[str, Any] | None:
    decoder, last, start = json.JSONDecoder(), None, text.find("{")
    while start >= 0:
        try:
            value, end = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            end = start + 1
        else:
            last = value or last
        start = text.find("{", end)
    return last


def _schema_of(example: Any) -> dict[str, Any]:
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
            return {"type": "array", "items": _schema_of(example[0] if example else None)}
        case _:
            properties = {name: _schema_of(value) for name, value in example.items()}
            return {"type": "object", "properties": properties, "required": list(properties)}


def fill(schema: Mapping[str, Any], filler: Filler) -> str:
    """Return a document of this schema, as JSON."""
    return json.dumps(_value(Slot((), schema), filler, schema), ensure_ascii=False)


def _value(slot: Slot, filler: Filler, root: Mapping[str, Any]) -> Any:
    schema = _resolved(slot.schema, root)
    if len(slot.path) > _DEPTH:
        return None
    if "const" in schema:
        return schema["const"]
    slot = evolve(slot, schema=schema)
    if schema.get("enum"):
        return filler.choice(slot, list(schema["enum"]))
    kind = schema.get("type", "object" if "properties" in schema else "string")
    nullable = isinstance(kind, list) and "null" in kind
    if isinstance(kind, list):
        kind = next((name for name in kind if name != "null"), "null")
    match kind:
        case "object":
            parts: Mapping[str, Any] = schema.get("properties", {})
            return {
                name: _value(Slot((*slot.path, name), part, i, len(parts)), filler, root)
                for i, (name, part) in enumerate(parts.items())
            }
        case "array":
            size, part = filler.length(slot), schema.get("items", {})
            slots = [Slot((*slot.path, i), part, i, size) for i in range(size)]
            return [_value(element, filler, root) for element in slots]
        case "integer":
            return round(filler.number(slot))
        case "number":
            return filler.number(slot)
        case "boolean":
            return filler.choice(slot, [True, False])
        case "null":
            return None
    text = filler.text(slot)
    return text if text is not None or nullable else ""


def _resolved(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Mapping[str, Any]:
    """Follow references, and take the first alternative that is not null."""
    for _ in range(_DEPTH):
        if "$ref" in schema:
            target: Any = root
            for part in str(schema["$ref"]).removeprefix("#/").split("/"):
                target = target.get(part, {})
            schema = target
        elif options := schema.get("anyOf") or schema.get("oneOf") or schema.get("allOf"):
            schema = next(
                (option for option in options if option.get("type") != "null"), options[0]
            )
        else:
            break
    return schema
