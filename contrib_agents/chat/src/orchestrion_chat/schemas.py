"""JSON Schemas: of Python classes, and what does not fit one."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import msgspec

from orchestrion import JSON

__all__ = ["check_schema", "misfits", "schema_of"]

MOST_MISFITS = 5
"""So many things that do not fit are named."""
_LONGEST = 300


def schema_of(cls: type) -> dict[str, Any]:
    """The schema of a class, complete in itself; objects in it take no other keys."""
    [root], definitions = msgspec.json.schema_components([cls], ref_template="#/$defs/{name}")
    definitions = {name: _closed(one) for name, one in definitions.items()}
    name = root.get("$ref", "").removeprefix("#/$defs/")
    if name:
        root = definitions[name] if _refers(definitions, name) else definitions.pop(name)
    return {**root, "$defs": definitions} if definitions else dict(root)


def _closed(schema: dict[str, Any]) -> dict[str, Any]:
    if "properties" in schema:
        return {**schema, "additionalProperties": False}
    return schema


def _refers(schema: Any, name: str) -> bool:
    """Whether a definition of this name is referred to."""
    if isinstance(schema, dict):
        here = schema.get("$ref") == f"#/$defs/{name}"
        return here or any(_refers(one, name) for one in schema.values())
    return isinstance(schema, list) and any(_refers(one, name) for one in schema)


def check_schema(schema: Mapping[str, JSON]) -> None:
    """Refuse, with a `ValueError`, what is no JSON Schema of an object."""
    from jsonschema import Draft202012Validator, SchemaError

    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        raise ValueError(f"no JSON Schema: {error.json_path}: {error.message}") from None
    if schema.get("type") != "object":
        raise ValueError("the schema must be that of an object (type: object)")


def misfits(schema: Mapping[str, JSON], value: JSON) -> list[str]:
    """What of a value does not fit a schema, each with its place; empty if all does."""
    found = sorted(_validator(msgspec.json.encode(schema)).iter_errors(value), key=_place)
    return [f"{one.json_path}: {one.message[:_LONGEST]}" for one in found[:MOST_MISFITS]]


def _place(error: Any) -> tuple[str, str]:
    return error.json_path, error.message


@lru_cache(maxsize=1000)
def _validator(schema: bytes) -> Any:
    from jsonschema import Draft202012Validator
    from referencing import Registry

    # An empty registry: a schema may be anybody's, and must not make us fetch another.
    registry: Registry[Any] = Registry()
    return Draft202012Validator(msgspec.json.decode(schema), registry=registry)
