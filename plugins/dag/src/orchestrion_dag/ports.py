"""Types of the values that edges carry, checked before a run and while it runs.

    text  number  integer  boolean  list  list[number]  object  any

An input may end with `?` (it needs no edge) or `*` (several edges may feed it).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from attrs import field, frozen

from orchestrion import JSON

_NAMES = ("text", "number", "integer", "boolean", "list", "object", "any")
_LIST = re.compile(r"list\[(.+)\]")


@frozen
class Type:
    """A type by name, with the `item` of a list and the `fields` of an object if known."""

    name: str
    item: Type | None = None
    fields: Mapping[str, Type] | None = field(default=None, hash=False)

    def __str__(self) -> str:
        if self.item is not None:
            return f"list[{self.item}]"
        if self.fields is not None:
            return "{" + ", ".join(f"{name}: {type_}" for name, type_ in self.fields.items()) + "}"
        return self.name


ANY = Type("any")
_PLAIN = {name: Type(name) for name in _NAMES}


@frozen
class Port:
    """An input: its type, whether it is optional, and whether several edges may feed it."""

    type: Type
    optional: bool = False
    many: bool = False


def parse_type(text: str) -> Type:
    """Return the type that a text names.

    Raises:
        ValueError: there is no such type; names those there are.
    """
    text = text.strip()
    if (plain := _PLAIN.get(text)) is not None:
        return plain
    if match := _LIST.fullmatch(text):
        return Type("list", parse_type(match[1]))
    raise ValueError(f"{text!r} is no type (there are: {', '.join(_NAMES)}, list[...])")


def parse_port(text: str) -> Port:
    """Return the input that a text describes; raise ValueError as `parse_type` does."""
    bare = text.strip()
    mark = bare[-1:] if bare[-1:] in ("?", "*") else ""
    return Port(parse_type(bare.removesuffix(mark)), mark == "?", mark == "*")


def output_type(declared: str | Mapping[str, str]) -> Type:
    """Return the type that a node declares for its output; raise ValueError as `parse_type`."""
    if isinstance(declared, str):
        return parse_type(declared) if declared else ANY
    return Type("object", fields={name: parse_type(text) for name, text in declared.items()})


def fits(given: Type, wanted: Type) -> bool:
    """Return whether a value of one type may go where another is wanted; unknown types fit."""
    if "any" in (given.name, wanted.name) or given == wanted:
        return True
    if given.name == "integer" and wanted.name == "number":
        return True
    if given.name != wanted.name:
        return False
    if given.name == "list":
        return given.item is None or wanted.item is None or fits(given.item, wanted.item)
    if given.fields is None or wanted.fields is None:
        return True
    return all(
        name in given.fields and fits(given.fields[name], type_)
        for name, type_ in wanted.fields.items()
    )


def wrong(wanted: Type, value: JSON, path: str = "data") -> str:
    """Return what is wrong with a value; empty if it has the type."""
    kind = kind_of(value)
    if wanted.name not in ("any", kind) and not (wanted.name == "number" and kind == "integer"):
        return f"{path}: expected {wanted.name}, got {kind}"
    if wanted.item is not None:
        for i, item in enumerate(value):
            if problem := wrong(wanted.item, item, f"{path}[{i}]"):
                return problem
    for name, type_ in (wanted.fields or {}).items():
        if name not in value:
            return f"{path}.{name}: expected {type_}, got nothing"
        if problem := wrong(type_, value[name], f"{path}.{name}"):
            return problem
    return ""


def kind_of(value: JSON) -> str:
    """Return the name of the type of a JSON value; `null` for None."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "text"
        case list() | tuple():
            return "list"
    return "object"
