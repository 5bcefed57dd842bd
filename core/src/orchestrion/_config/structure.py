"""Converts nodes to values of the types that settings declare, and notes every problem.

Conversion is strict: text is not a number, 7.9 is not an integer, 1 is not a boolean. cattrs is not
used: it stops at the first failing validator of a class, it knows neither lines nor wiring, and its
errors would have to be translated one by one into ours.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from attrs import NOTHING, Factory, fields_dict

from orchestrion._config.documents import scalar
from orchestrion._config.nodes import BROKEN, FAILED, Node, Problems, at_key, walk
from orchestrion._config.shapes import (
    Anything,
    Choice,
    Fixed,
    Items,
    Record,
    Ref,
    Scalar,
    Setting,
    Shape,
    Shaper,
    Table,
    UnsupportedError,
    Variants,
)
from orchestrion._interrupts import from_outside
from orchestrion._suggest import did_you_mean, shown

MASK: Final = "<masked>"
"""Replaces a secret that was written into the config itself when the config is stored."""


def _refuse(kind: str, node: Node, path: str) -> Any:
    raise UnsupportedError(f"{path}: no {kind} can be wired in here")


class Structurer(NamedTuple):
    """Converts values and notes every problem on the way."""

    shaper: Shaper
    problems: Problems
    refer: Callable[[str, Node, str], Any] = _refuse

    # ------------------------------------------------------------------ values

    def value(self, shape: Shape, node: Node, path: str, secret: bool = False) -> Any:
        """Return the converted value, or `FAILED`."""
        if node.value is BROKEN:
            return FAILED
        result = self._value(shape, node, path, secret)
        if result is FAILED:
            return FAILED
        unmet = [text for meta in shape.limits for text in _violations(meta, node.value)]
        for text in unmet:
            self.problems.add(node, path, f"must {text}, got {got(node, secret)}")
        return FAILED if unmet else result

    def _value(self, shape: Shape, node: Node, path: str, secret: bool) -> Any:
        result: Any = FAILED
        if isinstance(shape, Variants):
            # If one alternative alone fits by type, report its problems, not "expected A or B".
            possible = [member for member in shape.members if member.accepts(node.value)]
            if len(possible) == 1:
                return self.value(possible[0], node, path, secret)
            for member in possible:
                trial = Structurer(self.shaper, Problems(), self.refer)
                result = trial.value(member, node, path, secret)
                if result is not FAILED and not trial.problems.found:
                    return result
            result = FAILED
        elif not shape.accepts(node.value):
            pass
        elif isinstance(shape, Record):
            return self.record(shape.cls, node, path)
        elif isinstance(shape, Ref):
            return self.refer(shape.kind, node, path)
        elif isinstance(node.value, dict):
            return self._table(shape, node, path, secret)
        elif not isinstance(node.value, list):
            result = _scalar(shape, node)
        elif not isinstance(shape, Fixed) or len(node.value) == len(shape.items):
            items = [
                self.value(shape.part(index), child, where, secret)
                for index, (where, child) in enumerate(node.children(path))
            ]
            return FAILED if FAILED in items else shape.container(items)
        if result is FAILED:
            hint = "" if secret or node.raw is not None else _habit(shape, node.value)
            text = f"expected {shape.expected}, got {got(node, secret)}{hint}"
            self.problems.add(node, path, text)
        return result

    def _table(self, shape: Shape, node: Node, path: str, secret: bool) -> Any:
        if isinstance(shape, Table) and shape.names_components and "use" in node.value:
            text = "expected names, each with a component; 'use' cannot be a name"
            self.problems.add(node, path, text)
            return FAILED
        result = {}
        failed = False
        for key, child in node.value.items():
            name, where = key, at_key(path, key)
            if isinstance(shape, Table):
                name = self.value(shape.key, Node(key, child.source, child.line), where)
            value: Any = FAILED
            if name is not FAILED:
                result[name] = value = self.value(shape.part(key), child, where, secret)
            failed = failed or value is FAILED
        return FAILED if failed else result

    # ------------------------------------------------------------------ attrs classes

    def record(
        self, cls: type, node: Node, path: str, skip: Collection[str] = (), wired: bool = False
    ) -> Any:
        """Return an instance of an attrs class, or `FAILED`; keys in `skip` are ignored."""
        values = self.settings(cls, node, path, skip, wired)
        return FAILED if values is FAILED else self.build(cls, values, node, path)

    def settings(
        self, cls: type, node: Node, path: str, skip: Collection[str] = (), wired: bool = False
    ) -> Any:
        """Return the given settings of an attrs class by key, or `FAILED`."""
        settings = {s.name: s for s in self.shaper.settings(cls, wired)}
        values: dict[str, Any] = {}
        failed = False
        for key, child in node.value.items():
            if key in skip:
                continue
            where = at_key(path, key)
            value: Any = FAILED
            if key in settings:
                value = self._setting(settings[key], child, where)
            else:
                # Suggest also keys that the file has already: an override may mean one of them.
                close = did_you_mean(key, (*settings, *skip))
                known = (
                    f"known: {', '.join(settings)}" if settings else "there are no settings here"
                )
                self.problems.add(child, where, f"unknown key{close or f' ({known})'}")
            if value is FAILED:
                failed = True
            else:
                values[key] = value
        for setting in settings.values():
            if setting.required and setting.name not in node.value and setting.name not in skip:
                text = f"{setting.name!r} is missing: expected {setting.shape.expected}"
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
        secrets = {s.name for s in self.shaper.settings(cls, True) if s.secret}
        stand_in: Any = object.__new__(cls)
        for key, attribute in attributes.items():
            value = values.get(key, attribute.default)
            if isinstance(value, Factory):  # type: ignore[arg-type]
                value = NOTHING if value.takes_self else value.factory()
            if value is not NOTHING and not (key in node.value and key not in values):
                object.__setattr__(stand_in, key, value)
        failed = False
        for key, value in values.items():
            attribute = attributes[key]
            if attribute.validator is None:
                continue
            try:
                attribute.validator(stand_in, attribute, value)
            except AttributeError:
                continue  # it compares with a field that is not valid
            except Exception as exc:
                child = node.value.get(key, node)
                hidden = key in secrets or child.raw is not None
                self.problems.add(child, at_key(path, key), _message(exc, hidden))
                failed = True
        return failed


def _scalar(shape: Shape, node: Node) -> Any:
    """Return the value of a node that is neither list nor mapping, or `FAILED`."""
    value = node.value
    if isinstance(shape, Choice):
        if not any(type(v) is type(value) and v == value for v in shape.values):
            return FAILED
        return value
    if isinstance(value, float) and not math.isfinite(value):
        return FAILED
    if not isinstance(shape, Scalar) or shape.type not in (Path, float):
        return value
    if shape.type is float:
        return float(value)
    try:  # a path is taken from the folder of the file that names it
        return (node.source.directory / Path(value).expanduser()).resolve() if value else FAILED
    except (OSError, RuntimeError, ValueError):
        return FAILED


def _violations(meta: Any, value: Any) -> list[str]:
    """Return the demands of a msgspec `Meta` that a value does not meet.

    As in JSON Schema, a constraint on numbers is not applied to text, and so on.
    """
    checks: list[tuple[str, Any, Callable[[Any], bool]]] = []
    unit = ""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        checks = [
            ("be at least {}", meta.ge, lambda limit: value >= limit),
            ("be greater than {}", meta.gt, lambda limit: value > limit),
            ("be at most {}", meta.le, lambda limit: value <= limit),
            ("be less than {}", meta.lt, lambda limit: value < limit),
            ("be a multiple of {}", meta.multiple_of, lambda limit: (value / limit).is_integer()),
        ]
    elif isinstance(value, (str, list, dict)):
        unit = "characters" if isinstance(value, str) else "elements"
        checks = [
            ("have at least {} " + unit, meta.min_length, lambda limit: len(value) >= limit),
            ("have at most {} " + unit, meta.max_length, lambda limit: len(value) <= limit),
        ]
        if isinstance(value, str):
            checks.insert(
                0, ("match {}", meta.pattern, lambda limit: bool(re.search(limit, value)))
            )
    return [text.format(limit) for text, limit, ok in checks if limit is not None and not ok(limit)]


# ------------------------------------------------------------------------------ messages


def named(node: Node) -> str:
    """Return a name in quotes; one from the environment as it was written."""
    return repr(node.raw if node.raw is not None else node.value)


def got(node: Node, secret: bool = False) -> str:
    """Return a value as a message may show it: without anything that may be a secret."""
    if node.raw is not None:
        return f"{node.raw!r} (text from the environment)"
    return "a secret" if secret and node.value is not None else shown(node.value)


def _habit(shape: Shape, value: Any) -> str:
    """Return how to correct a common mistake, or ""."""
    if isinstance(shape, Choice):
        texts = [v for v in shape.values if isinstance(v, str)]
        return did_you_mean(value, texts) if isinstance(value, str) else ""
    shapes = shape.members if isinstance(shape, Variants) else (shape,)
    kinds = {s.type for s in shapes if isinstance(s, Scalar)}
    if isinstance(value, float) and not math.isfinite(value):
        plain = any(isinstance(s, Anything) for s in shapes)
        return "; it must be finite" if plain or float in kinds else ""
    if isinstance(value, str):
        if bool in kinds and value.lower() in ("yes", "no", "on", "off", "y", "n"):
            return "; in YAML 1.2 that is a word"
        try:
            unquoted = scalar(value)
        except ValueError:
            return ""
        if (
            unquoted is not None
            and not isinstance(unquoted, str)
            and type(unquoted) in kinds | {int}
        ):
            return "; leave out the quotes" if kinds & {bool, int, float} else ""
        if any(isinstance(s, Items) for s in shapes):
            return f"; for one element, write [{value}]" if len(value) < 40 else ""
    elif str in kinds and isinstance(value, (bool, int, float)):
        return "; put it in quotes"
    return ""


def _message(exc: BaseException, hidden: bool) -> str:
    """Return the message of an exception, without any text that may be a secret."""
    if hidden:
        return f"not accepted ({type(exc).__name__}; not shown, since it may hold a secret)"
    # attrs' validators raise with (message, attribute, ...) as arguments.
    text = " ".join(str(exc.args[0]).split()) if exc.args else ""
    plain = text and isinstance(exc, (ValueError, TypeError))
    return text if plain else f"{type(exc).__name__}: {text}"
