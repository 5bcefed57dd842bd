"""Defines how a plugin describes what it supplies."""

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
        section: the config section that defines components of it; that of executors is a setting
            of `run`.
        interface: "module:Protocol", the type that annotates fields to be wired.
        hook: the hook that lists components of it; kinds of plugins' own use
            `orchestrion_components`, which gives (kind name, component) pairs.
        many: whether the section maps names to components, or is one component.
        observes: whether its components listen to a run and change nothing in it. Each has a method
            `observe()` that returns an object with lifecycle hooks as methods, under the names of
            the hooks. They are not part of a config's digest, and nothing is wired into them. One
            that has `observe_served()` as well listens to a run while it is served: to its
            episodes, from `orchestrion_run_started` to `orchestrion_run_finished`.
    """

    name: str
    section: str
    interface: str
    hook: str = "orchestrion_components"
    many: bool = True
    observes: bool = False


KINDS = (
    Kind("agent", "agents", "orchestrion._interfaces:Agent", "orchestrion_agents"),
    Kind("model", "models", "orchestrion._interfaces:Model", "orchestrion_models"),
    Kind("task", "task", "orchestrion._interfaces:Task", "orchestrion_tasks", many=False),
    Kind(
        "reward", "reward", "orchestrion._interfaces:RewardFunction", "orchestrion_rewards", False
    ),
    Kind("policy", "policy", "orchestrion._interfaces:Policy", "orchestrion_policies", many=False),
    Kind("trainer", "trainer", "orchestrion._interfaces:Trainer", "orchestrion_trainers", False),
    Kind(
        "executor",
        "run.executor",
        "orchestrion._executors:Executor",
        "orchestrion_executors",
        False,
    ),
)
