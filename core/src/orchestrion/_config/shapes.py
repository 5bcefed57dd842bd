"""Describes what a setting may hold, read once from its annotation.

Conversion (`structure.py`), the resolved config (`plain.py`) and the JSON Schema (`_schema.py`) use
the same shapes, so they agree about what a config may say.
"""

from __future__ import annotations

import enum
import inspect
import re
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from attrs import NOTHING, Attribute, Factory, fields, frozen, has

__all__ = [
    "Anything",
    "Choice",
    "Fixed",
    "Items",
    "Record",
    "Ref",
    "Scalar",
    "Setting",
    "Shape",
    "Shaper",
    "Table",
    "UnsupportedError",
    "Variants",
    "names_components",
    "refers",
]


class UnsupportedError(Exception):
    """Raised for an annotation that no setting can have; names the field and the reason."""


@frozen
class Shape:
    """What a value must look like; `limits` are the `Meta` of its annotation."""

    limits: tuple[Any, ...] = ()

    @property
    def parts(self) -> tuple[Shape, ...]:
        """Return the shapes inside this shape."""
        return ()

    @property
    def container(self) -> type:
        """Return the type of a list of this shape."""
        return list

    def part(self, place: Any) -> Shape:
        """Return the shape of the element at an index or a key."""
        return self.parts[0] if self.parts else Anything()

    def accepts(self, value: Any) -> bool:
        """Return whether a value is of the right type; its elements may still be wrong.

        The value may be as a config has it, or as `Structurer` converts it.
        """
        return True

    def narrowed(self, value: Any) -> Shape:
        """Return the alternative that accepts a value; itself if there are no alternatives."""
        return self


@frozen
class Anything(Shape):
    """Any plain data."""


@frozen
class Scalar(Shape):
    """A bool, int, float, str, Path or None."""

    type: type = str

    def accepts(self, value: Any) -> bool:
        if self.type is float:
            return isinstance(value, (int, float)) and not isinstance(value, bool)
        if self.type is Path:
            return isinstance(value, (str, Path))
        return type(value) is self.type


@frozen
class Choice(Shape):
    """A value of a closed set. An enum's members are written as their values."""

    values: tuple[Any, ...] = ()
    enum: type[enum.Enum] | None = None

    def accepts(self, value: Any) -> bool:
        return any(type(v) is type(value) for v in self.values)


@frozen
class Items(Shape):
    """A list of any length."""

    container: type = list
    item: Shape = Anything()

    @property
    def parts(self) -> tuple[Shape, ...]:
        return (self.item,)

    def accepts(self, value: Any) -> bool:
        return isinstance(value, (list, tuple))


@frozen
class Fixed(Shape):
    """A tuple with a shape for each place."""

    items: tuple[Shape, ...] = ()

    @property
    def container(self) -> type:
        return tuple

    @property
    def parts(self) -> tuple[Shape, ...]:
        return self.items

    def part(self, place: Any) -> Shape:
        return self.items[place] if place < len(self.items) else Anything()

    def accepts(self, value: Any) -> bool:
        return isinstance(value, (list, tuple))


@frozen
class Table(Shape):
    """A mapping from text."""

    key: Shape = Scalar()
    item: Shape = Anything()

    @property
    def parts(self) -> tuple[Shape, ...]:
        return (self.item,)

    def accepts(self, value: Any) -> bool:
        return isinstance(value, Mapping)


@frozen
class Record(Shape):
    """A nested attrs class."""

    cls: type = object

    def accepts(self, value: Any) -> bool:
        return isinstance(value, (dict, self.cls))


@frozen
class Ref(Shape):
    """A component of a kind: the name of a defined one, or an inline `{use: ...}`."""

    kind: str = ""

    def accepts(self, value: Any) -> bool:
        return isinstance(value, (str, dict)) or has(type(value))


@frozen
class Variants(Shape):
    """Alternative shapes."""

    members: tuple[Shape, ...] = ()

    @property
    def parts(self) -> tuple[Shape, ...]:
        return self.members

    def accepts(self, value: Any) -> bool:
        return any(member.accepts(value) for member in self.members)

    def narrowed(self, value: Any) -> Shape:
        return next((m.narrowed(value) for m in self.members if m.accepts(value)), Anything())


def names_components(shape: Shape) -> bool:
    """Return whether it maps names to components; `use` cannot be such a name."""
    return isinstance(shape, Table) and any(
        isinstance(part, Ref) for part in (shape.item, *shape.item.parts)
    )


@frozen
class Setting:
    """A public field of an attrs class, as a config sees it.

    Args:
        name: the name of the field.
        key: its name in a config (attrs' alias).
        shape: the values it may have.
        default: the field's default, `NOTHING` if it must be given.
        help: its description in the docstring of the class or in the annotation.
        learnable: whether an overlay may change it.
        secret: whether its value must never be written anywhere.
    """

    name: str
    key: str
    shape: Shape
    default: Any
    help: str
    learnable: bool
    secret: bool

    @property
    def required(self) -> bool:
        """Return whether a config must give it."""
        return self.default is NOTHING


class Shaper:
    """Reads shapes from annotations; `kind_of` returns the kind of a protocol, or None."""

    def __init__(self, kind_of: Callable[[Any], str | None] = lambda _: None) -> None:
        self._kind_of = kind_of
        self._settings: dict[tuple[type, bool], tuple[Setting, ...]] = {}

    def settings(self, cls: type, wired: bool = False) -> tuple[Setting, ...]:
        """Return the settings of an attrs class; only components (`wired`) may refer to others.

        Raises:
            UnsupportedError: a field cannot be a setting.
        """
        if (cls, wired) not in self._settings:
            self._settings[cls, wired] = tuple(self._read(cls, wired))
        return self._settings[cls, wired]

    def _read(self, cls: type, wired: bool) -> list[Setting]:
        try:
            hints = _hints(cls)
        except Exception as exc:
            raise UnsupportedError(
                f"{cls.__qualname__}: an annotation cannot be resolved: {exc} "
                "(a name imported under TYPE_CHECKING only?)"
            ) from exc
        helps = _argument_helps(cls)
        settings = []
        for attribute in fields(cls):
            if not attribute.init or (attribute.name.startswith("_")):
                continue
            shape = self._shape_of_field(cls, attribute, hints, wired)
            text = attribute.metadata.get("help") or helps.get(attribute.name) or _described(shape)
            settings.append(
                Setting(
                    attribute.name,
                    attribute.alias or attribute.name,
                    shape,
                    attribute.default,
                    text,
                    bool(attribute.metadata.get("learnable")),
                    bool(attribute.metadata.get("secret")),
                )
            )
        return settings

    def _shape_of_field(
        self, cls: type, attribute: Attribute[Any], hints: Mapping[str, Any], wired: bool
    ) -> Shape:
        where = f"{cls.__qualname__}.{attribute.name}"
        if attribute.name == "use" and wired:
            raise UnsupportedError(f"{where}: a setting cannot be called 'use'")
        if attribute.name not in hints:
            raise UnsupportedError(f"{where} has no annotation")
        try:
            shape = self.shape(hints[attribute.name], wired)
        except UnsupportedError as exc:
            raise UnsupportedError(f"{where}: {exc}") from None
        if refers(shape) and not _empty_default(attribute.default):
            raise UnsupportedError(
                f"{where}: a component that is wired in can have no default but None or empty"
            )
        return shape

    def shape(self, hint: Any, wired: bool = False) -> Shape:
        """Return the shape of an annotation.

        Raises:
            UnsupportedError: no setting can have this annotation.
        """
        origin, args = get_origin(hint), get_args(hint)
        if origin is Annotated:
            base = self.shape(args[0], wired)
            limits = tuple(meta for meta in args[1:] if _is_limit(meta))
            return _with_limits(base, limits) if limits else base
        if hint is Any or hint is object:
            return Anything()
        if hint in (bool, int, float, str, Path):
            return Scalar(type=hint)
        if hint is None or hint is type(None):
            return Scalar(type=type(None))
        if isinstance(hint, typing.NewType):
            return self.shape(hint.__supertype__, wired)
        if hasattr(hint, "__value__") and type(hint).__name__ == "TypeAliasType":
            return self.shape(hint.__value__, wired)
        if origin is Literal:
            return Choice(values=args)
        if origin in (Union, types.UnionType):
            return self._union(args, wired)
        if origin is not None or hint in (list, tuple, dict):
            return self._container(origin or hint, args, wired)
        return self._class(hint, wired)

    def _union(self, args: tuple[Any, ...], wired: bool) -> Shape:
        members = tuple(self.shape(arg, wired) for arg in args)
        if sum(isinstance(m, (Record, Table, Ref, Anything)) for m in members) > 1:
            raise UnsupportedError("two alternatives could both be written as a mapping")
        if refers(Variants(members=members)):
            if any(m.accepts("") for m in members if isinstance(m, (Choice, Scalar))):
                raise UnsupportedError("text could be a value or the name of a component")
            if sum(isinstance(m, (Items, Fixed)) for m in members) > 1:
                raise UnsupportedError("two alternatives could both be written as a list")
        return Variants(members=members)

    def _container(self, origin: Any, args: tuple[Any, ...], wired: bool) -> Shape:
        if origin is tuple and args and not (len(args) == 2 and args[1] is Ellipsis):
            return Fixed(items=tuple(self.shape(arg, wired) for arg in args))
        if origin in (list, tuple, Sequence):
            item = self.shape(args[0], wired) if args else Anything()
            return Items(container=list if origin is list else tuple, item=item)
        if origin in (dict, Mapping):
            key, item = args or (str, Any)
            key_shape = self.shape(key)
            texts = isinstance(key_shape, Choice) and all(
                isinstance(v, str) for v in key_shape.values
            )
            if not texts and not (isinstance(key_shape, Scalar) and key_shape.type is str):
                raise UnsupportedError("the keys of a mapping must be str")
            return Table(key=key_shape, item=self.shape(item, wired))
        raise UnsupportedError(f"{_name(origin)} cannot stand in a config")

    def _class(self, hint: Any, wired: bool) -> Shape:
        kind = self._kind_of(hint)
        if kind is not None:
            if not wired:
                raise UnsupportedError(
                    f"a {kind} can be wired into a component's own fields only, not deeper"
                )
            return Ref(kind=kind)
        if isinstance(hint, type) and issubclass(hint, enum.Enum):
            return Choice(values=tuple(member.value for member in hint), enum=hint)
        if isinstance(hint, type) and has(hint):
            return Record(cls=hint)
        raise UnsupportedError(f"{_name(hint)} cannot stand in a config")


def refers(shape: Shape) -> bool:
    """Return whether components are wired in here."""
    return isinstance(shape, Ref) or any(map(refers, shape.parts))


def _empty_default(default: Any) -> bool:
    if isinstance(default, Factory):  # type: ignore[arg-type]
        return default.factory in (list, tuple, dict)
    return default is NOTHING or default is None or default in ((), [], {})


def _is_limit(meta: Any) -> bool:
    return type(meta).__name__ == "Meta" and type(meta).__module__.startswith("msgspec")


def _with_limits(shape: Shape, limits: tuple[Any, ...]) -> Shape:
    from attrs import evolve

    return evolve(shape, limits=(*shape.limits, *limits))


def _described(shape: Shape) -> str:
    return next((str(m.description) for m in shape.limits if m.description), "")


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
