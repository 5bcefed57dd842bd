"""Converts settings back to the plain data that a config would have."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from attrs import NOTHING, Factory

from orchestrion._config.environment import escape
from orchestrion._config.nodes import OMIT, at_index, at_key
from orchestrion._config.shapes import Record, Ref, Scalar, Setting, Shape, Shaper
from orchestrion._config.structure import MASK


class Dumper(NamedTuple):
    """Converts settings to what a config would say.

    `refer` returns what stands for the component wired in at a config path; it is called for each
    in the order of the config. Without it they are omitted.
    """

    shaper: Shaper
    raw: Mapping[str, str]  # the text of values that came from the environment, by config path
    refer: Callable[[str], Any] | None = None
    decisive: bool = False  # whether only settings that decide a result are returned

    def settings(
        self,
        cls: type,
        instance: Any,
        path: str,
        given: Mapping[str, Any] | None = None,
        wired: bool = False,
    ) -> dict[str, Any]:
        """Return every setting of an instance by key, defaults included.

        `given` has the values of the config, since a converter may make of them what no config can
        express; all other settings have their defaults. Without `given`, the values of the
        instance are used. The caller replaces settings that wire components in.
        """
        result = {}
        for setting in self.shaper.settings(cls, wired):
            if self.decisive and not setting.decisive:
                continue
            if given is None:
                value = getattr(instance, setting.name)
            elif setting.name in given:
                value = given[setting.name]
            else:
                value = _default(setting, instance)
            where = at_key(path, setting.name)
            plain = self._value(setting, value, where)
            if setting.secret:
                plain = self._masked(plain, where)
            if plain is not OMIT:
                result[setting.name] = plain
        return result

    def default(self, setting: Setting) -> Any:
        """Return the default of a setting, or `OMIT` if only an instance has it."""
        return self._value(setting, _default(setting, None), setting.name)

    def _value(self, setting: Setting, value: Any, path: str) -> Any:
        if value is None and not setting.shape.accepts(None):
            return OMIT
        return self.value(setting.shape, value, path)

    def _masked(self, plain: Any, path: str) -> Any:
        """Return a secret with a mask in place of text that is not from the environment."""
        if path in self.raw or not plain or plain is OMIT:
            return plain
        if isinstance(plain, dict):
            return {key: self._masked(item, at_key(path, key)) for key, item in plain.items()}
        if isinstance(plain, list):
            return [self._masked(item, at_index(path, i)) for i, item in enumerate(plain)]
        return MASK

    def value(self, shape: Shape, value: Any, path: str) -> Any:
        """Return a value as plain data, or `OMIT`."""
        shape = shape.narrowed(value)
        if isinstance(shape, Ref) and value is not None and self.refer is not None:
            return self.refer(path)
        if path in self.raw:
            return self.raw[path]
        if isinstance(shape, Record) and isinstance(value, shape.cls):
            return self.settings(shape.cls, value, path)
        if isinstance(value, (str, Path)):
            return escape(str(value))
        if type(value) is int and isinstance(shape, Scalar) and shape.type is float:
            return float(value)  # as it would be read
        if value is None or isinstance(value, (bool, int, float)):
            return OMIT if isinstance(value, float) and not math.isfinite(value) else value
        if isinstance(value, Mapping):
            table = {
                str(k): self.value(shape.part(k), v, at_key(path, str(k))) for k, v in value.items()
            }
            return OMIT if OMIT in table.values() else table
        if isinstance(value, (list, tuple)):
            items = [self.value(shape.part(i), v, at_index(path, i)) for i, v in enumerate(value)]
            return OMIT if OMIT in items else items
        return OMIT


def _default(setting: Setting, instance: Any) -> Any:
    default: Any = setting.default
    if isinstance(default, Factory) and not default.takes_self:  # type: ignore[arg-type]
        return default.factory()
    if default is NOTHING or isinstance(default, Factory):  # type: ignore[arg-type]
        return getattr(instance, setting.name, None)
    return default
