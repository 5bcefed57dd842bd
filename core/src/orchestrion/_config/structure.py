"""Converts nodes to values of the types that settings declare, and notes every problem.

Conversion is strict: text is not a number, 7.9 is not an integer, 1 is not a boolean. cattrs is not
used: it stops at the first failing validator of a class, it knows neither lines nor wiring, and its
errors would have to be translated one by one into ours.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Final

from attrs import NOTHING, Factory, fields_dict, frozen

from orchestrion._config.nodes import BROKEN, Node, Problems, at_index, at_key, walk
from orchestrion._config.shapes import (
    Choice,
    Fixed,
    Record,
    Ref,
    Scalar,
    Setting,
    Shape,
    Shaper,
    Table,
    UnsupportedError,
    Variants,
    names_components,
)
from orchestrion._config.wording import expected, got, habit, violations
from orchestrion._interrupts import from_outside
from orchestrion._suggest import did_you_mean

__all__ = ["FAILED", "MASK", "Structurer"]


class _Failed:
    def __repr__(self) -> str:
        return "FAILED"


FAILED: Final = _Failed()
"""Stands for a value that could not be converted; the problem is noted."""

MASK: Final = "<masked>"
"""Replaces a secret that was written into the config itself when the config is stored."""

Refer = Callable[[str, Node, str], Any]
"""Resolves (kind, node, path) to a component's settings, or `FAILED`."""


def _refuse(kind: str, node: Node, path: str) -> Any:
    raise UnsupportedError(f"{path}: no {kind} can be wired in here")


@frozen
class Structurer:
    """Converts values and notes every problem on the way.

    Args:
        shaper: reads the shapes of nested classes.
        problems: collects the problems.
        refer: resolves references to components.
    """

    shaper: Shaper
    problems: Problems
    refer: Refer = _refuse

    # ------------------------------------------------------------------ values

    def value(self, shape: Shape, node: Node, path: str, secret: bool = False) -> Any:
        """Return the converted value, or `FAILED`."""
        if node.value is BROKEN:
            return FAILED
        result = self._value(shape, node, path, secret)
        if result is not FAILED and not self._within(shape, node, path, secret):
            return FAILED
        return result

    def _value(self, shape: Shape, node: Node, path: str, secret: bool) -> Any:
        if isinstance(shape, Variants):
            return self._variants(shape, node, path, secret)
        if not shape.accepts(node.value):
            return self._wrong(shape, node, path, secret)
        if isinstance(shape, Record):
            return self.record(shape.cls, node, path)
        if isinstance(shape, Ref):
            return self.refer(shape.kind, node, path)
        if isinstance(node.value, dict):
            return self._table(shape, node, path, secret)
        if isinstance(node.value, list):
            if isinstance(shape, Fixed) and len(node.value) != len(shape.items):
                return self._wrong(shape, node, path, secret)
            items = [
                self.value(shape.part(i), child, at_index(path, i), secret)
                for i, child in enumerate(node.value)
            ]
            return FAILED if FAILED in items else shape.container(items)
        result = _scalar(shape, node)
        return self._wrong(shape, node, path, secret) if result is FAILED else result

    def _wrong(self, shape: Shape, node: Node, path: str, secret: bool) -> Any:
        hint = "" if secret or node.raw is not None else habit(shape, node.value)
        self.problems.add(node, path, f"expected {expected(shape)}, got {got(node, secret)}{hint}")
        return FAILED

    def _table(self, shape: Shape, node: Node, path: str, secret: bool) -> Any:
        if names_components(shape) and "use" in node.value:
            text = "expected names, each with a component; 'use' cannot be a name"
            self.problems.add(node, path, text)
            return FAILED
        result = {}
        for key, child in node.value.items():
            where, name = at_key(path, key), key
            if isinstance(shape, Table):
                name = self.value(shape.key, Node(key, child.source, child.line), where)
            if name is FAILED:
                result[key] = FAILED
            else:
                result[name] = self.value(shape.part(key), child, where, secret)
        return FAILED if FAILED in result.values() else result

    def _variants(self, shape: Variants, node: Node, path: str, secret: bool) -> Any:
        """Return the value by the first alternative that fits, or note what is wrong.

        If only one alternative is possible, its problems say more than those of the whole.
        """
        possible = [member for member in shape.members if member.accepts(node.value)]
        if len(possible) == 1:
            return self.value(possible[0], node, path, secret)
        for member in possible:
            trial = Structurer(self.shaper, Problems(), self.refer)
            result = trial.value(member, node, path, secret)
            if result is not FAILED and not trial.problems.found:
                return result
        return self._wrong(shape, node, path, secret)

    # ------------------------------------------------------------------ constraints

    def _within(self, shape: Shape, node: Node, path: str, secret: bool) -> bool:
        messages = [text for meta in shape.limits for text in violations(meta, node.value)]
        for text in messages:
            self.problems.add(node, path, f"must {text}, got {got(node, secret)}")
        return not messages

    # ------------------------------------------------------------------ attrs classes

    def record(self, cls: type, node: Node, path: str, skip: Collection[str] = ()) -> Any:
        """Return an instance of an attrs class, or `FAILED`; keys in `skip` are ignored."""
        values = self.settings(cls, node, path, skip)
        return FAILED if values is FAILED else self.build(cls, values, node, path)

    def settings(
        self, cls: type, node: Node, path: str, skip: Collection[str] = (), wired: bool = False
    ) -> Any:
        """Return the given settings of an attrs class by key, or `FAILED`."""
        settings = {s.key: s for s in self.shaper.settings(cls, wired)}
        values: dict[str, Any] = {}
        failed = False
        for key, child in node.value.items():
            if key in skip:
                continue
            if key not in settings:
                # Also those that are given: an override may mean what the file has.
                close = did_you_mean(key, (*settings, *skip))
                known = "" if close else _known(settings)
                self.problems.add(child, at_key(path, key), f"unknown key{close}{known}")
                failed = True
                continue
            value = self._setting(settings[key], child, at_key(path, key))
            failed = failed or value is FAILED
            if value is not FAILED:
                values[key] = value
        for setting in settings.values():
            if setting.required and setting.key not in node.value and setting.key not in skip:
                text = f"{setting.key!r} is missing: expected {expected(setting.shape)}"
                self.problems.add(node, path, text)
                failed = True
        if failed:
            # The other values are checked all the same: every problem is reported at once.
            self._validate(cls, values, node, path)
        return FAILED if failed else values

    def _setting(self, setting: Setting, node: Node, path: str) -> Any:
        if setting.secret and (masked := [n for _, n in walk(node) if n.value == MASK]):
            self.problems.add(
                masked[0],
                path,
                'this secret was masked when the config was stored; write "${env:NAME}" here, '
                "or give it with -o",
            )
            return FAILED
        return self.value(setting.shape, node, path, setting.secret)

    def build(self, cls: type, values: Mapping[str, Any], node: Node, path: str) -> Any:
        """Call the class; if it raises, run every validator alone and note each error."""
        try:
            return cls(**values)
        except BaseException as exc:  # also SystemExit, which would end the command as a success
            if from_outside(exc):
                raise
            if not self._validate(cls, values, node, path):
                hidden = any(n.raw is not None for n in node.value.values() if n is not None)
                self.problems.add(node, path, _message(exc, hidden))
            return FAILED

    def _validate(self, cls: type, values: Mapping[str, Any], node: Node, path: str) -> bool:
        """Run each validator on an instance with the valid fields; return whether any failed."""
        attributes = fields_dict(cls)
        settings = {s.key: s for s in self.shaper.settings(cls, True)}
        stand_in: Any = object.__new__(cls)
        for attribute in attributes.values():
            key = str(attribute.alias)
            value = values.get(key, attribute.default)
            if isinstance(value, Factory):  # type: ignore[arg-type]
                value = NOTHING if value.takes_self else value.factory()
            if value is not NOTHING and not (key in node.value and key not in values):
                object.__setattr__(stand_in, attribute.name, value)
        failed = False
        for key, value in values.items():
            setting = settings[key]
            attribute = attributes[setting.name]
            if attribute.validator is None:
                continue
            try:
                attribute.validator(stand_in, attribute, value)
            except AttributeError:
                continue  # it compares with a field that is not valid
            except Exception as exc:
                child = node.value.get(key, node)
                hidden = setting.secret or child.raw is not None
                self.problems.add(child, at_key(path, key), _message(exc, hidden))
                failed = True
        return failed


def _known(settings: Mapping[str, Setting]) -> str:
    return f" (known: {', '.join(settings)})" if settings else " (there are no settings here)"


def _message(exc: BaseException, hidden: bool) -> str:
    """Return the message of an exception, without any text that may be a secret."""
    if hidden:
        return f"not accepted ({type(exc).__name__}; not shown, since it may hold a secret)"
    # attrs' validators raise with (message, attribute, ...) as arguments.
    text = str(exc.args[0]) if exc.args else ""
    text = " ".join(text.split())
    return (
        text
        if isinstance(exc, (ValueError, TypeError)) and text
        else f"{type(exc).__name__}: {text}"
    )


def _scalar(shape: Shape, node: Node) -> Any:
    """Return the value of a node that is neither list nor mapping, or `FAILED`."""
    value = node.value
    if isinstance(shape, Choice):
        if not any(type(v) is type(value) and v == value for v in shape.values):
            return FAILED
        return value if shape.enum is None else shape.enum(value)
    if isinstance(value, float) and not math.isfinite(value):
        return FAILED
    kind = shape.type if isinstance(shape, Scalar) else None
    if kind is Path:
        return _path(value, node) if value and "\0" not in value else FAILED
    return float(value) if kind is float else value


def _path(text: str, node: Node) -> Any:
    """Return a path, taken from the folder of the file that names it."""
    try:
        return (node.source.directory / Path(text).expanduser()).resolve()
    except (OSError, RuntimeError, ValueError):
        return FAILED
