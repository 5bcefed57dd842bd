"""Describes what a setting may hold, read once from its annotation.

Conversion (`structure.py`), the resolved config (`plain.py`) and the JSON Schema (`_schema.py`) use
the same shapes, so they agree about what a config may say.
"""

from __future__ import annotations

import inspect
import re
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Union, get_args, get_origin

from attrs import NOTHING, Attribute, Factory, fields, has
from msgspec import Meta, Struct
from msgspec.structs import replace

from orchestrion._suggest import article, shown

Inner = Callable[[Any], dict[str, Any]]
"""Returns the JSON Schema of an inner shape, or a reference to that of a class."""


class UnsupportedError(Exception):
    """Raised for an annotation that no setting can have; names the field and the reason."""


class Shape(Struct, frozen=True, kw_only=True):
    """What a value must look like; `limits` are the `Meta` of its annotation."""

    words: ClassVar[str] = "a mapping"
    types: ClassVar[tuple[type, ...]] = (object,)
    container: ClassVar[type] = list
    counted: ClassVar[tuple[str, ...]] = ("Length", "Items", "Properties")
    """What a limit of a length counts, in keywords of JSON Schema."""
    limits: tuple[Meta, ...] = ()

    @property
    def expected(self) -> str:
        """Return in words what a value of this shape is."""
        return self.words

    @property
    def parts(self) -> tuple[Shape, ...]:
        return ()

    def part(self, place: Any) -> Shape:
        """Return the shape of the element at an index or a key."""
        return self.parts[0] if self.parts else Anything()

    def accepts(self, value: Any) -> bool:
        """Return whether a value is of the right type; its elements may still be wrong.

        The value may be as a config has it, or as `Structurer` converts it.
        """
        return isinstance(value, self.types)

    def narrowed(self, value: Any) -> Shape:
        """Return the alternative that accepts a value; itself if there are no alternatives."""
        return self

    def schema(self, inner: Inner) -> dict[str, Any]:
        """Return the JSON Schema of this shape without its limits."""
        return {}


class Anything(Shape, frozen=True):
    """Any plain data."""

    words = "plain data"


_SCALARS: dict[type, tuple[str, dict[str, Any]]] = {
    bool: ("true or false", {"type": "boolean"}),
    int: ("an integer", {"type": "integer"}),
    float: ("a number", {"type": "number"}),
    str: ("text", {"type": "string"}),
    Path: ("a path", {"type": "string", "minLength": 1}),
    type(None): ("null", {"type": "null"}),
}


class Scalar(Shape, frozen=True):
    """A bool, int, float, str, Path or None."""

    counted = ("Length",)
    type: type = str

    @property
    def expected(self) -> str:
        return _SCALARS[self.type][0]

    def accepts(self, value: Any) -> bool:
        if self.type is float:
            return isinstance(value, (int, float)) and not isinstance(value, bool)
        if self.type is Path:
            return isinstance(value, (str, Path))
        return type(value) is self.type

    def schema(self, inner: Inner) -> dict[str, Any]:
        return dict(_SCALARS[self.type][1])


class Choice(Shape, frozen=True):
    """A value of a closed set."""

    counted = ("Length",)
    values: tuple[Any, ...] = ()

    @property
    def expected(self) -> str:
        words = [
            repr(v) if isinstance(v, str) else shown(v).partition(" (")[0] for v in self.values
        ]
        return "one of " + ", ".join(words)

    def accepts(self, value: Any) -> bool:
        return any(type(v) is type(value) for v in self.values)

    def schema(self, inner: Inner) -> dict[str, Any]:
        return {"enum": list(self.values)}


class Items(Shape, frozen=True):
    """A list of any length."""

    words, types, counted = "a list", (list, tuple), ("Items",)
    container: type = list  # type: ignore[misc]
    item: Shape = Anything()

    @property
    def parts(self) -> tuple[Shape, ...]:
        return (self.item,)

    def schema(self, inner: Inner) -> dict[str, Any]:
        return {"type": "array", "items": inner(self.item)}


class Fixed(Shape, frozen=True):
    """A tuple with a shape for each place."""

    types, container, counted = (list, tuple), tuple, ("Items",)
    items: tuple[Shape, ...] = ()

    @property
    def expected(self) -> str:
        return f"a list of {len(self.items)}"

    @property
    def parts(self) -> tuple[Shape, ...]:
        return self.items

    def part(self, place: Any) -> Shape:
        return self.items[place] if place < len(self.items) else Anything()

    def schema(self, inner: Inner) -> dict[str, Any]:
        items = [inner(item) for item in self.items]
        return {"type": "array", "prefixItems": items, "items": False, "minItems": len(items)}


class Table(Shape, frozen=True):
    """A mapping from text."""

    types, counted = (Mapping,), ("Properties",)
    key: Shape = Scalar()
    item: Shape = Anything()

    @property
    def parts(self) -> tuple[Shape, ...]:
        return (self.item,)

    @property
    def names_components(self) -> bool:
        """Return whether it maps names to components; `use` cannot be such a name."""
        return any(isinstance(part, Ref) for part in (self.item, *self.item.parts))

    def schema(self, inner: Inner) -> dict[str, Any]:
        schema = {"type": "object", "additionalProperties": inner(self.item)}
        names = inner(self.key)
        if self.names_components:
            names |= {"not": {"const": "use"}}
        return schema if names == {"type": "string"} else schema | {"propertyNames": names}


class Record(Shape, frozen=True):
    """A nested attrs class."""

    counted = ("Properties",)
    cls: type = object

    def accepts(self, value: Any) -> bool:
        return isinstance(value, (dict, self.cls))

    def schema(self, inner: Inner) -> dict[str, Any]:
        return inner(self.cls)


class Ref(Shape, frozen=True):
    """A component of a kind: the name of a defined one, or an inline `{use: ...}`."""

    kind: str = ""

    @property
    def expected(self) -> str:
        return f"the name of {article(self.kind)}, or {{use: ...}}"

    def accepts(self, value: Any) -> bool:
        return isinstance(value, (str, dict)) or has(type(value))

    def schema(self, inner: Inner) -> dict[str, Any]:
        return {"anyOf": [{"type": "string"}, {"$ref": pointer(self.kind)}]}


class Variants(Shape, frozen=True):
    """Alternative shapes."""

    members: tuple[Shape, ...] = ()

    @property
    def expected(self) -> str:
        words = [member.expected for member in self.members]
        return " or ".join(sorted(words, key=lambda word: word == "null"))

    @property
    def parts(self) -> tuple[Shape, ...]:
        return self.members

    def accepts(self, value: Any) -> bool:
        return any(member.accepts(value) for member in self.members)

    def narrowed(self, value: Any) -> Shape:
        return next((m.narrowed(value) for m in self.members if m.accepts(value)), Anything())

    def schema(self, inner: Inner) -> dict[str, Any]:
        return {"anyOf": [inner(member) for member in self.members]}


def pointer(key: str) -> str:
    """Return the reference to a definition of the JSON Schema."""
    return f"#/$defs/{key.replace('~', '~0').replace('/', '~1')}"


def refers(shape: Shape) -> bool:
    """Return whether components are wired in here."""
    return isinstance(shape, Ref) or any(map(refers, shape.parts))


class Setting(Struct, frozen=True):
    """A public field of an attrs class, as a config sees it."""

    name: str
    shape: Shape  # of the values it may have
    default: Any  # of the field; `NOTHING` if it must be given
    help: str  # its description in the docstring of the class
    learnable: bool  # whether an overlay may change it
    secret: bool  # whether its value must never be written anywhere
    decisive: bool
    """Whether a run's result depends on it, beyond rounding; if not, a run may be resumed with
    another value."""

    @property
    def required(self) -> bool:
        return self.default is NOTHING


class Shaper:
    """Reads shapes from annotations; `kind_of` returns the kind of a protocol, or None."""

    def __init__(self, kind_of: Callable[[Any], str | None] = lambda _: None) -> None:
        self._kind_of = kind_of
        self._settings: dict[tuple[type, bool], tuple[Setting, ...]] = {}

    def settings(self, cls: type, wired: bool = False) -> tuple[Setting, ...]:
        """Return the settings of an attrs class; only components (`wired`) may refer to others."""
        if (cls, wired) not in self._settings:
            try:
                hints = _hints(cls)
            except Exception as exc:
                raise UnsupportedError(
                    f"{cls.__qualname__}: an annotation cannot be resolved: {exc} "
                    "(a name imported under TYPE_CHECKING only?)"
                ) from exc
            self._settings[cls, wired] = tuple(
                self._setting(cls, attribute, hints, wired)
                for attribute in fields(cls)
                if attribute.init and not attribute.name.startswith("_")
            )
        return self._settings[cls, wired]

    def _setting(
        self, cls: type, attribute: Attribute[Any], hints: Mapping[str, Any], wired: bool
    ) -> Setting:
        where = f"{cls.__qualname__}.{attribute.name}"
        if attribute.name == "use" and wired:
            raise UnsupportedError(f"{where}: a setting cannot be called 'use'")
        if attribute.name not in hints:
            raise UnsupportedError(f"{where} has no annotation")
        try:
            shape = self.shape(hints[attribute.name], wired)
        except UnsupportedError as exc:
            raise UnsupportedError(f"{where}: {exc}") from None
        if refers(shape) and not _empty(attribute.default):
            raise UnsupportedError(
                f"{where}: a component that is wired in can have no default but None or empty"
            )
        metadata = attribute.metadata
        return Setting(
            attribute.name,
            shape,
            attribute.default,
            _argument_helps(cls).get(attribute.name, ""),
            bool(metadata.get("learnable")),
            bool(metadata.get("secret")),
            bool(metadata.get("decisive", True)),
        )

    def shape(self, hint: Any, wired: bool = False) -> Shape:
        origin, args = get_origin(hint), get_args(hint)
        if origin is Annotated:
            base = self.shape(args[0], wired)
            limits = tuple(meta for meta in args[1:] if isinstance(meta, Meta))
            return replace(base, limits=(*base.limits, *limits))
        if hint is Any or hint is object:
            return Anything()
        if isinstance(hint, type) and hint in _SCALARS:
            return Scalar(hint)
        if origin is Literal:
            return Choice(args)
        if origin in (Union, types.UnionType):
            return self._union(args, wired)
        if origin is not None or hint in (list, tuple, dict):
            return self._container(origin or hint, args, wired)
        return self._class(hint, wired)

    def _union(self, args: tuple[Any, ...], wired: bool) -> Shape:
        members = tuple(self.shape(arg, wired) for arg in args)
        if sum(isinstance(m, (Record, Table, Ref, Anything)) for m in members) > 1:
            raise UnsupportedError("two alternatives could both be written as a mapping")
        if any(map(refers, members)):
            if any(m.accepts("") for m in members if isinstance(m, (Choice, Scalar))):
                raise UnsupportedError("text could be a value or the name of a component")
            if sum(isinstance(m, (Items, Fixed)) for m in members) > 1:
                raise UnsupportedError("two alternatives could both be written as a list")
        return Variants(members)

    def _container(self, origin: Any, args: tuple[Any, ...], wired: bool) -> Shape:
        if origin is tuple and args and not (len(args) == 2 and args[1] is Ellipsis):
            return Fixed(tuple(self.shape(arg, wired) for arg in args))
        if origin in (list, tuple, Sequence):
            item = self.shape(args[0], wired) if args else Anything()
            return Items(list if origin is list else tuple, item)
        if origin in (dict, Mapping):
            key, item = (self.shape(arg, wired) for arg in args or (str, Any))
            if isinstance(key, Choice):
                texts = all(isinstance(v, str) for v in key.values)
            else:
                texts = isinstance(key, Scalar) and key.type is str
            if not texts:
                raise UnsupportedError("the keys of a mapping must be str")
            return Table(key, item)
        raise UnsupportedError(f"{_name(origin)} cannot stand in a config")

    def _class(self, hint: Any, wired: bool) -> Shape:
        kind = self._kind_of(hint)
        if kind is not None:
            if not wired:
                raise UnsupportedError(
                    f"a {kind} can be wired into a component's own fields only, not deeper"
                )
            return Ref(kind)
        if isinstance(hint, type) and has(hint):
            return Record(hint)
        raise UnsupportedError(f"{_name(hint)} cannot stand in a config")


def _empty(default: Any) -> bool:
    if isinstance(default, Factory):  # type: ignore[arg-type]
        return default.factory in (list, tuple, dict)
    return default is NOTHING or default is None or default in ((), [], {})


def _name(hint: Any) -> str:
    return getattr(hint, "__qualname__", None) or str(hint)


_ARGUMENT = re.compile(r"(\w+)(?:\s*\([^)]*\))?:\s*(.*)")


# All configs of a process read the same classes.
@lru_cache(maxsize=1024)
def _hints(cls: type) -> Mapping[str, Any]:
    """Return the annotations of a class and its bases, resolved."""
    return typing.get_type_hints(cls, include_extras=True)


@lru_cache(maxsize=1024)
def _argument_helps(cls: type) -> Mapping[str, str]:
    """Return the text under `Args:` by field, from the docstrings of a class and its bases."""
    helps: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        lines = inspect.cleandoc(base.__dict__.get("__doc__") or "").splitlines()
        for start, line in enumerate(lines):
            if line.strip() in ("Args:", "Attributes:", "Settings:"):
                helps |= _section_helps(lines[start + 1 :])
    return helps


def _section_helps(lines: list[str]) -> dict[str, str]:
    helps: dict[str, str] = {}
    name, indent = "", 0
    for line in lines:
        if line.strip() and not line.startswith(" "):
            break
        depth = len(line) - len(line.lstrip())
        match = _ARGUMENT.fullmatch(line.strip())
        if match and (not helps or depth <= indent):
            name, indent = match[1], depth
            helps[name] = match[2]
        elif name and line.strip():
            helps[name] = f"{helps[name]} {line.strip()}".strip()
    return helps
