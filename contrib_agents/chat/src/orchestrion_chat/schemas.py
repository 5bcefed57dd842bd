"""JSON Schemas of Python classes, and checks of values by a schema."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import msgspec

from orchestrion import JSON

MOST_MISFITS = 5
"""The maximum of errors that are reported."""
_LONGEST = 300


def schema_of(cls: type) -> dict[str, Any]:
    """Return the self-contained schema of a class; its objects take no other keys."""
    [root], definitions = msgspec.json.schema_components([cls], ref_template="#/$defs/{name}")
    definitions = {name: _closed(definition) for name, definition in definitions.items()}
    name = root.get("$ref", "").removeprefix("#/$defs/")
    if name:
        # A class that contains itself stays among the definitions.
        refers_to_itself = f'"$ref":"#/$defs/{name}"'.encode() in msgspec.json.encode(definitions)
        root = definitions[name] if refers_to_itself else definitions.pop(name)
    return {**root, "$defs": definitions} if definitions else dict(root)


def _closed(schema: dict[str, Any]) -> dict[str, Any]:
    if "properties" in schema:
        return {**schema, "additionalProperties": False}
    return schema


def check_schema(instance: object, attribute: object, schema: Mapping[str, JSON] | None) -> None:
    """Validate a setting: raise `ValueError` unless it is a JSON Schema of an object, or None."""
    from jsonschema import Draft202012Validator, SchemaError

    if schema is None:
        return
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        raise ValueError(f"not a JSON Schema: {error.json_path}: {error.message}") from None
    if schema.get("type") != "object":
        raise ValueError("the schema must be that of an object (type: object)")


def misfits(schema: Mapping[str, JSON], value: JSON) -> list[str]:
    """Return the errors of a value by a schema, each with its path; empty if it fits."""
    errors = _validator(msgspec.json.encode(schema)).iter_errors(value)
    errors = sorted(errors, key=lambda error: (error.json_path, error.message))
    return [f"{e.json_path}: {e.message[:_LONGEST]}" for e in errors[:MOST_MISFITS]]


@lru_cache(maxsize=1000)
def _validator(schema: bytes) -> Any:
    from jsonschema import Draft202012Validator
    from referencing import Registry

    # An empty registry: an untrusted schema must not make us fetch another one.
    registry: Registry[Any] = Registry()
    return Draft202012Validator(msgspec.json.decode(schema), registry=registry)
