"""A config before it is checked, for commands that add sections or try other values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from orchestrion._config.components import Builder, kind_of
from orchestrion._config.documents import from_plain
from orchestrion._config.loading import build, prepared, register_secrets, secrets_of
from orchestrion._config.nodes import Node, Problem, Problems, parse_path, replaced, walk
from orchestrion._config.result import Config
from orchestrion._config.shapes import Record, Shaper
from orchestrion._config.structure import Structurer
from orchestrion._errors import ConfigError
from orchestrion._plugins import Plugins

T = TypeVar("T")


class Draft:
    """A config as it was written; `draft` makes one.

    Args:
        root: its nodes.
        name: of its file, for errors.
        plugins: those of the environment.
        environment: the variables.
        found: problems that were found when it was read.
    """

    def __init__(
        self,
        root: Node,
        name: str,
        plugins: Plugins,
        environment: Mapping[str, str],
        found: Sequence[Problem] = (),
    ) -> None:
        self._root, self._name, self._plugins = root, name, plugins
        self._environment, self._found = environment, found
        self._taken: dict[str, Node] = {}
        self._shaper: Shaper | None = None

    def take(self, cls: type[T]) -> T:
        """Take sections out of the config, and return them as an object of an attrs class.

        Args:
            cls: its fields are the sections.

        Raises:
            ConfigError: they are not of this form; has everything that is wrong, with its line.
        """
        names = {setting.key for setting in Shaper().settings(cls, False)}
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
        taken = Node(self._taken, root.source, root.line)
        value = Structurer(Shaper(), problems).value(Record(cls=cls), taken, "")
        if problems.found or not isinstance(value, cls):
            raise ConfigError(problems.in_order(), self._name)
        return value

    def problem(self, section: str, key: str, message: str) -> Problem:
        """Return a problem of a key of a section that was taken, with its line."""
        node = self._taken.get(section)
        return Problem((node and node.child(key)) or node, f"{section}.{key}", message)

    def components(self, kind: str, name: str | None = None) -> dict[str, Any]:
        """Return the components of a section that has a name for each, and look at nothing else.

        Args:
            kind: of these components.
            name: of the only one to return; None for all.

        Returns:
            The components by name.

        Raises:
            ConfigError: one of them is wrong; has everything that is wrong, with its line.
        """
        the_kind = self._plugins.kind(kind)
        section = the_kind.section if name is None else f"{the_kind.section}.{name}"
        problems = Problems()
        problems.found += [p for p in self._found if f"{p.path}.".startswith(f"{section}.")]
        shaper = self._shaper = self._shaper or Shaper(kind_of(self._plugins))
        builder = Builder(self._root, self._plugins, shaper, problems)
        node = self._root.child(the_kind.section)
        if node is not None and name is None:
            builder.section(the_kind, node)
        elif node is not None and (one := node.child(name or "")) is not None:
            builder.define(kind, section, one)
        if problems.found:
            raise ConfigError(problems.in_order(), self._name)
        register_secrets(builder.entries.values(), shaper)
        names = node.names if node is not None else {}
        entries = {name: builder.entries.get(f"{the_kind.section}.{name}") for name in names}
        return {name: entry.component for name, entry in entries.items() if entry is not None}

    def config(self, changes: Mapping[str, Any] | None = None, within: str = "") -> Config:
        """Return the config, with other values at some paths.

        Args:
            changes: plain values by config path.
            within: the taken section that has these paths as keys; errors name the lines there.

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
        shaper = self._shaper = self._shaper or Shaper(kind_of(self._plugins))
        config = build(root, self._name, self._plugins, self._environment, problems, shaper)
        secrets = secrets_of(config.definitions.values(), shaper)
        for secret in dict.fromkeys(path for path, _ in secrets):
            for path in changes or {}:
                if section is not None and _overlap(path, secret):
                    text = f"{secret} is a secret, which would be stored; it cannot be given here"
                    problems.add(section.child(path) or section, path, text)
        if problems.found:
            raise ConfigError(problems.in_order(), self._name)
        return config


def _overlap(first: str, second: str) -> bool:
    """Return whether one of two config paths is a part of the other."""
    a, b = sorted((first, second), key=len)
    return b == a or b.startswith((f"{a}.", f"{a}["))


def draft(
    path: str | Path,
    overrides: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    block: Iterable[str] = (),
) -> Draft:
    """Read a config file without checking its sections; arguments as for `load`.

    Raises:
        ConfigError: it cannot be read.
    """
    problems = Problems()
    root, plugins, environment = prepared(Path(path), overrides, env, block, None, problems)
    return Draft(root, str(path), plugins, environment, problems.found)
