"""Builds components from `use: name` and their settings, each with the components wired into it."""

from __future__ import annotations

import copy
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from attrs import field, frozen, has

from orchestrion._components import KINDS, Kind
from orchestrion._config.nodes import BROKEN, FAILED, Node, Problems
from orchestrion._config.shapes import Shaper, UnsupportedError, refers
from orchestrion._config.structure import Structurer, got, named
from orchestrion._errors import PluginError
from orchestrion._importing import resolve
from orchestrion._suggest import article, did_you_mean, listed, nearest

if TYPE_CHECKING:
    from orchestrion._plugins import Found, Plugins


NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]*[A-Za-z0-9_-])?")
_MAX_CHAIN = 24


@frozen
class Entry:
    """A component of a config.

    Args:
        path: its place, e.g. "agents.critic" or, inline, "agents.team.members[0]".
        kind: of which kind it is.
        use: the name under `use` in the config.
        found: the plugin that supplies it, and its description there.
        component: the component itself; wired fields hold the components wired in.
        refs: by field, the paths of the components wired in, in order.
        given: the settings that the config gives, by key, before any converter.
        agents: for a policy, the names of the agents in its team if the config gives them.
    """

    path: str
    kind: str
    use: str
    found: Found = field(repr=False)
    component: Any
    refs: Mapping[str, tuple[str, ...]]
    given: Mapping[str, Any] = field(repr=False, eq=False)
    agents: tuple[str, ...] | None = None

    @property
    def cls(self) -> type:
        return type(self.component)

    @property
    def version(self) -> str:
        """Return the version of the component; it is part of cache keys and journal keys."""
        return self.found.component.version

    @property
    def wires(self) -> list[str]:
        """Return the paths of all components wired into it."""
        return [path for paths in self.refs.values() for path in paths]

    def wired(self, runtimes: Mapping[str, Any]) -> Any:
        """Return the component with runtimes in place of the components wired into it.

        Neither validators nor converters run again; the entry's own `component` stays as it is.
        """
        if not self.refs:
            return self.component
        component = copy.copy(self.component)
        for name, paths in self.refs.items():
            value = getattr(self.component, name)
            value = _replaced(value, iter([runtimes[path] for path in paths]))
            object.__setattr__(component, name, value)
        return component


def _replaced(value: Any, runtimes: Iterator[Any]) -> Any:
    """Return a wired field's value with the next runtime for every component in it."""
    if isinstance(value, Mapping):
        return {key: _replaced(item, runtimes) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_replaced(item, runtimes) for item in value)
    return next(runtimes) if has(type(value)) else value


def reached(entries: Mapping[str, Entry], paths: Iterable[str]) -> set[str]:
    """Return these paths, as far as there is something, and those of what is wired into them."""
    waiting = list(paths)
    reached: set[str] = set()
    while waiting:
        path = waiting.pop()
        if path in entries and path not in reached:
            reached.add(path)
            waiting += entries[path].wires
    return reached


def shaper_of(plugins: Plugins) -> Shaper:
    """Return what reads shapes, with the kinds of these plugins for their protocols."""
    names: dict[Any, str] = {}

    def learn(kinds: Iterable[Kind]) -> None:
        for kind in kinds:
            with suppress(Exception):  # a plugin's kind whose interface cannot be imported
                names.setdefault(resolve(kind.interface), kind.name)

    def find(hint: Any) -> str | None:
        if hint not in names and getattr(hint, "_is_protocol", False):
            kinds = plugins.kinds().values()
            # Importing the interfaces of all kinds takes long: first those that are imported.
            learn(kind for kind in kinds if kind.interface.partition(":")[0] in sys.modules)
            if hint not in names:
                learn(kinds)
        return names.get(hint)

    learn(KINDS)
    return Shaper(find)


class Builder:
    """Builds the components of a config; a wired component precedes the one it is wired into."""

    def __init__(self, root: Node, plugins: Plugins, shaper: Shaper, problems: Problems) -> None:
        self.root, self.plugins, self.shaper, self.problems = root, plugins, shaper, problems
        self.structurer = Structurer(shaper, problems, self._refer)
        self.entries: dict[str, Entry] = {}
        self._done: dict[str, Entry | None] = {}
        # Components being built, outermost first, with the references found so far.
        self._open: list[tuple[str, dict[str, list[str]]]] = []

    def section(self, kind: Kind, node: Node) -> None:
        if not kind.many:
            self.define(kind.name, kind.section, node)
            return
        if not isinstance(node.value, dict):
            if node.value is not BROKEN:
                self.problems.add(
                    node, kind.section, f"expected a mapping of names, got {got(node)}"
                )
            return
        for name, child in node.value.items():
            path = f"{kind.section}.{name}"
            before = [other for other in node.value if name.startswith(f"{other}.")]
            if NAME.fullmatch(name) and not before:
                self.define(kind.name, path, child)
                continue
            self._done[path] = None
            text = f"{name!r} cannot be a name: use letters, digits, '-', '_' and '.'"
            if NAME.fullmatch(name):
                text = f"{name!r} reads like a setting of {before[0]!r}; rename one of them"
            self.problems.add(child, path, text)

    def plain(self, cls: type, node: Node, path: str, skip: Collection[str] = ()) -> Any:
        """Return a plain section, with the components that its settings name; or `FAILED`."""
        self._open.append((path, {}))
        try:
            return self.structurer.record(cls, node, path, skip, wired=True)
        finally:
            self._open.pop()

    def define(self, kind: str, path: str, node: Node) -> Entry | None:
        """Build the component at a path, once; return None if it has problems."""
        if path in self._done:
            return self._done[path]
        chain = [open_path for open_path, _ in self._open]
        if path in chain:
            cycle = " -> ".join([*chain[chain.index(path) :], path])
            self.problems.add(node, path, f"refers to itself: {cycle}")
            return None
        if len(chain) >= _MAX_CHAIN:
            self.problems.add(node, path, f"more than {_MAX_CHAIN} components, each in the next")
            return None
        refs: dict[str, list[str]] = {}
        self._open.append((path, refs))
        try:
            entry = self._build(kind, path, node, refs)
        finally:
            self._open.pop()
        self._done[path] = entry
        if entry is not None:
            self.entries[path] = entry
        return entry

    def _build(self, kind: str, path: str, node: Node, refs: dict[str, list[str]]) -> Entry | None:
        # A policy inside another component decides for the team of that component.
        team = kind == "policy" and (path == "policy" or path.startswith("evaluation."))
        agents = self._team(path, node) if team else None
        found = self._find(kind, path, node)
        if found is None:
            return None
        skip = {"use", "agents"} if team else {"use"}
        name = f"{kind} {found.component.name}"
        for key, child in node.value.items():
            if advice := self.plugins.removed(found.plugin, f"{name}.{key}", child.value):
                self.problems.add(child, f"{path}.{key}", advice)
                skip.add(key)
        try:
            cls = self.plugins.component_class(found)
            settings = self.shaper.settings(cls, wired=True)
            if team and any(setting.name == "agents" for setting in settings):
                raise UnsupportedError("a policy cannot have a setting called 'agents'")
            values = self.structurer.settings(cls, node, path, skip, wired=True)
        except PluginError as exc:
            self.problems.add(node, path, str(exc))
            return None
        except UnsupportedError as exc:
            self.problems.add(node, path, f"{found} cannot be configured: {exc}")
            return None
        component = FAILED if values is FAILED else self.structurer.build(cls, values, node, path)
        if component is FAILED:
            return None
        wired = {setting.name for setting in settings if refers(setting.shape)}
        return Entry(
            path=path,
            kind=kind,
            use=str(node.value["use"].value),
            found=found,
            component=component,
            refs={name: tuple(paths) for name, paths in refs.items()},
            given={name: value for name, value in values.items() if name not in wired},
            agents=agents,
        )

    def _find(self, kind: str, path: str, node: Node) -> Found | None:
        """Return the component that `use` names, or None after noting a problem."""
        if node.value is BROKEN:
            return None
        use = node.child("use")
        where, place = path, node
        if not isinstance(node.value, dict):
            bare = isinstance(node.value, str) and node.raw is None
            hint = f"; write {{use: {node.value}}}" if bare else ""
            text = f"expected a mapping, got {got(node)}{hint}"
        elif use is None:
            text = f"'use' is missing: it says which {kind} this is"
            if (typo := nearest("use", node.value)) is not None:
                place, text = node.value[typo], f"{text}; is {typo!r} meant to be 'use'?"
        elif use.value is BROKEN:
            return None
        else:
            where, place = f"{path}.use", use
            text = f"expected the name of {article(kind)}, got {got(use)}"
            if isinstance(use.value, str) and use.value:
                try:
                    return self.plugins.find(kind, use.value)
                except PluginError as exc:
                    # The sentence repeats the name.
                    text = str(exc)
                    if use.raw is not None:
                        text = f"no {kind} is called what {named(use)} says"
        self.problems.add(place, where, text)
        return None

    def agents(self) -> Collection[str]:
        node = self.root.child("agents")
        return node.names if node is not None else {}

    def _team(self, path: str, policy: Node) -> tuple[str, ...] | None:
        """Return the names under `agents` of a policy, or None if it has no `agents`."""
        node = policy.child("agents")
        if node is None or node.value is BROKEN:
            return None
        path = f"{path}.agents"
        if not isinstance(node.value, list) or not node.value:
            text = f"expected a list of names of agents, got {got(node)}"
            self.problems.add(node, path, text)
            return None
        agents = self.agents()
        names: list[str] = []
        for where, item in node.children(path):
            if item.value is BROKEN:
                continue
            if not isinstance(item.value, str):
                self.problems.add(item, where, f"expected a name, got {got(item)}")
            elif item.value not in agents:
                close = did_you_mean(item.value, agents) if item.raw is None else ""
                text = f"no agent is called {named(item)}{close} (defined: {listed(agents)})"
                self.problems.add(item, where, text)
            elif item.value in names:
                self.problems.add(item, where, f"agent {named(item)} is named twice")
            else:
                names.append(item.value)
        return tuple(names)

    def _refer(self, kind: str, node: Node, path: str) -> Any:
        """Build the component that a wired value names, and note the reference."""
        owner, refs = self._open[-1]
        key = re.split(r"[.\[]", path[len(owner) + 1 :], maxsplit=1)[0]
        target, definition = path, node
        if not isinstance(node.value, dict):
            named_component = self._named(self.plugins.kind(kind), node, path)
            if named_component is None:
                return FAILED
            target, definition = named_component
        entry = self.define(kind, target, definition)
        if entry is None:
            return FAILED
        refs.setdefault(key, []).append(target)
        return entry.component

    def _named(self, kind: Kind, node: Node, path: str) -> tuple[str, Node] | None:
        """Return the path and definition of a component, or None after noting a problem."""
        section = self.root.child(kind.section)
        names = section.names if section is not None else {}
        if section is not None and not kind.many and node.value == kind.section:
            return kind.section, section
        if kind.many and node.value in names:
            return f"{kind.section}.{node.value}", names[node.value]
        inline = ""
        if node.raw is None:
            # `improver: gepa` for `improver: {use: gepa}`
            supplied = {
                candidate.component.name for candidate in self.plugins.components(kind.name)
            }
            inline = f"; write {{use: {node.value}}}" if node.value in supplied else ""
        if not kind.many:
            text = (
                f"{article(kind.name)} is named only by {kind.section!r} or given as "
                f"{{use: ...}}, got {named(node)}{inline}"
            )
        else:
            defined = f"defined: {listed(names)}" if names else f"no {kind.section} are defined"
            close = did_you_mean(node.value, names) if node.raw is None else ""
            text = f"no {kind.name} is called {named(node)}{inline or close} ({defined})"
        self.problems.add(node, path, text)
        return None
