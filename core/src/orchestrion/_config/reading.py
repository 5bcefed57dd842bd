"""Reads files beside a config as strictly as the config: a class, a section, or plain data."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from orchestrion._config.documents import from_plain
from orchestrion._config.loading import Draft
from orchestrion._config.nodes import Node, Problems, Source
from orchestrion._config.shapes import Record, Shaper
from orchestrion._config.sources import read_tree
from orchestrion._config.structure import Structurer
from orchestrion._config.yaml import read_yaml
from orchestrion._errors import ConfigError, UsageError
from orchestrion._plugins import Plugins

T = TypeVar("T")


def read_as(cls: type[T], path: Path, what: str) -> T:
    """Return an object of an attrs class whose fields a YAML file gives.

    Args:
        cls: the class.
        path: the file.
        what: names such a file in errors, e.g. "rubric".

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

    Args:
        cls: the class.
        text: YAML.
        name: names the text in errors.
        folder: relative paths in it start there.

    Raises:
        ConfigError: it is not of this form; has everything that is wrong, with its line.
    """
    problems = Problems()
    node = read_yaml(text, Source(name, folder), problems)
    value: Any = None
    if node is not None and not isinstance(node.value, dict):
        problems.add(node, "", "expected a mapping")
    elif node is not None:
        value = Structurer(Shaper(), problems).value(Record(cls=cls), node, "")
    if problems.found or not isinstance(value, cls):
        raise ConfigError(problems.in_order() or ["expected a mapping"], name)
    return value


def read_section(kind: str, source: Path | Mapping[str, Any]) -> dict[str, Any]:
    """Return the components of a file, or of plain data, that holds one section only.

    Args:
        kind: of the components, e.g. "speaker".
        source: a YAML or TOML file, or what would stand in it.

    Raises:
        UsageError: there is no such file.
        ConfigError: it is not of this form; has everything that is wrong, with its line.
    """
    problems = Problems()
    plugins = Plugins()
    key = plugins.kind(kind).section
    if isinstance(source, Path):
        if not source.is_file():
            raise UsageError(f"{source}: there is no such file")
        root: Node | None = read_tree(source, dict(os.environ), problems)
    else:
        root = from_plain(dict(source), Source(key, Path()))
    name = str(source) if isinstance(source, Path) else key
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
