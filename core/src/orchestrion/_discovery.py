"""List installed plugins from metadata, without importing any.

Each distribution is read alone, so that damaged metadata of one hides no other.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

GROUP = "orchestrion"
COMMANDS = "orchestrion.commands"


class Plugin(NamedTuple):
    """An entry point, a plugin or a plugin's command, with its distribution."""

    name: str
    distribution: str
    version: str
    value: str
    summary: str = ""
    location: str = ""
    problem: str = ""

    @property
    def origin(self) -> str:
        """Return distribution and version, as messages show them."""
        return f"{self.distribution} {self.version}".strip()

    def __str__(self) -> str:
        return f"{self.name!r} ({self.origin})"


@lru_cache(maxsize=4096)
def normal(name: str) -> str:
    """Return the name of a distribution or plugin in the form that comparisons use."""
    return re.sub(r"[-_.]+", "-", name).lower()


def installed(group: str = GROUP, path: Sequence[str] | None = None) -> list[Plugin]:
    """Return all entry points of a group, sorted; `path` replaces `sys.path`."""
    by_distribution: dict[str, list[Plugin]] = {}
    for folder in _folders(sys.path if path is None else path):
        plugins = _read(folder, group)
        if plugins:
            # Of two installations of a distribution, Python imports the first.
            by_distribution.setdefault(normal(plugins[0].distribution), plugins)
    return sorted(plugin for plugins in by_distribution.values() for plugin in plugins)


def _folders(path: Iterable[str]) -> Iterator[str]:
    """Yield the metadata folders on a path.

    Importing `importlib.metadata` would take as long as the rest of `orchestrion --help`.
    """
    for place in dict.fromkeys(path):
        try:
            names = sorted(os.listdir(place or os.curdir))
        except OSError:
            continue
        for name in names:
            if name.endswith((".dist-info", ".egg-info")):
                yield os.path.join(place or os.curdir, name)


def _read(folder: str, group: str) -> list[Plugin]:
    location, file = os.path.split(folder)
    try:
        text = _text(folder, "entry_points.txt")
        points = list(_entry_points(text, group)) if group in text else []
        if not points:
            return []
        name, version, summary = _headers(folder)
    except Exception as exc:
        # Without readable metadata the group is unknown: go by the folder's name.
        name, _, rest = file.partition("-")
        if not name.startswith("orchestrion"):
            return []
        problem = f"its metadata cannot be read: {type(exc).__name__}: {exc}"
        version = rest.removesuffix(".dist-info").removesuffix(".egg-info")
        return [Plugin(normal(name), normal(name), version, "", "", location, problem)]
    return [Plugin(n, name, version, value, summary, location) for n, value in points]


def _text(folder: str, name: str) -> str:
    try:
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            return file.read()
    except (FileNotFoundError, NotADirectoryError):
        return ""


def _entry_points(text: str, group: str) -> Iterator[tuple[str, str]]:
    """Yield the names and values of a group of an entry_points.txt."""
    section = ""
    for line in (raw.strip() for raw in text.splitlines()):
        if line.startswith("["):
            section = line.strip("[]").strip()
        elif section == group and line and not line.startswith(("#", ";")):
            name, _, value = line.partition("=")
            # Extras after the value ("module [extra]") are obsolete.
            yield name.strip(), value.partition("[")[0].strip()


def _headers(folder: str) -> tuple[str, str, str]:
    """Return name, version and summary; parsing METADATA as mail takes five times as long."""
    text = _text(folder, "METADATA") or _text(folder, "PKG-INFO")
    fields = {"name": "", "version": "", "summary": ""}
    for line in text.partition("\n\n")[0].splitlines():
        key, _, value = line.partition(":")
        if key.lower() in fields:
            fields[key.lower()] = value.strip()
    if not fields["name"]:
        raise ValueError("no Name in METADATA")
    return fields["name"], fields["version"], fields["summary"]


class Selection(NamedTuple):
    """Which plugins may be imported, by the names of plugins or distributions."""

    block: frozenset[str] = frozenset()
    allow: frozenset[str] | None = None

    @classmethod
    def of(cls, block: Iterable[str], env: Mapping[str, str]) -> Selection:
        """Return `block` with ORCHESTRION_BLOCK, and ORCHESTRION_PLUGINS as the allow-list."""
        blocked = [*block, *_names(env.get("ORCHESTRION_BLOCK", ""))]
        allow = env.get("ORCHESTRION_PLUGINS")
        return cls(
            frozenset(map(normal, blocked)),
            None if allow is None else frozenset(map(normal, _names(allow))),
        )

    def refusal(self, plugin: Plugin, others: Iterable[str] = ()) -> str:
        """Return why a plugin may not be imported, or ""; `others` are further names of it."""
        names = set(map(normal, (plugin.name, plugin.distribution, *others)))
        if names & self.block:
            return "blocked"
        if self.allow is not None and not names & self.allow:
            return "not in ORCHESTRION_PLUGINS"
        return ""


def commands(selection: Selection) -> tuple[list[Plugin], dict[str, str]]:
    """Return the commands of plugins that may be imported, and why others may not, by name.

    Whoever names a plugin means its commands too: those of the same distribution.
    """
    owned: dict[str, list[str]] = {}
    if selection != Selection():
        for plugin in installed():
            owned.setdefault(plugin.distribution, []).append(plugin.name)
    allowed, refused = [], {}
    for command in installed(COMMANDS):
        if refusal := selection.refusal(command, owned.get(command.distribution, ())):
            refused[command.name] = f"{command.origin} supplies it and is {refusal}"
        else:
            allowed.append(command)
    return allowed, refused


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]
