"""Holds a config without problems: its sections, its components, and what is derived from them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import field, frozen

from orchestrion._components import KINDS
from orchestrion._config.components import Entry
from orchestrion._config.documents import from_plain
from orchestrion._config.nodes import Node, Problem, Problems, Source, at_key, parse_path, replaced
from orchestrion._config.plain import Dumper
from orchestrion._config.sections import (
    AS_UNTRAINED,
    DECISIVE,
    PLAIN,
    Budget,
    Evaluation,
    Limits,
    RunSettings,
)
from orchestrion._config.shapes import Setting, Shaper
from orchestrion._errors import ConfigError
from orchestrion._records import JSON
from orchestrion._suggest import did_you_mean

if TYPE_CHECKING:
    from orchestrion._discovery import Plugin
    from orchestrion._observers import Observers
    from orchestrion._plugins import Plugins


@frozen
class Config:
    """A config without problems.

    Args:
        source: the file it was read from, as given.
        seed: the root of all randomness of a run.
        limits, budget, run, evaluation: the plain sections.
        task, policy: paths of these components.
        reward: path of the reward function, if there is one.
        stages: paths of the trainers, in order.
        roster: paths of the team's agents, in config order.
        components: what a run opens, by path, each after what is wired into it.
        definitions: all that is defined, also agents that `policy.agents` leaves out.
        environment: the environment variables with those of `.env` added.
        plugins: the plugins it was read with.
    """

    source: str = field(eq=False)
    seed: int
    limits: Limits
    budget: Budget
    run: RunSettings
    evaluation: Evaluation
    task: str
    policy: str
    reward: str | None
    stages: tuple[str, ...]
    roster: tuple[str, ...]
    components: Mapping[str, Entry]
    definitions: Mapping[str, Entry] = field(repr=False)
    environment: Mapping[str, str] = field(repr=False, eq=False)
    plugins: Plugins = field(repr=False, eq=False)
    _tree: Node = field(repr=False, eq=False)
    _raw: Mapping[str, str] = field(repr=False, eq=False)
    _shaper: Shaper = field(repr=False, eq=False)

    def __reduce__(self) -> tuple[Any, ...]:
        # Built again from what was written: values from the environment and secrets go along.
        plugins = self.plugins.block, self.plugins.path
        return _built, (self._tree, self.source, *plugins, dict(self.environment))

    @property
    def plugins_used(self) -> tuple[Plugin, ...]:
        """Return the plugins that supply its components, in the order of their names.

        A class of the user's own comes from none.
        """
        used = {entry.found.plugin for entry in self.components.values()}
        return tuple(sorted(used.intersection(self.plugins.installed)))

    def observers(self, serving: bool = False) -> Observers:
        """Return the lifecycle hooks of the plugins in use, of `run.observers` and of listeners.

        While it serves, a team has those listeners alone that have `observe_served`; see `Kind`.

        Raises:
            OrchestrionError: a listener cannot work, e.g. its library is not installed.
        """
        from orchestrion._guards import calling, place_of

        names = [plugin.distribution for plugin in self.plugins_used]
        listeners = []
        for entry in self.definitions.values():
            if entry.found.kind.observes:
                place = place_of(self, entry.path)
                method = "observe_served" if serving else "observe"
                if serving and not hasattr(entry.component, method):
                    continue
                with calling(place, f"{method}()"):
                    listener = getattr(entry.component, method)()
                    listeners.append((entry.found.plugin, place, listener))
        return self.plugins.observers([] if serving else [*names, *self.run.observers], listeners)

    # ------------------------------------------------------------------ as plain data

    def resolved(self) -> dict[str, Any]:
        """Return the config with every default, as plain data that loads to an equal config.

        Values from the environment stand there as `${env:NAME}`; secrets that the config holds
        itself are masked.
        """
        return self._resolved(Dumper(self._shaper, self._raw))

    def _resolved(self, dumper: Dumper) -> dict[str, Any]:
        data: dict[str, Any] = {"seed": self.seed}
        defined = {path.partition(".")[0].partition("[")[0] for path in self.definitions}
        # Sorted: in which order components were built depends on how the config was written.
        extra = sorted({entry.found.kind.section for entry in self.definitions.values()})
        for section in dict.fromkeys([*(kind.section for kind in KINDS), *extra]):
            if section in defined:
                data[section] = self._section(section, dumper)
        inline = dumper._replace(refer=lambda path: self._component(path, dumper))
        for name, cls in PLAIN.items():
            data[name] = inline.settings(cls, getattr(self, name), name, wired=True)
        data["evaluation"]["baselines"] = self._baselines(dumper)
        return data

    def to_yaml(self) -> str:
        from orchestrion._config.yaml import to_yaml  # slow to import, and workers read none

        return to_yaml(self.resolved())

    @cached_property
    def digest(self) -> str:
        """Return the SHA-256 of all that decides the result: no budget, names, folders or ranks."""
        return self._digest_of(self._decisive())

    def is_unchanged(self, digest: str) -> bool:
        """Return whether this config, as a run's folder has it, is that of a digest.

        The folder has every setting there was when the run began, in the order of that version:
        what it does not have was added by a newer one, with a default that keeps what was before.
        """
        if digest == self.digest:
            return True
        return digest == self._digest_of(_written(self._decisive(), self._tree))

    def _digest_of(self, data: Mapping[str, Any]) -> str:
        import hashlib
        import json

        text = json.dumps([data, self.roster], ensure_ascii=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    def _decisive(self) -> dict[str, Any]:
        data = self._resolved(Dumper(self._shaper, self._raw, decisive=True))
        for entry in self.definitions.values():
            if entry.found.kind.observes:
                data.pop(entry.found.kind.section, None)
        del data["budget"]
        data["run"] = {key: data["run"][key] for key in DECISIVE}
        return data

    def _section(self, section: str, dumper: Dumper) -> Any:
        if section in self.definitions:
            return self._component(section, dumper)
        if f"{section}[0]" in self.definitions:
            return [self._component(path, dumper) for path in self.stages]
        # In the order of the config: it is the order of the roster.
        node = self._tree.names[section]
        return {name: self._component(f"{section}.{name}", dumper) for name in node.names}

    def _component(self, path: str, dumper: Dumper) -> dict[str, Any]:
        entry = self.definitions[path]
        data: dict[str, Any] = {"use": dumper.raw.get(f"{path}.use", entry.use)}
        if entry.agents is not None:
            data["agents"] = list(entry.agents)
        settings = dumper.settings(entry.cls, entry.component, path, entry.given, wired=True)
        by_name = {setting.name: setting for setting in self._shaper.settings(entry.cls, True)}
        for name in entry.refs:
            settings[name] = self._wired(by_name[name], entry, dumper)
        return data | settings

    def _wired(self, setting: Setting, entry: Entry, dumper: Dumper) -> Any:
        """Return a wired setting as it was written, with its inline components resolved."""
        targets = iter(entry.refs[setting.name])

        def written(path: str) -> Any:
            target = next(targets)
            if target == path:
                return self._component(target, dumper)
            return dumper.raw.get(path, target.partition(".")[2] or target)

        value = getattr(entry.component, setting.name)
        path = at_key(entry.path, setting.name)
        return dumper._replace(refer=written).value(setting.shape, value, path)

    def _baselines(self, dumper: Dumper) -> dict[str, Any]:
        return {
            name: AS_UNTRAINED
            if baseline.untrained
            else {
                key: self._component(path, dumper)
                for key, path in (("policy", baseline.policy), ("trainer", baseline.trainer))
                if path is not None
            }
            | ({"as_configured": True} if baseline.as_configured else {})
            for name, baseline in self.evaluation.baselines.items()
        }

    # ------------------------------------------------------------------ overlays

    def with_overlay(self, overlay: Mapping[str, JSON]) -> Config:
        """Return the config with other values of learnable settings, by config path.

        Values are taken as they are: `${env:NAME}` in them is text.

        Raises:
            ConfigError: a path is no learnable setting, or a value does not fit.
        """
        from orchestrion._config.assembly import build

        root = self._tree
        problems = []
        for path, value in overlay.items():
            node = Node(None, Source("overlay", Path.cwd()))
            try:
                node = from_plain(value, node.source)
                self._check_learnable(path)
                root = replaced(root, parse_path(path) or [], node)
            except ValueError as exc:
                problems.append(Problem(node, path, str(exc)))
        if problems:
            raise ConfigError(problems, self.source)
        return build(root, self.source, self.plugins, self.environment, Problems(), self._shaper)

    def learnable(self) -> dict[str, Any]:
        """Return the learnable settings and their present values, by config path."""
        return {
            f"{entry.path}.{setting.name}": getattr(entry.component, setting.name)
            for entry in self.components.values()
            for setting in self._shaper.settings(entry.cls, True)
            if setting.learnable
        }

    def _check_learnable(self, path: str) -> None:
        owners = [owner for owner in self.components if path.startswith(f"{owner}.")]
        if not owners:
            raise ValueError(f"no component there{did_you_mean(path, self.learnable())}")
        entry = self.components[max(owners, key=len)]
        key = path[len(entry.path) + 1 :].partition(".")[0].partition("[")[0]
        settings = {s.name: s for s in self._shaper.settings(entry.cls, True)}
        if key not in settings:
            raise ValueError(f"{entry.use!r} has no setting {key!r}{did_you_mean(key, settings)}")
        if not settings[key].learnable:
            raise ValueError("this setting is not learnable, so an overlay cannot change it")


def _written(data: Any, node: Node) -> Any:
    """Return plain data with the keys of a tree of nodes, in their order there."""
    if isinstance(data, dict) and isinstance(node.value, dict):
        return {k: _written(data[k], part) for k, part in node.value.items() if k in data}
    if isinstance(data, list) and isinstance(node.value, list) and len(data) == len(node.value):
        return [_written(item, part) for item, part in zip(data, node.value, strict=True)]
    return data


def _built(
    root: Node,
    source: str,
    block: tuple[str, ...],
    path: tuple[str, ...] | None,
    environment: Mapping[str, str],
) -> Config:
    """Return the config of a tree of nodes in another process."""
    from orchestrion._config.environment import variables
    from orchestrion._config.loading import Draft
    from orchestrion._plugins import Plugins
    from orchestrion._secrets import register_named

    register_named({name: environment.get(name, "") for name in variables(root)}, strictly=True)
    return Draft(root, source, Plugins(block, path=path), environment).config()
