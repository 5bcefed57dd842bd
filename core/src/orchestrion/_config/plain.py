"""Settings as plain data again, and plain data as YAML text that reads back the same."""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attrs import NOTHING, Factory, frozen

from orchestrion._config.environment import escape
from orchestrion._config.nodes import at_index, at_key
from orchestrion._config.shapes import (
    Fixed,
    Items,
    Record,
    Scalar,
    Setting,
    Shape,
    Shaper,
    Table,
    Variants,
)
from orchestrion._config.structure import MASK

__all__ = ["OMIT", "Dumper"]


class _Omit:
    def __repr__(self) -> str:
        return "OMIT"


OMIT = _Omit()
"""Stands for a setting that a config cannot express; left out, it has its default."""


@frozen
class Dumper:
    """Turns settings into what a config would say.

    Args:
        shaper: reads the shapes of classes.
        raw: by config path, the text of values that came from the environment.
    """

    shaper: Shaper
    raw: Mapping[str, str]

    def settings(
        self,
        cls: type,
        instance: Any,
        path: str,
        given: Mapping[str, Any] | None = None,
        wired: bool = False,
    ) -> dict[str, Any]:
        """Every setting of an instance, defaults included.

        `given` holds values as the config gave them, all others being defaults: what a converter
        made of them may not be expressible. Without it the instance's own values are taken.
        Settings that wire components in are the caller's.
        """
        result = {}
        for setting in self.shaper.settings(cls, wired):
            if given is None:
                value = getattr(instance, setting.name)
            elif setting.key in given:
                value = given[setting.key]
            else:
                value = _default(setting, instance)
            plain = self._setting(setting, value, at_key(path, setting.key))
            if plain is not OMIT:
                result[setting.key] = plain
        return result

    def default(self, setting: Setting) -> Any:
        """A setting's default as plain data, or `OMIT` if it cannot be said without an instance."""
        value = _default(setting, None)
        if value is None and not _takes_none(setting.shape):
            return OMIT
        return self.value(setting.shape, value, setting.key)

    def _setting(self, setting: Setting, value: Any, path: str) -> Any:
        if value is None and not _takes_none(setting.shape):
            return OMIT
        plain = self.value(setting.shape, value, path)
        return self._masked(plain, path) if setting.secret else plain

    def _masked(self, plain: Any, path: str) -> Any:
        """What the config itself holds of a secret is not passed on."""
        if path in self.raw or not plain or plain is OMIT:
            return plain
        if isinstance(plain, dict):
            return {key: self._masked(item, at_key(path, key)) for key, item in plain.items()}
        if isinstance(plain, list):
            return [self._masked(item, at_index(path, i)) for i, item in enumerate(plain)]
        return MASK

    def value(self, shape: Shape, value: Any, path: str) -> Any:
        """A value as plain data, or `OMIT`."""
        if path in self.raw:
            return self.raw[path]
        if type(value) is int and _is_float(shape):
            return float(value)  # as it would be read
        match shape:
            case Variants(members=members):
                member = next((m for m in members if _fits(m, value)), None)
                return (
                    _plain(value, self, path) if member is None else self.value(member, value, path)
                )
            case Items(item=item) if isinstance(value, (list, tuple)):
                items = [self.value(item, v, at_index(path, i)) for i, v in enumerate(value)]
                return OMIT if OMIT in items else items
            case Fixed(items=shapes) if isinstance(value, (list, tuple)):
                items = [
                    self.value(item, v, at_index(path, i))
                    for i, (item, v) in enumerate(zip(shapes, value, strict=False))
                ]
                return OMIT if OMIT in items else items
            case Table(item=item) if isinstance(value, Mapping):
                table = {
                    str(k): self.value(item, v, at_key(path, str(k))) for k, v in value.items()
                }
                return OMIT if OMIT in table.values() else table
            case Record(cls=cls) if isinstance(value, cls):
                return self.settings(cls, value, path)
        return _plain(value, self, path)


def _default(setting: Setting, instance: Any) -> Any:
    if isinstance(setting.default, Factory) and not setting.default.takes_self:  # type: ignore[arg-type]
        return setting.default.factory()
    if setting.default is NOTHING or isinstance(setting.default, Factory):  # type: ignore[arg-type]
        return getattr(instance, setting.name, None)
    return setting.default


def _takes_none(shape: Shape) -> bool:
    if isinstance(shape, Variants):
        return any(map(_takes_none, shape.members))
    return type(shape).__name__ == "Anything" or (
        isinstance(shape, Scalar) and shape.type is type(None)
    )


def _is_float(shape: Shape) -> bool:
    """Whether a whole number is read as a float there."""
    members = shape.members if isinstance(shape, Variants) else (shape,)
    types = {one.type for one in members if isinstance(one, Scalar)}
    return float in types and int not in types


def _fits(shape: Shape, value: Any) -> bool:
    match shape:
        case Items() | Fixed():
            return isinstance(value, (list, tuple))
        case Table():
            return isinstance(value, Mapping)
        case Record(cls=cls):
            return isinstance(value, cls)
    return False


def _plain(value: Any, dumper: Dumper, path: str) -> Any:
    """Data of no known shape."""
    if path in dumper.raw:
        return dumper.raw[path]
    if isinstance(value, enum.Enum):
        return _plain(value.value, dumper, path)
    if isinstance(value, (str, Path)):
        return escape(str(value))
    if isinstance(value, float):
        return value if math.isfinite(value) else OMIT
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, Mapping):
        table = {str(k): _plain(v, dumper, at_key(path, str(k))) for k, v in value.items()}
        return OMIT if OMIT in table.values() else table
    if isinstance(value, (list, tuple)):
        items = [_plain(v, dumper, at_index(path, i)) for i, v in enumerate(value)]
        return OMIT if OMIT in items else items
    return OMIT
