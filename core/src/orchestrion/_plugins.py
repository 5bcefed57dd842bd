"""Load plugins when they are needed, and find the components that they supply.

A plugin that cannot be loaded is unregistered, and the reason is kept. pluggy's own loader would
import everything, stop at the first error, and silently drop the second of two equal names.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from orchestrion._components import KINDS, Component, Kind
from orchestrion._discovery import Plugin, Selection, installed, normal
from orchestrion._errors import PluginError
from orchestrion._importing import importing, own_class, reason_of, resolve
from orchestrion._interrupts import from_outside
from orchestrion._suggest import article, did_you_mean, listed, nearest

if TYPE_CHECKING:
    import pluggy

    from orchestrion._observers import Observers


_CORE_KINDS = {kind.name: kind for kind in KINDS}
_CORE_SECTIONS = ("seed", "limits", "budget", "run", "evaluation", "include")


class Loaded(NamedTuple):
    """A plugin that was imported and registered, with what it supplies by kind and name."""

    plugin: Plugin
    namespace: Any
    components: Mapping[str, Mapping[str, Component]]
    kinds: tuple[Kind, ...]
    seconds: float


class Failure(NamedTuple):
    """Why a plugin cannot be used: its state in listings, a sentence, and the exception."""

    state: str
    reason: str
    cause: BaseException | None = None


class Found(NamedTuple):
    """A component and who supplies it."""

    kind: Kind
    component: Component
    plugin: Plugin

    @property
    def qualified(self) -> str:
        """Return the name that no other distribution can supply."""
        return f"{self.plugin.distribution}:{self.component.name}"

    def __str__(self) -> str:
        return f"{self.kind.name} {self.component.name!r} of plugin {self.plugin}"


class Plugins:
    """The plugins of an environment.

    Args:
        block: names of plugins or distributions that are never imported; ORCHESTRION_BLOCK adds
            to them. If ORCHESTRION_PLUGINS is set, only those that it names are imported.
        env: the environment variables; those of the process by default.
        path: folders to search instead of `sys.path`.
    """

    def __init__(
        self,
        block: Iterable[str] = (),
        env: Mapping[str, str] | None = None,
        path: Sequence[str] | None = None,
    ) -> None:
        self.block = tuple(block)
        self.selection = Selection.of(self.block, os.environ if env is None else env)
        self.path = None if path is None else tuple(path)
        self._added: dict[Plugin, Any] = {}
        self._results: dict[Plugin, Loaded | Failure] = {}
        self._all_kinds: dict[str, Kind] | None = None

    # ------------------------------------------------------------------ from metadata alone

    @cached_property
    def _indexed(self) -> list[Plugin]:
        return installed(path=self.path)

    @property
    def installed(self) -> tuple[Plugin, ...]:
        """Return every plugin of the environment, whatever its state, without importing any."""
        return tuple(sorted([*self._indexed, *self._added]))

    def notes(self) -> list[str]:
        """Return a warning for each name to be blocked that no installed plugin has."""
        names = {normal(n) for p in self.installed for n in (p.name, p.distribution)}
        return [
            f"warning: --block or run.block names {name!r}, and no such plugin is installed"
            f"{did_you_mean(name, names)}"
            for name in dict.fromkeys(self.block)
            if normal(name) not in names
        ]

    def failure(self, plugin: Plugin) -> Failure | None:
        """Return why a plugin cannot be used, as far as is known without importing it."""
        result = self._results.get(plugin)
        if result is not None:
            return result if isinstance(result, Failure) else None
        if plugin.problem:
            return Failure("broken", plugin.problem)
        if refusal := self.selection.refusal(plugin):
            return Failure("blocked", refusal)
        return None

    def get(self, name: str) -> Plugin:
        """Return the plugin of this name or distribution."""
        wanted = self._named(name)
        if len(wanted) > 1:
            wanted = [p for p in wanted if not self.selection.refusal(p)] or wanted
        if len(wanted) == 1:
            return wanted[0]
        if wanted:
            raise PluginError(
                f"plugin name {name!r} is ambiguous: {listed(str(p) for p in wanted)}; "
                "use the distribution's name"
            )
        raise PluginError(self._missing(name))

    def _missing(self, name: str) -> str:
        names = {n for p in self.installed for n in (p.name, p.distribution)}
        close = did_you_mean(name, names) if names else ", nor any other"
        return f"no plugin called {name!r} is installed{close}"

    def _named(self, name: str) -> list[Plugin]:
        """Return the plugins of a distribution of this name, or else those of this name."""
        wanted = normal(name)
        of_distribution = [p for p in self.installed if normal(p.distribution) == wanted]
        return of_distribution or [p for p in self.installed if normal(p.name) == wanted]

    # ------------------------------------------------------------------ loading

    @cached_property
    def _manager(self) -> pluggy.PluginManager:
        import pluggy

        from orchestrion import _hookspecs as hookspecs

        manager = pluggy.PluginManager("orchestrion")
        manager.add_hookspecs(hookspecs)
        return manager

    def register(self, namespace: Any, name: str) -> Loaded:
        """Add any object with hooks as a plugin, e.g. in a test."""
        plugin = Plugin(name, name, "", "")
        if self._named(name):
            raise PluginError(f"plugin name {name!r} is taken by {self._named(name)[0]}")
        self._added[plugin] = namespace
        try:
            return self.load(plugin)
        except PluginError:
            del self._added[plugin]
            raise

    def load(self, plugin: Plugin) -> Loaded:
        """Import and register a plugin, at most once; refuse one that cannot be used."""
        result = self.failure(plugin) or self._results.get(plugin)
        if result is None:
            result = self._results[plugin] = self._try(plugin)
        if isinstance(result, Loaded):
            return result
        raise PluginError(f"plugin {plugin} cannot be used: {result.reason}") from result.cause

    def load_all(self) -> list[Loaded]:
        """Load and return all plugins that can be loaded; `failure` tells why others cannot."""
        loaded = []
        for plugin in self.installed:
            if self.failure(plugin) is None:
                with suppress(PluginError):  # kept, and reported where the plugin is needed
                    loaded.append(self.load(plugin))
        return loaded

    def owner_of_section(self, name: str) -> str:
        """Return the distribution whose command takes a section out of configs; "" if none."""
        from attrs import fields

        for loaded in self.load_all():
            for path in getattr(loaded.namespace, "orchestrion_sections", tuple)():
                with suppress(Exception):  # a plugin's own code, asked for a hint alone
                    if any(field.name == name for field in fields(resolve(path))):
                        return loaded.plugin.distribution
        return ""

    def _try(self, plugin: Plugin) -> Loaded | Failure:
        from orchestrion._hooks import check_api, check_hooks, supplied

        started = time.perf_counter()
        try:
            # What a plugin prints must not get into a JSON document on standard output.
            with importing(f"plugin {plugin}"):
                namespace = self._added.get(plugin) or resolve(plugin.value)
                if problem := check_api(namespace):
                    return Failure("incompatible", problem)
                check_hooks(namespace)
                self._manager.register(namespace, name=_key(plugin))
                components, kinds = supplied(self._manager, namespace)
        # BaseException: a plugin may call sys.exit() while it is imported.
        except BaseException as exc:
            if isinstance(exc, KeyboardInterrupt) and from_outside(exc):
                raise
            if self._manager.has_plugin(_key(plugin)):
                self._manager.unregister(name=_key(plugin))
            return Failure("broken", reason_of(exc), exc)
        return Loaded(plugin, namespace, components, kinds, time.perf_counter() - started)

    # ------------------------------------------------------------------ kinds and components

    def kinds(self) -> Mapping[str, Kind]:
        """Return all kinds by name: those of core, then those of plugins, which it loads."""
        if self._all_kinds is None:
            kinds = dict(_CORE_KINDS)
            sections = [*_CORE_SECTIONS, *(kind.section for kind in KINDS)]
            owners = dict.fromkeys(sections, "core")
            for loaded in self.load_all():
                for kind in loaded.kinds:
                    owner = owners.get(kind.section) or ("core" if kind.name in kinds else None)
                    if owner is not None:
                        reason = f"kind {kind.name!r} or its section is taken by {owner}"
                        self._manager.unregister(name=_key(loaded.plugin))
                        self._results[loaded.plugin] = Failure("broken", reason)
                        break
                else:
                    kinds |= {kind.name: kind for kind in loaded.kinds}
                    owners |= {kind.section: str(loaded.plugin) for kind in loaded.kinds}
            self._all_kinds = kinds
        return self._all_kinds

    def kind(self, name: str) -> Kind:
        """Return a kind by name; load plugins only if core has no such kind."""
        if kind := _CORE_KINDS.get(name) or self.kinds().get(name):
            return kind
        raise PluginError(
            f"there is no kind {name!r}{did_you_mean(name, self.kinds())} "
            f"(kinds: {', '.join(self.kinds())})"
        )

    def components(self, kind: str | None = None) -> list[Found]:
        """Load all plugins and return what they supply, sorted by kind and name."""
        kinds = self.kinds()
        supplied = [
            Found(kinds[kind_name], component, loaded.plugin)
            for loaded in self.load_all()
            for kind_name, components in loaded.components.items()
            if kind_name in kinds and kind in (None, kind_name)
            for component in components.values()
        ]
        order = list(kinds)
        return sorted(
            supplied, key=lambda s: (order.index(s.kind.name), s.component.name, s.plugin)
        )

    def find(self, kind: str, use: str) -> Found:
        """Return the component that "name", "distribution:name" or "plugin:name" names.

        "package.module:Class" is a class of the user's own, which needs no plugin.
        """
        the_kind = self.kind(kind)
        owner, colon, name = use.rpartition(":")
        if colon and self._named(owner):
            return self._find_in(self.get(owner), the_kind, name)
        if colon:
            if own_class(owner, name, the_kind.interface) is not None:
                component = Component(name, use, "a class of your own")
                return Found(the_kind, component, Plugin(owner, owner, "", ""))
            place = f"nor is there a module {owner!r} on sys.path or in the current folder"
            raise PluginError(f"{self._missing(owner)}; {place}")
        matches = [
            Found(the_kind, loaded.components[kind][name], loaded.plugin)
            for loaded in self.load_all()
            if name in loaded.components.get(kind, ())
        ]
        if len(matches) == 1:
            return matches[0]
        if matches:
            choices = " or ".join(repr(match.qualified) for match in matches)
            count = f"{len(matches)} plugins supply {article(kind)} {name!r}"
            raise PluginError(f"{count}: write {choices}")
        raise PluginError(self._why_not(the_kind, name))

    def _find_in(self, plugin: Plugin, kind: Kind, name: str) -> Found:
        components = self.load(plugin).components
        if component := components.get(kind.name, {}).get(name):
            return Found(kind, component, plugin)
        own = components.get(kind.name, {})
        raise PluginError(
            f"plugin {plugin} supplies no {kind.name} {name!r}{did_you_mean(name, own)} "
            + (f"(it supplies: {listed(own)})" if own else f"(it supplies no {kind.name} at all)")
        )

    def _why_not(self, kind: Kind, name: str) -> str:
        """Return why no component has this name, and what to write in its place."""
        everything = self.components()
        kinds_with_name = sorted({f.kind.name for f in everything if f.component.name == name})
        names = {f.component.name for f in everything if f.kind == kind}
        text = f"no installed plugin supplies {article(kind.name)} {name!r}"
        for plugin in self._results:
            if advice := self.removed(plugin, f"{kind.name} {name}"):
                return f"{text}; {advice}"
        if kinds_with_name:
            text += f"; {name!r} is a component of kind {' and '.join(kinds_with_name)}"
        elif close := nearest(name, names):
            text += f"; did you mean {close!r}?"
        text += f" (installed: {listed(names)})" if names else f" (nor any other {kind.name})"
        blocked = []
        for plugin in self.installed:
            failure = self.failure(plugin)
            if failure is not None and failure.state == "blocked":
                blocked.append(plugin.name)
            elif failure is not None:
                text += f"; plugin {plugin} might, but is {failure.state}: {failure.reason}"
        return text + (f"; blocked plugins might: {listed(blocked)}" if blocked else "")

    def removed(self, plugin: Plugin, name: str, value: Any = None) -> str:
        """Return what to write in place of a name that a plugin no longer has, or "".

        The plugin's module says it in `ORCHESTRION_REMOVED`, under "KIND NAME",
        "KIND NAME.SETTING" or "KIND NAME.SETTING=VALUE".
        """
        namespace = getattr(self._results.get(plugin), "namespace", None)
        names: Mapping[str, str] = getattr(namespace, "ORCHESTRION_REMOVED", {})
        return names.get(f"{name}={value}" if isinstance(value, str) else "") or names.get(name, "")

    def component_class(self, found: Found) -> type:
        """Import and return a component's class."""
        try:
            with importing(str(found)):
                cls = resolve(found.component.path)
        except BaseException as exc:
            if isinstance(exc, KeyboardInterrupt) and from_outside(exc):
                raise
            raise PluginError(f"{found} cannot be imported: {reason_of(exc)}") from exc
        if not (isinstance(cls, type) and "__attrs_attrs__" in cls.__dict__):
            raise PluginError(
                f"{found}: {found.component.path} is not an attrs class; write @attrs.frozen above "
                "it, and its fields are its settings"
            )
        return cls

    # ------------------------------------------------------------------ the life of a run

    def observers(
        self, names: Iterable[str], listeners: Iterable[tuple[Plugin, str, object]] = ()
    ) -> Observers:
        """Return the lifecycle hooks of these plugins, in order of name, and then of listeners.

        Messages name a listener by its plugin and its place.
        """
        from orchestrion._observers import Observers

        plugins = sorted({self.get(name) for name in names})
        loaded = [(self.load(plugin).namespace, plugin) for plugin in plugins]
        return Observers(self._manager, loaded, listeners)


def _key(plugin: Plugin) -> str:
    return f"{plugin.distribution}:{plugin.name}"
