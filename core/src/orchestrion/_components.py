"""Define how a plugin describes what it supplies."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple


class Component(NamedTuple):
    """A component a plugin supplies under a name.

    Args:
        name: unique within the plugin and kind; what a config's `use` says.
        path: "package.module:Class" of a frozen attrs class; imported only when used. Its module
            is light: heavy libraries are imported inside `open`, or in a module it opens.
        summary: one line, shown by `orchestrion plugins`.
        version: part of cache and journal keys; raise it when results change.
        example: settings that work, for the conformance checks; needed where some are required.
        around: config sections that the checks put around it, e.g. the task an agent needs.
    """

    name: str
    path: str
    summary: str
    version: str = "1"
    example: Mapping[str, Any] = MappingProxyType({})
    around: Mapping[str, Any] = MappingProxyType({})


class Kind(NamedTuple):
    """A kind of component.

    Args:
        name: singular, as in messages.
        section: the config section that defines components of it.
        interface: "module:Protocol", the type that annotates fields to be wired.
        hook: the hook that lists components of it.
        many: whether the section maps names to components, or is one component.
        observes: whether its components listen to a run and change nothing in it: `observe()`
            returns an object that has lifecycle hooks as methods, and so does `observe_served()`,
            if there is one, for a run that is served. They are not part of a config's digest, and
            nothing is wired into them.
    """

    name: str
    section: str
    interface: str
    hook: str = "orchestrion_components"
    many: bool = True
    observes: bool = False


_INTERFACES, _EXECUTORS = "orchestrion._interfaces", "orchestrion._executors"
KINDS = (
    Kind("agent", "agents", f"{_INTERFACES}:Agent", "orchestrion_agents"),
    Kind("model", "models", f"{_INTERFACES}:Model", "orchestrion_models"),
    Kind("task", "task", f"{_INTERFACES}:Task", "orchestrion_tasks", many=False),
    Kind("reward", "reward", f"{_INTERFACES}:RewardFunction", "orchestrion_rewards", many=False),
    Kind("policy", "policy", f"{_INTERFACES}:Policy", "orchestrion_policies", many=False),
    Kind("trainer", "trainer", f"{_INTERFACES}:Trainer", "orchestrion_trainers", many=False),
    Kind("executor", "run.executor", f"{_EXECUTORS}:Executor", "orchestrion_executors", many=False),
)
