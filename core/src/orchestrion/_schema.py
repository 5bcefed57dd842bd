"""Write a JSON Schema of configs, with a branch for every installed component.

It is made from the shapes that also convert values (`_config/shapes.py`), so the two agree.
`msgspec.json.schema` is not used: it refuses unions of a component or a path with anything but
None, and constraints on unions. Only `orchestrion validate` checks whether a name is defined,
whether a definition is used, and what the validators of the classes demand.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from orchestrion._config.components import NAME, shaper_of
from orchestrion._config.nodes import OMIT
from orchestrion._config.plain import Dumper
from orchestrion._config.sections import EXECUTOR, NEEDED, PLAIN
from orchestrion._config.shapes import Setting, Shape, UnsupportedError, pointer
from orchestrion._errors import PluginError
from orchestrion._importing import resolve

if TYPE_CHECKING:
    from orchestrion._components import Kind
    from orchestrion._plugins import Found, Plugins


_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_PARTIAL = {"type": "object", "not": {"required": ["use"]}}
"""A component of which an included file has the rest."""
_BOUNDS = {
    "ge": "minimum",
    "gt": "exclusiveMinimum",
    "le": "maximum",
    "lt": "exclusiveMaximum",
    "multiple_of": "multipleOf",
    "pattern": "pattern",
}


def json_schema(plugins: Plugins) -> dict[str, Any]:
    """Return the schema of configs for these plugins; leaves out what cannot be loaded."""
    return Schema(plugins).document()


class Schema:
    """Writes a schema; every component and every nested class is under `$defs`."""

    def __init__(self, plugins: Plugins) -> None:
        self.plugins = plugins
        self.shaper = shaper_of(plugins)
        self.dumper = Dumper(self.shaper, {})
        self.definitions: dict[str, Any] = {}
        self.problems: list[str] = []

    def document(self) -> dict[str, Any]:
        kinds = list(self.plugins.kinds().values())
        for kind in kinds:
            self._kind(kind)
        file = {"type": "string", "minLength": 1}
        properties: dict[str, Any] = {
            "include": {
                "anyOf": [file, {"type": "array", "items": file}],
                "description": "Files that this one is laid over; of these, later ones win.",
            },
            "seed": {
                "type": "integer",
                "minimum": 0,
                "default": 0,
                "description": "The root of all randomness of a run.",
            },
        }
        for kind in kinds:
            if kind.section != EXECUTOR:
                properties[kind.section] = self._section(kind, _PARTIAL)
        for name, cls in PLAIN.items():
            skip = ("baselines",) if name == "evaluation" else ()
            section = self._object(cls, wired=True, skip=skip)
            if name == "evaluation":
                section["properties"]["baselines"] = self._baselines()
            properties[name] = _or_null(section)
        properties |= self._sections_of_commands()
        return {
            "$schema": _DIALECT,
            "title": "Orchestrion config",
            "type": "object",
            "properties": properties,
            # A file that includes another one may hold parts of components alone.
            "if": {"not": {"required": ["include"]}},
            "then": {
                "required": list(NEEDED),
                "properties": {kind.section: self._section(kind) for kind in kinds},
            },
            "additionalProperties": False,
            "$defs": dict(sorted(self.definitions.items())),
        }

    # ------------------------------------------------------------------ kinds and components

    def _kind(self, kind: Kind) -> None:
        """Add `$defs/KIND`, with a branch for each component by its `use`."""
        supplied = self.plugins.components(kind.name)
        names = [item.component.name for item in supplied]
        branches = []
        for item in supplied:
            try:
                component = self._component(item, names.count(item.component.name) == 1)
            except UnsupportedError as exc:
                self.problems.append(f"{item}: {exc}")
                continue
            except PluginError as exc:
                self.problems.append(str(exc))
                continue
            key = f"{kind.name}.{item.qualified}"
            self.definitions[key] = component
            branches.append({"$ref": pointer(key)})
        # With `oneOf: []` nothing would be a valid schema; `false` refuses every value.
        self.definitions[kind.name] = {"oneOf": branches} if branches else {"not": {}}

    def _component(self, found: Found, unique: bool) -> dict[str, Any]:
        cls = self.plugins.component_class(found)
        schema = self._object(cls, wired=True)
        uses = [f"{owner}:{found.component.name}" for owner in _owners(found, self.plugins)]
        if unique:
            uses.insert(0, found.component.name)
        use = {"const": uses[0]} if len(uses) == 1 else {"enum": uses}
        properties: dict[str, Any] = {"use": {**use, "description": found.component.summary}}
        if found.kind.name == "policy":
            properties["agents"] = {
                "type": "array",
                "items": {"type": "string"},
                "minItems": 1,
                "uniqueItems": True,
                "description": "The team, if it is not every agent that no other refers to.",
            }
        schema["properties"] = properties | schema["properties"]
        schema["required"] = ["use", *schema.get("required", ())]
        schema["description"] = f"{found.component.summary} ({found.plugin.origin})"
        return schema

    def _sections_of_commands(self) -> dict[str, Any]:
        sections: dict[str, Any] = {}
        for loaded in self.plugins.load_all():
            try:
                for path in getattr(loaded.namespace, "orchestrion_sections", tuple)():
                    settings = self.shaper.settings(resolve(path), False)
                    sections |= {setting.name: self._property(setting) for setting in settings}
            # A plugin's own code: one that fails must not take the schema away.
            except Exception as exc:
                self.problems.append(f"sections of plugin {loaded.plugin}: {exc}")
        return sections

    def _section(self, kind: Kind, also: Mapping[str, Any] | None = None) -> dict[str, Any]:
        component: dict[str, Any] = {"$ref": pointer(kind.name)}
        if also is not None:
            component = {"anyOf": [component, also]}
        section = _by_name(component) if kind.many else component
        if kind.name == "trainer":
            stages = {"type": "array", "items": component, "minItems": 1}
            section = {"anyOf": [component, stages]}
        return section if kind.section in NEEDED else _or_null(section)

    def _baselines(self) -> dict[str, Any]:
        baseline = {
            "type": "object",
            "properties": {
                "policy": {"$ref": pointer("policy")},
                "trainer": {"$ref": pointer("trainer")},
                "as_configured": {
                    "type": "boolean",
                    "description": "Learnable settings as they stand here, not as learned.",
                },
            },
            "required": ["policy"],
            "additionalProperties": False,
        }
        word = {"type": "string", "description": "A trainer, a policy, or `untrained`."}
        return {
            "anyOf": [_by_name({"anyOf": [baseline, word]}), {"type": "array", "items": word}],
            "description": "Policies to compare with, by name.",
        }

    # ------------------------------------------------------------------ classes and shapes

    def _object(self, cls: type, wired: bool = False, skip: Iterable[str] = ()) -> dict[str, Any]:
        settings = [s for s in self.shaper.settings(cls, wired) if s.name not in skip]
        schema: dict[str, Any] = {
            "type": "object",
            "properties": {s.name: self._property(s) for s in settings},
            "additionalProperties": False,
        }
        if required := [s.name for s in settings if s.required]:
            schema["required"] = required
        text = inspect.cleandoc(cls.__dict__.get("__doc__") or "").partition("\n\n")[0]
        if text:
            schema["description"] = " ".join(text.split())
        return schema

    def _property(self, setting: Setting) -> dict[str, Any]:
        schema = self._shape(setting.shape)
        if setting.help:
            schema["description"] = setting.help
        default = self.dumper.default(setting)
        if not setting.required and not setting.secret and default is not OMIT:
            schema["default"] = default
        return schema

    def _shape(self, shape: Any) -> dict[str, Any]:
        """Return the schema of a shape with its limits, or the reference to that of a class."""
        if isinstance(shape, type):
            return {"$ref": pointer(self._class(shape))}
        schema: dict[str, Any] = shape.schema(self._shape)
        for meta in shape.limits:
            schema |= _limits(meta, shape)
        return schema

    def _class(self, cls: type) -> str:
        key = f"class.{cls.__module__}.{cls.__qualname__}"
        if key not in self.definitions:
            self.definitions[key] = {}  # in place before its own fields may refer to it
            self.definitions[key] = self._object(cls)
        return key


def _limits(meta: Any, shape: Shape) -> dict[str, Any]:
    """Return a `Meta` as JSON Schema; lengths count characters, elements or keys by the type."""
    limits = {
        keyword: getattr(meta, name)
        for name, keyword in _BOUNDS.items()
        if getattr(meta, name) is not None
    }
    for end in ("min", "max"):
        length = getattr(meta, f"{end}_length")
        if length is not None:
            limits |= {f"{end}{unit}": length for unit in shape.counted}
    return limits


def _owners(found: Found, plugins: Plugins) -> list[str]:
    """Return the names that may stand before the colon in `use` for the plugin of a component."""
    plugin = found.plugin
    names = {plugin.distribution: plugin}
    with suppress(PluginError):
        names[plugin.name] = plugins.get(plugin.name)
    return [name for name, owner in names.items() if owner == plugin]


def _or_null(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of a section that null leaves out."""
    return {"anyOf": [schema, {"type": "null"}]}


def _by_name(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of a mapping from names to values of a schema."""
    return {
        "type": "object",
        "propertyNames": {"pattern": f"^{NAME.pattern}$"},
        "additionalProperties": schema,
    }
