"""Check a plugin's hooks before they are registered, and call those that list components."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from inspect import isroutine
from typing import TYPE_CHECKING, Any

from orchestrion import _hookspecs as hookspecs
from orchestrion._components import KINDS, Component, Kind
from orchestrion._suggest import did_you_mean

if TYPE_CHECKING:
    import pluggy


SPECS = tuple(name for name in vars(hookspecs) if name.startswith("orchestrion_"))
LIFECYCLE = (
    "orchestrion_run_started",
    "orchestrion_turn_finished",
    "orchestrion_episode_finished",
    "orchestrion_iteration_finished",
    "orchestrion_checkpoint_written",
    "orchestrion_run_finished",
)

_COMPONENT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_PATH = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
_SECTION = re.compile(r"[a-z][a-z0-9_-]*")


class HookError(Exception):
    """A plugin's hook is misspelt, unmarked, or supplies something wrong."""


def check_api(namespace: Any) -> str:
    """Return why a plugin's `ORCHESTRION_API`, a version or (first, last), excludes this core."""
    from orchestrion import API_VERSION, __version__

    declared = getattr(namespace, "ORCHESTRION_API", API_VERSION)
    first, last = declared if isinstance(declared, tuple) else (declared, declared)
    if first <= API_VERSION <= last:
        return ""
    versions = f"version {first}" if first == last else f"versions {first} to {last}"
    advice = "upgrade orchestrion" if first > API_VERSION else "upgrade the plugin"
    return (
        f"it is written for plugin API {versions}; orchestrion {__version__} has version "
        f"{API_VERSION}: {advice}"
    )


def check_hooks(namespace: Any) -> None:
    """Refuse functions that look like hooks and would never be called."""
    for name in dir(namespace):
        value = getattr(namespace, name, None)
        options = getattr(value, "orchestrion_impl", None)
        if not isinstance(options, dict):
            options = None
        hook = (options or {}).get("specname") or name
        if options is None and not (isroutine(value) and name.startswith("orchestrion_")):
            continue
        if hook not in SPECS:
            raise HookError(f"there is no hook {hook!r}{did_you_mean(hook, SPECS)}")
        if options is None:
            raise HookError(f"{name} is not marked with @hookimpl, so it would never be called")
        if options.get("wrapper") or options.get("hookwrapper"):
            raise HookError(f"{name} is a hook wrapper; wrappers are not supported")


def supplied(
    manager: pluggy.PluginManager, namespace: Any
) -> tuple[dict[str, dict[str, Component]], tuple[Kind, ...]]:
    """Return the components, by kind and name, and the kinds of a registered plugin."""
    pairs = [
        (kind.name, component)
        for kind in KINDS
        for component in _call(manager, namespace, kind.hook)
    ]
    components: dict[str, dict[str, Component]] = {}
    for kind, component in [*pairs, *_call(manager, namespace, "orchestrion_components")]:
        of_kind = components.setdefault(kind, {})
        if not isinstance(component, Component):
            raise HookError(f"{type(component).__name__} {component!r} is not a Component")
        if not _COMPONENT_NAME.fullmatch(component.name):
            raise HookError(f"{component.name!r} cannot be the name of a component")
        if not _PATH.fullmatch(component.path):
            raise HookError(
                f"the path of {kind} {component.name!r} must be 'package.module:Class', "
                f"not {component.path!r}"
            )
        if component.name in of_kind:
            raise HookError(f"it supplies two components of kind {kind} called {component.name!r}")
        of_kind[component.name] = component
    kinds = tuple(_call(manager, namespace, "orchestrion_kinds"))
    for kind in kinds:
        if not isinstance(kind, Kind):
            raise HookError(f"{type(kind).__name__} {kind!r} is not a Kind")
        if not _SECTION.fullmatch(kind.section) or not _PATH.fullmatch(kind.interface):
            raise HookError(f"kind {kind.name!r} needs a lower-case section and a 'module:Class'")
    return components, kinds


def _call(manager: pluggy.PluginManager, namespace: Any, hook: str) -> Iterator[Any]:
    """Call a hook of this plugin only, and yield what it gives."""
    for implementation in getattr(manager.hook, hook).get_hookimpls():
        if implementation.plugin is namespace:
            result: Any = implementation.function()
            if isinstance(result, (str, Mapping)) or not hasattr(result, "__iter__"):
                raise HookError(f"{hook} must yield or return a list, not {result!r}")
            yield from result
