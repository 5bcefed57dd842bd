"""Makes a `Config` from a file, or reports everything that is wrong with it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import evolve

from orchestrion._components import KINDS, Kind
from orchestrion._config.components import Builder, Entry, kind_of
from orchestrion._config.environment import expand, read_dotenv, variables
from orchestrion._config.nodes import BROKEN, Node, Problems, at_index, walk
from orchestrion._config.result import Config
from orchestrion._config.sections import (
    AS_UNTRAINED,
    Baseline,
    Budget,
    Evaluation,
    Limits,
    RunSettings,
)
from orchestrion._config.shapes import Scalar, Shaper
from orchestrion._config.sources import override, read_tree, tree_of
from orchestrion._config.structure import FAILED, Structurer
from orchestrion._config.wording import got, named
from orchestrion._errors import ConfigError, PluginError, UsageError
from orchestrion._plugins import Plugins
from orchestrion._secrets import register, register_named
from orchestrion._suggest import article, did_you_mean, listed

__all__ = ["build", "from_data", "load"]

_PLAIN: dict[str, type] = {
    "limits": Limits,
    "budget": Budget,
    "run": RunSettings,
    "evaluation": Evaluation,
}
_REQUIRED = ("task", "agents", "policy")


def load(
    path: str | Path,
    overrides: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    block: Iterable[str] = (),
    plugins: Plugins | None = None,
) -> Config:
    """Read a config file.

    Args:
        path: a YAML file, or a TOML file if its name ends in .toml.
        overrides: `a.b=c` texts, applied in order; values are YAML.
        env: the environment variables; those of the process by default. A `.env` file beside the
            config adds to them.
        block: plugins that are never imported, besides those in `run.block`.
        plugins: used instead of those of the environment; `block` and `run.block` then have no
            effect.

    Raises:
        ConfigError: everything that is wrong, each with its place.
    """
    path = Path(path)
    problems = Problems()
    environment = _environment(path.parent, env, problems)
    root = read_tree(path, environment, problems)
    if root is None:
        raise ConfigError(problems.in_order(), str(path))
    root = override(root, overrides, environment, problems)
    return _finish(root, str(path), environment, env, block, plugins, problems)


def from_data(
    data: Mapping[str, Any],
    overrides: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    block: Iterable[str] = (),
    plugins: Plugins | None = None,
    name: str = "config",
    directory: str | Path = ".",
) -> Config:
    """Read plain data as `load` reads a file; paths in it start at `directory`.

    Raises:
        ConfigError: everything that is wrong.
        UsageError: `data` is no mapping.
    """
    if not isinstance(data, Mapping):
        raise UsageError(
            f"from_data: expected a mapping, got {data!r:.60} ({article(type(data).__name__)}); "
            "orchestrion.config.load reads a file"
        )
    problems = Problems()
    environment = _environment(Path(directory), env, problems)
    try:
        root = tree_of(data, name, Path(directory))
    except ValueError as exc:
        raise ConfigError([str(exc)], name) from None
    expand(root, environment, problems)
    root = override(root, overrides, environment, problems)
    return _finish(root, name, environment, env, block, plugins, problems)


def _environment(
    directory: Path, env: Mapping[str, str] | None, problems: Problems
) -> dict[str, str]:
    process = os.environ if env is None else env
    own = read_dotenv(directory / ".env", problems)
    register_named(own)
    return {**own, **process}


def _finish(
    root: Node,
    name: str,
    environment: Mapping[str, str],
    env: Mapping[str, str] | None,
    block: Iterable[str],
    plugins: Plugins | None,
    problems: Problems,
) -> Config:
    # Also for settings that are not marked secret, for example a field of a request's body.
    register_named({name: environment.get(name, "") for name in variables(root)}, strictly=True)
    if plugins is None:
        plugins = Plugins([*block, *_blocked(root)], env)
    return build(root, name, plugins, environment, problems)


def _blocked(root: Node) -> list[str]:
    """Return `run.block`, unchecked: plugins must be blocked before anything is imported."""
    run = root.child("run")
    names = run.child("block") if run is not None else None
    if names is None or not isinstance(names.value, list):
        return []
    return [node.value for node in names.value if isinstance(node.value, str)]


def build(
    root: Node,
    name: str,
    plugins: Plugins,
    environment: Mapping[str, str],
    problems: Problems | None = None,
    shaper: Shaper | None = None,
) -> Config:
    """Return the config of a tree of nodes.

    Raises:
        ConfigError: everything that is wrong.
    """
    assembly = _Assembly(root, plugins, problems or Problems(), shaper or Shaper(kind_of(plugins)))
    config = assembly.config(name, environment)
    if config is None or assembly.problems.found:
        raise ConfigError(assembly.problems.in_order(), name)
    _register_secrets(config, assembly.shaper)
    return config


def _register_secrets(config: Config, shaper: Shaper) -> None:
    """Register the values of secret settings, so that they are removed from all output."""
    for entry in config.definitions.values():
        for setting in shaper.settings(entry.cls, True):
            if setting.secret:
                value = getattr(entry.component, setting.name)
                for text in _texts(value):
                    register(f"{entry.path}.{setting.key}", text)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, (list, tuple, Mapping)):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from _texts(item)


class _Assembly:
    """Builds one config section by section."""

    def __init__(self, root: Node, plugins: Plugins, problems: Problems, shaper: Shaper) -> None:
        self.root, self.plugins, self.problems, self.shaper = root, plugins, problems, shaper
        self.builder = Builder(root, plugins, shaper, problems)
        self.structurer = Structurer(shaper, problems)
        self.kinds = self._kinds()

    def _kinds(self) -> list[Kind]:
        """Return the kinds with a section here; those of plugins only if a section needs them."""
        known = {"seed", *_PLAIN, *(kind.section for kind in KINDS)}
        kinds = list(KINDS)
        if any(section not in known for section in self.root.value):
            kinds = list(self.plugins.kinds().values())
            known |= {kind.section for kind in kinds}
        for section, node in self.root.value.items():
            if section not in known:
                names = (*known, "include")
                close = did_you_mean(section, names) or f" (known: {listed(names, 20)})"
                self.problems.add(node, section, f"unknown section{close}")
        return kinds

    def config(self, name: str, environment: Mapping[str, str]) -> Config | None:
        """Return the config, or None if a part is missing; `problems` may have entries anyway."""
        for section in _REQUIRED:
            if section not in self.root.value:
                self.problems.add(self.root, "", f"section {section!r} is missing")
        seed = self._seed()
        plain = {section: self._plain(section, cls) for section, cls in _PLAIN.items()}
        stages = self._components()
        self._observers()
        roster = self._roster()
        if self.problems.found:
            return None
        self._unused()
        entries = dict(self.builder.entries)
        if self.problems.found:
            return None
        return Config(
            source=name,
            seed=seed,
            limits=plain["limits"],
            budget=plain["budget"],
            run=plain["run"],
            evaluation=plain["evaluation"],
            task="task",
            policy="policy",
            reward="reward" if "reward" in self.root.value else None,
            stages=stages,
            roster=roster,
            components=_reachable(entries, self._roots(roster, stages)),
            definitions=entries,
            environment=environment,
            plugins=self.plugins,
            tree=self.root,
            raw={path: node.raw for path, node in walk(self.root) if node.raw is not None},
            shaper=self.shaper,
        )

    # ------------------------------------------------------------------ plain sections

    def _seed(self) -> int:
        from msgspec import Meta

        node = self.root.child("seed")
        if node is None:
            return 0
        seed = self.structurer.value(Scalar((Meta(ge=0),), int), node, "seed")
        return 0 if seed is FAILED else int(seed)

    def _plain(self, section: str, cls: type) -> Any:
        node = self.root.child(section)
        if node is None:
            return cls()
        if node.value is BROKEN:
            return FAILED
        if not isinstance(node.value, dict):
            text = f"expected a mapping, got {got(node)}"
            self.problems.add(node, section, text)
            return FAILED
        skip = ("baselines",) if section == "evaluation" else ()
        result = self.structurer.record(cls, node, section, skip)
        if section == "evaluation" and result is not FAILED:
            return evolve(result, baselines=self._baselines(node))
        return result

    def _observers(self) -> None:
        run = self.root.child("run")
        observers = run.child("observers") if run is not None else None
        if observers is None or not isinstance(observers.value, list):
            return
        for index, item in enumerate(observers.value):
            if isinstance(item.value, str):
                try:
                    self.plugins.load(self.plugins.get(item.value))
                except PluginError as exc:
                    text = str(exc) if item.raw is None else f"{named(item)} names no usable plugin"
                    self.problems.add(item, at_index("run.observers", index), text)

    # ------------------------------------------------------------------ components

    def _components(self) -> tuple[str, ...]:
        """Build every section of components; return the paths of the trainers."""
        stages: tuple[str, ...] = ()
        for kind in self.kinds:
            node = self.root.child(kind.section)
            if node is None:
                continue
            if kind.name == "trainer" and isinstance(node.value, list):
                stages = tuple(at_index(kind.section, i) for i in range(len(node.value)))
                for path, child in zip(stages, node.value, strict=True):
                    self.builder.define(kind.name, path, child)
                if not stages:
                    self.problems.add(node, kind.section, "a list of stages needs at least one")
            elif kind.name == "policy":
                self.builder.define(kind.name, kind.section, node, team=True)
            else:
                self.builder.section(kind, node)
                stages = (kind.section,) if kind.name == "trainer" else stages
        return stages

    def _baselines(self, evaluation: Node) -> dict[str, Baseline]:
        node = evaluation.child("baselines")
        if node is None or node.value is BROKEN:
            return {}
        path = "evaluation.baselines"
        named = node.value
        if isinstance(named, list) and named and all(isinstance(word.value, str) for word in named):
            named = {word.value: word for word in named}
        if not isinstance(named, dict):
            text = f"expected a mapping of names, or a list of words, got {got(node)}"
            self.problems.add(node, path, text)
            return {}
        baselines = {
            name: self._baseline(child, f"{path}.{name}", name) for name, child in named.items()
        }
        return {name: baseline for name, baseline in baselines.items() if baseline is not None}

    def _baseline(self, node: Node, path: str, name: str) -> Baseline | None:
        from orchestrion._config.components import NAME
        from orchestrion._report import RESERVED

        if not NAME.fullmatch(name):
            self.problems.add(node, path, f"{name!r} cannot be the name of a baseline")
            return None
        if name in RESERVED:
            text = f"{name!r} is what the report calls {RESERVED[name]}; choose another name"
            self.problems.add(node, path, text)
            return None
        if node.value == AS_UNTRAINED:
            if "trainer" not in self.root.value:
                text = (
                    "there is no trainer, so there is no untrained team to compare with; remove it"
                )
                self.problems.add(node, path, text)
                return None
            return Baseline("policy", word=AS_UNTRAINED)
        word = ""
        if isinstance(node.value, str):
            word, node = node.value, self._spelled_out(node)
        if not isinstance(node.value, dict) or "policy" not in node.value:
            text = (
                f"a baseline is a mapping with a policy, {{policy: {{use: ...}}}}, or a word: "
                f"{AS_UNTRAINED}, a trainer or a policy"
            )
            self.problems.add(node, path, text)
            return None
        for key, child in node.value.items():
            if key not in ("policy", "trainer", "as_configured"):
                close = did_you_mean(key, ("policy", "trainer", "as_configured"))
                self.problems.add(child, f"{path}.{key}", f"unknown key{close}")
        team_path = f"{path}.policy"
        policy = self.builder.define("policy", team_path, node.value["policy"], team=True)
        trainer = node.child("trainer")
        if trainer is not None:
            self.builder.define("trainer", f"{path}.trainer", trainer)
        plain = node.child("as_configured")
        if plain is not None and not isinstance(plain.value, bool):
            text = f"expected true or false, got {got(plain)}"
            self.problems.add(plain, f"{path}.as_configured", text)
        return Baseline(
            team_path,
            f"{path}.trainer" if trainer is not None else None,
            None if policy is None else _paths(policy.agents),
            plain is not None and plain.value is True,
            word,
        )

    def _spelled_out(self, word: Node) -> Node:
        """Return the baseline that a word means: a trainer with its policy, or a policy."""

        def node(value: Any) -> Node:
            return Node(value, word.source, word.line)

        for supplied in self.builder.plugins.components("trainer"):
            trainer = supplied.component
            policy = trainer.around.get("policy", {}).get("use")
            if trainer.name == word.value and policy:
                parts = {"policy": node({"use": node(policy)}), "trainer": node({"use": word})}
                return node(parts)
        return node({"policy": node({"use": word})})

    # ------------------------------------------------------------------ the team

    def _referred(self) -> set[str]:
        return {
            path
            for entry in self.builder.entries.values()
            for paths in entry.refs.values()
            for path in paths
        }

    def _roster(self) -> tuple[str, ...]:
        policy = self.builder.entries.get("policy")
        if policy is not None and policy.agents is not None:
            return _paths(policy.agents) or ()
        referred = self._referred()
        roster = tuple(
            path for name in self.builder.agents() if (path := f"agents.{name}") not in referred
        )
        if not roster and "agents" in self.root.value and not self.problems.found:
            node = self.root.child("agents")
            reason = (
                "every agent is part of another" if self.builder.agents() else "no agent is defined"
            )
            self.problems.add(node, "agents", f"the team is empty: {reason}")
        return roster

    def _unused(self) -> None:
        """Report definitions that nothing refers to, except agents."""
        referred = self._referred()
        for kind in self.kinds:
            node = self.root.child(kind.section)
            if not kind.many or kind.name == "agent" or node is None:
                continue
            for name, child in node.value.items():
                path = f"{kind.section}.{name}"
                if path not in referred:
                    self.problems.add(child, path, "defined, but nothing uses it")

    def _roots(self, roster: Iterable[str], stages: Iterable[str]) -> list[str]:
        single = [kind.section for kind in self.kinds if not kind.many]
        baselines = [p for p in self.builder.entries if p.startswith("evaluation.baselines.")]
        teams = [
            f"agents.{name}"
            for path in baselines
            for name in self.builder.entries[path].agents or ()
        ]
        return [*single, *stages, *baselines, *roster, *teams]


def _paths(names: Iterable[str] | None) -> tuple[str, ...] | None:
    return None if names is None else tuple(f"agents.{name}" for name in names)


def _reachable(entries: Mapping[str, Entry], roots: Iterable[str]) -> dict[str, Entry]:
    """Return the entries that a run needs, in their order."""
    reached: set[str] = set()
    waiting = [path for path in roots if path in entries]
    while waiting:
        path = waiting.pop()
        if path not in reached:
            reached.add(path)
            waiting += [target for targets in entries[path].refs.values() for target in targets]
    return {path: entry for path, entry in entries.items() if path in reached}
