"""Reads configs: a file, a text or a mapping becomes a draft, and a draft a `Config`.

Files beside a config are read as strictly: a class, a section, or plain data.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar

from orchestrion._config.assembly import build, register_secrets, secrets_of
from orchestrion._config.components import Builder, shaper_of
from orchestrion._config.documents import from_plain
from orchestrion._config.environment import check_addresses, expand, read_dotenv, variables
from orchestrion._config.nodes import (
    Node,
    Problem,
    Problems,
    Source,
    parse_path,
    replaced,
    walk,
    without_nulls,
)
from orchestrion._config.result import Config
from orchestrion._config.shapes import Record, Shaper
from orchestrion._config.sources import override, read_tree
from orchestrion._config.structure import Structurer
from orchestrion._config.yaml import read_yaml
from orchestrion._errors import ConfigError, UsageError
from orchestrion._plugins import Plugins
from orchestrion._secrets import register_named
from orchestrion._suggest import article

T = TypeVar("T")

ConfigLike = Config | Mapping[str, Any] | str | PathLike[str]
"""A config file, YAML text of several lines, a mapping, or a config that was read."""


class Draft:
    """A config as it was written, before it is checked; `draft` makes one."""

    def __init__(
        self,
        root: Node,
        name: str,
        plugins: Plugins,
        environment: Mapping[str, str],
        found: Sequence[Problem] = (),
    ) -> None:
        # `name` is that of its file, for errors; `found` are the problems of reading it.
        self._root, self._name, self._plugins = root, name, plugins
        self._environment, self._found = environment, found
        self._taken: dict[str, Node] = {}
        self._shaper = shaper_of(plugins)

    def take(self, cls: type[T]) -> T:
        """Take sections out of the config: return an object of an attrs class with these fields.

        Raises:
            ConfigError: they are not of this form; has everything that is wrong, with its line.
        """
        names = {setting.name for setting in Shaper().settings(cls, False)}
        root = self._root
        self._taken = {name: node for name, node in root.names.items() if name in names}
        rest = {name: node for name, node in root.names.items() if name not in names}
        self._root = Node(rest, root.source, root.line)
        problems = Problems()
        for name, section in self._taken.items():
            for path, node in walk(section, name):
                if node.raw is not None:
                    problems.add(
                        node, path, f"{node.raw}: a section of a command takes no variable"
                    )
        taken_node = Node(self._taken, root.source, root.line)
        return _structured(cls, taken_node, problems, self._name)

    def problem(self, section: str, key: str, message: str) -> Problem:
        """Return a problem of a key of a section that was taken, with its line."""
        node = self._taken.get(section)
        return Problem((node and node.child(key)) or node, f"{section}.{key}", message)

    def components(self, kind: str, name: str | None = None) -> dict[str, Any]:
        """Return the components of a kind by name, or only the one called `name`.

        Nothing else in the config is looked at.

        Raises:
            ConfigError: one of them is wrong; has everything that is wrong, with its line.
        """
        the_kind = self._plugins.kind(kind)
        section = the_kind.section if name is None else f"{the_kind.section}.{name}"
        problems = Problems()
        problems.found += [p for p in self._found if f"{p.path}.".startswith(f"{section}.")]
        root = without_nulls(self._root)
        builder = Builder(root, self._plugins, self._shaper, problems)
        node = root.child(the_kind.section)
        if node is not None and name is None:
            builder.section(the_kind, node)
        elif node is not None and (child := node.child(name or "")) is not None:
            builder.define(kind, section, child)
        if problems.found:
            raise ConfigError(problems.in_order(), self._name)
        register_secrets(builder.entries.values(), self._shaper)
        names = node.names if node is not None else {}
        entries = {name: builder.entries.get(f"{the_kind.section}.{name}") for name in names}
        return {name: entry.component for name, entry in entries.items() if entry is not None}

    def config(self, changes: Mapping[str, Any] | None = None, within: str = "") -> Config:
        """Return the config, with `changes`: plain values by config path.

        `within` is the taken section that has these paths as keys; errors name the lines there.

        Raises:
            ConfigError: everything that is wrong.
        """
        root, problems = self._root, Problems()
        problems.found += self._found
        section = self._taken.get(within)
        for path, value in (changes or {}).items():
            place = section.child(path) if section is not None else None
            place = place or Node(None, root.source)
            segments = parse_path(path)
            try:
                if segments is None:
                    raise ValueError("not a config path, such as trainer.lr")
                node = from_plain(value, place.source, place.line)
                root = replaced(root, segments, node)
            except ValueError as exc:
                problems.add(place, path, str(exc))
        config = build(root, self._name, self._plugins, self._environment, problems, self._shaper)
        secrets = secrets_of(config.definitions.values(), self._shaper)
        for secret in dict.fromkeys(path for path, _ in secrets):
            for path in changes or {}:
                if section is not None and _overlap(path, secret):
                    text = f"{secret} is a secret, which would be stored; it cannot be given here"
                    problems.add(section.child(path) or section, path, text)
        if problems.found:
            raise ConfigError(problems.in_order(), self._name)
        return config


def _overlap(first: str, second: str) -> bool:
    a, b = sorted((first, second), key=len)
    return b == a or b.startswith((f"{a}.", f"{a}["))


def _tree(
    source: Path | str | Mapping[str, Any],
    place: Source,
    environment: Mapping[str, str],
    problems: Problems,
) -> Node | None:
    """Return the nodes of a file, of YAML text or of plain data; None if a problem prevents it."""
    if isinstance(source, Path):
        return read_tree(source, environment, problems)
    if isinstance(source, str):
        root = read_yaml(source, place, problems)
        if root is not None and not isinstance(root.value, dict):
            problems.add(root, "", "a config must be a mapping of sections")
            return None
    else:
        try:
            root = from_plain(dict(source), place)
        except ValueError as exc:
            problems.add(None, "", str(exc))
            return None
    if root is not None:
        expand(root, environment, problems)
    return root


def _drafted(
    source: Path | str | Mapping[str, Any],
    place: Source,
    overrides: Sequence[str],
    env: Mapping[str, str] | None,
    block: Iterable[str],
    plugins: Plugins | None = None,
) -> Draft:
    """Read a config in the environment and a `.env` file, with overrides."""
    problems = Problems()
    beside = place.directory / ".env"
    # The config of a run stands in the run's folder.
    dotenv = read_dotenv(beside if beside.exists() else Path(".env"), problems)
    register_named(dotenv)
    environment = {**dotenv, **(os.environ if env is None else env)}
    root = _tree(source, place, environment, problems)
    if root is None:
        raise ConfigError(problems.in_order(), place.name)
    root = override(root, overrides, environment, problems)
    # Also for settings that are not marked secret, for example a field of a request's body.
    register_named({name: environment.get(name, "") for name in variables(root)}, strictly=True)
    check_addresses(root, problems)
    if plugins is None:
        # `run.block` is not checked yet: plugins must be blocked before anything is imported.
        run = root.child("run")
        names = run.child("block") if run is not None else None
        blocked = [node.value for _, node in walk(names)] if names is not None else []
        plugins = Plugins([*block, *(name for name in blocked if isinstance(name, str))], env)
    return Draft(root, place.name, plugins, environment, problems.found)


def draft(
    path: str | Path,
    overrides: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    block: Iterable[str] = (),
    plugins: Plugins | None = None,
) -> Draft:
    """Read a config file without checking its sections; arguments as for `load`.

    Raises:
        ConfigError: it cannot be read.
    """
    path = Path(path)
    return _drafted(path, Source(str(path), path.parent), overrides, env, block, plugins)


def load(
    path: str | Path,
    overrides: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    block: Iterable[str] = (),
    plugins: Plugins | None = None,
) -> Config:
    """Read a config file.

    Args:
        path: a YAML file.
        overrides: `a.b=c` texts, applied in order; values are YAML.
        env: the environment variables; those of the process by default. A `.env` file beside the
            config adds to them, or if there is none, that of the current folder.
        block: plugins that are never imported, besides those in `run.block`.
        plugins: used instead of those of the environment; `block` and `run.block` then have no
            effect.

    Raises:
        ConfigError: everything that is wrong, each with its place.
    """
    return draft(path, overrides, env, block, plugins).config()


def from_data(
    data: Mapping[str, Any],
    overrides: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    block: Iterable[str] = (),
    plugins: Plugins | None = None,
    name: str = "config",
    directory: str | Path = ".",
) -> Config:
    """Read plain data as `load` reads a file; paths in it start at `directory`.

    Raises:
        ConfigError: everything that is wrong.
        UsageError: `data` is no mapping.
    """
    if not isinstance(data, Mapping):
        raise UsageError(
            f"from_data: expected a mapping, got {data!r:.60} ({article(type(data).__name__)}); "
            "orchestrion.config.load reads a file"
        )
    return _drafted(data, Source(name, Path(directory)), overrides, env, block, plugins).config()


def as_config(
    config: ConfigLike, overrides: Sequence[str] = (), block: Sequence[str] = ()
) -> Config:
    """Return the config that any of its forms stands for."""
    if isinstance(config, Config):
        if overrides or block:
            raise UsageError(
                "overrides and block change a config while it is read, and this one was read: give "
                "them to orchestrion.config.load or from_data"
            )
        return config
    if isinstance(config, Mapping):
        return from_data(config, overrides, block=block)
    if is_text(config):
        return _drafted(str(config), Source("config", Path()), overrides, None, block).config()
    if isinstance(config, str | PathLike):
        return load(Path(config), overrides, block=block)
    raise UsageError(
        "expected a config (a file, YAML text, a mapping or a Config), got "
        f"{config!r:.60} ({article(type(config).__name__)})"
    )


def is_text(config: object) -> bool:
    """Return whether this is a config as YAML text, and not the name of a file."""
    return isinstance(config, str) and "\n" in config


# ------------------------------------------------------------------ files beside a config


def read_as(cls: type[T], path: Path, what: str) -> T:
    """Return an object of an attrs class whose fields a YAML file gives.

    `what` names such a file in errors, e.g. "rubric".

    Raises:
        UsageError: the file cannot be read.
        ConfigError: it is not of this form; has everything that is wrong, with its line.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"the {what} {path} cannot be read: {error}") from None
    return text_as(cls, text, str(path), path.parent)


def text_as(cls: type[T], text: str, name: str, folder: Path = Path()) -> T:
    """Return an object of an attrs class whose fields YAML text gives.

    `name` names the text in errors; relative paths in it start at `folder`.

    Raises:
        ConfigError: it is not of this form; has everything that is wrong, with its line.
    """
    problems = Problems()
    node = read_yaml(text, Source(name, folder), problems)
    if node is None or not isinstance(node.value, dict):
        if node is not None:
            problems.add(node, "", "expected a mapping")
        raise ConfigError(problems.in_order(), name)
    return _structured(cls, node, problems, name)


def _structured(cls: type[T], node: Node, problems: Problems, name: str) -> T:
    value = Structurer(Shaper(), problems).value(Record(cls=cls), node, "")
    if problems.found or not isinstance(value, cls):
        raise ConfigError(problems.in_order(), name)
    return value


def read_section(kind: str, source: Path | Mapping[str, Any]) -> dict[str, Any]:
    """Return the components of a YAML file that holds the section of one kind only.

    `source` may also be what would stand in the file, as plain data.

    Raises:
        ConfigError: it is not of this form; has everything that is wrong, with its line.
    """
    problems = Problems()
    plugins = Plugins()
    key = plugins.kind(kind).section
    name = str(source) if isinstance(source, Path) else key
    root = _tree(source, Source(key, Path()), os.environ, problems)
    if root is None or root.child(key) is None:
        raise ConfigError(problems.in_order() or [f"section '{key}' is missing"], name)
    for other in root.value:
        if other != key:
            problems.add(root, other, f"unknown section: this file holds {key} only")
    if problems.found:
        raise ConfigError(problems.in_order(), name)
    components = Draft(root, name, plugins, os.environ).components(kind)
    if not components:
        raise ConfigError([f"no {kind} is defined"], name)
    return components


def read_data(path: Path) -> dict[str, Any]:
    """Return a config file as plain data: what it includes is in it, variables are expanded.

    Raises:
        ConfigError: it cannot be read as a config; says where.
    """
    problems = Problems()
    root = read_tree(path, os.environ, problems)
    if root is None or problems.found:
        raise ConfigError(problems.in_order(), str(path))
    data = root.plain()
    assert isinstance(data, dict)
    return data
