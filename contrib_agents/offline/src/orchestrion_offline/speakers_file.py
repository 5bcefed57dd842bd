"""Speakers from a file, outside of a run: `speakers:` as in a config."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from orchestrion import ConfigError, UsageError
from orchestrion.config.components import Builder, kind_of
from orchestrion.config.nodes import Node, Problems
from orchestrion.config.shapes import Shaper
from orchestrion.config.sources import read_tree, tree_of
from orchestrion.plugins import Plugins
from orchestrion_offline.interfaces import Speaker

__all__ = ["SHIPPED", "read_speakers"]

SHIPPED = ("echo", "scripted", "solver", "reviewer", "coder", "coach", "judge", "router")
"""Served where no file says what is."""


def read_speakers(path: Path | None) -> Mapping[str, Speaker]:
    """Speakers by name.

    Args:
        path: a YAML or TOML file with the section `speakers`; None is all that are shipped, as
            they come.

    Raises:
        ConfigError: everything that is wrong with the file.
    """
    problems = Problems()
    if path is None:
        data = {"speakers": {name: {"use": f"orchestrion-offline:{name}"} for name in SHIPPED}}
        root: Node | None = tree_of(data, "speakers", Path())
    else:
        if not path.is_file():
            raise UsageError(f"{path}: there is no such file")
        root = read_tree(path, dict(os.environ), problems)
    name = str(path or "speakers")
    section = root.child("speakers") if root is not None else None
    if root is None or section is None:
        found: list[str] = [*problems.in_order()] or ["section 'speakers' is missing"]
        raise ConfigError(found, name)
    plugins = Plugins()
    builder = Builder(root, plugins, Shaper(kind_of(plugins)), problems)
    builder.section(plugins.kind("speaker"), section)
    for other in root.value:
        if other != "speakers":
            problems.add(root, other, "unknown section: this file holds speakers only")
    if problems.found or not section.value:
        raise ConfigError(problems.in_order() or ["no speaker is defined"], name)
    return {one: builder.entries[f"speakers.{one}"].component for one in section.value}
