"""Builds a `Config` from a tree of nodes, or reports everything that is wrong with it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from attrs import evolve
from msgspec import Meta

from orchestrion._components import KINDS, Kind
from orchestrion._config.components import NAME, Builder, Entry, reached
from orchestrion._config.documents import from_plain
from orchestrion._config.nodes import BROKEN, FAILED, Node, Problems, walk, without_nulls
from orchestrion._config.result import Config
from orchestrion._config.sections import (
    AS_UNTRAINED,
    BASELINE_KEYS,
    EXECUTOR,
    NEEDED,
    PLAIN,
    RESERVED,
    Baseline,
)
from orchestrion._config.shapes import Scalar, Shaper
from orchestrion._config.structure import got, named
from orchestrion._errors import ConfigError, PluginError
from orchestrion._plugins import Plugins
from orchestrion._secrets import register
from orchestrion._suggest import did_you_mean, listed


def build(
    root: Node,
    name: str,
    plugins: Plugins,
    environment: Mapping[str, str],
    problems: Problems,
    shaper: Shaper,
) -> Config:
    """Return the config of a tree of nodes."""
    config = _Assembly(root, plugins, problems, shaper).config(name, environment)
    if config is None or problems.found:
        raise ConfigError(problems.in_order(), name)
    register_secrets(config.definitions.values(), shaper)
    return config


def register_secrets(entries: Iterable[Entry], shaper: Shaper) -> None:
    """Note the values of secret settings, which are hidden in all that is written."""
    for path, text in secrets_of(entries, shaper):
        register(path, text)


def secrets_of(entries: Iterable[Entry], shaper: Shaper) -> Iterator[tuple[str, str]]:
    """Yield the values of all settings that are secrets, each with the setting's path."""
    for entry in entries:
        for setting in shaper.settings(entry.cls, True):
            if setting.secret:
                for text in _texts(getattr(entry.component, setting.name)):
                    yield f"{entry.path}.{setting.name}", text


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
        self.kinds = self._kinds()
        self.root = without_nulls(root)
        self.builder = Builder(self.root, plugins, shaper, problems)

    def _kinds(self) -> list[Kind]:
        """Return the kinds with a section here; those of plugins only if a section needs them."""
        sections = {"seed", *PLAIN, *(kind.section for kind in KINDS)} - {EXECUTOR}
        kinds = list(KINDS)
        if any(section not in sections for section in self.root.value):
            kinds = list(self.plugins.kinds().values())
            sections |= {kind.section for kind in kinds} - {EXECUTOR}
        for section, node in self.root.value.items():
            if section not in sections:
                names = (*sections, "include")
                if owner := self.plugins.owner_of_section(section):
                    close = f" here: it is for the command of {owner}, see `orchestrion --help`"
                else:
                    close = did_you_mean(section, names) or f" (known: {listed(names, 20)})"
                self.problems.add(node, section, f"unknown section{close}")
        return kinds

    def config(self, name: str, environment: Mapping[str, str]) -> Config | None:
        """Return the config, or None if a part is missing; `problems` may have entries anyway."""
        for section in NEEDED:
            if section not in self.root.value:
                self.problems.add(self.root, "", f"section {section!r} is missing")
        seed, node = 0, self.root.child("seed")
        if node is not None:
            seed = self.builder.structurer.value(Scalar(int, limits=(Meta(ge=0),)), node, "seed")
        plain = {section: self._plain(section, cls) for section, cls in PLAIN.items()}
        stages = self._components()
        self._observers()
        entries = self.builder.entries
        referred = {path for entry in entries.values() for path in entry.wires}
        roster = self._roster(referred)
        if not self.problems.found:
            self._report_unused(referred)
        if self.problems.found:
            return None
        needed = reached(entries, self._roots(roster, stages))
        return Config(
            source=name,
            seed=seed,
            **plain,
            task="task",
            policy="policy",
            reward="reward" if "reward" in self.root.value else None,
            stages=stages,
            roster=roster,
            components={path: entry for path, entry in entries.items() if path in needed},
            definitions=dict(entries),
            environment=environment,
            plugins=self.plugins,
            tree=self.root,
            raw={path: node.raw for path, node in walk(self.root) if node.raw is not None},
            shaper=self.shaper,
        )

    # ------------------------------------------------------------------ plain sections

    def _plain(self, section: str, cls: type) -> Any:
        node = self.root.child(section)
        if node is None:
            return cls()
        if not isinstance(node.value, dict):
            if node.value is not BROKEN:
                self.problems.add(node, section, f"expected a mapping, got {got(node)}")
            return FAILED
        if section != "evaluation":
            return self.builder.plain(cls, node, section)
        result = self.builder.plain(cls, node, section, ("baselines",))
        baselines = self._baselines(node.child("baselines"))
        return result if result is FAILED else evolve(result, baselines=baselines)

    def _observers(self) -> None:
        run = self.root.child("run")
        observers = run.child("observers") if run is not None else None
        for path, item in observers.children("run.observers") if observers is not None else ():
            if isinstance(item.value, str):
                try:
                    self.plugins.load(self.plugins.get(item.value))
                except PluginError as exc:
                    text = str(exc) if item.raw is None else f"{named(item)} names no usable plugin"
                    self.problems.add(item, path, text)

    # ------------------------------------------------------------------ components

    def _components(self) -> tuple[str, ...]:
        """Build every section of components; return the paths of the trainers."""
        stages: tuple[str, ...] = ()
        for kind in self.kinds:
            node = self.root.child(kind.section)
            if node is None:
                continue
            if kind.name == "trainer" and isinstance(node.value, list):
                stages = tuple(path for path, _ in node.children(kind.section))
                for path, child in node.children(kind.section):
                    self.builder.define(kind.name, path, child)
                if not stages:
                    self.problems.add(node, kind.section, "a list of stages needs at least one")
            else:
                self.builder.section(kind, node)
                stages = (kind.section,) if kind.name == "trainer" else stages
        return stages

    def _baselines(self, node: Node | None) -> dict[str, Baseline]:
        if node is None or node.value is BROKEN:
            return {}
        names = node.value
        if isinstance(names, list) and all(isinstance(word.value, str) for word in names):
            names = {word.raw or word.value: word for word in names}
        if not isinstance(names, dict):
            text = f"expected a mapping of names, or a list of words, got {got(node)}"
            self.problems.add(node, "evaluation.baselines", text)
            return {}
        baselines = {
            name: self._baseline(child, f"evaluation.baselines.{name}", name)
            for name, child in names.items()
        }
        return {name: baseline for name, baseline in baselines.items() if baseline is not None}

    def _baseline(self, node: Node, path: str, name: str) -> Baseline | None:
        text = ""
        word = node.value if isinstance(node.value, str) else ""
        if not NAME.fullmatch(name):
            text = f"{name!r} cannot be the name of a baseline"
        elif name in RESERVED:
            text = f"{name!r} is what the report calls {RESERVED[name]}; choose another name"
        elif word == AS_UNTRAINED:
            if "trainer" in self.root.value:
                return Baseline("policy", word=AS_UNTRAINED)
            text = "there is no trainer, so there is no untrained team to compare with; remove it"
        else:
            if word:
                node, text = self._spelled_out(node)
            elif "policy" not in node.names:
                text = (
                    "a baseline is a mapping with a policy, {policy: {use: ...}}, or a word: "
                    f"{AS_UNTRAINED}, a trainer or a policy"
                )
        if text:
            self.problems.add(node, path, text)
            return None
        for key, child in node.names.items():
            if key not in BASELINE_KEYS:
                known = f" (known: {', '.join(BASELINE_KEYS)})"
                text = f"unknown key{did_you_mean(key, BASELINE_KEYS) or known}"
                self.problems.add(child, f"{path}.{key}", text)
        policy = self.builder.define("policy", f"{path}.policy", node.names["policy"])
        trainer, plain = node.child("trainer"), node.child("as_configured")
        if trainer is not None:
            self.builder.define("trainer", f"{path}.trainer", trainer)
        as_configured = plain is not None and self.builder.structurer.value(
            Scalar(bool), plain, f"{path}.as_configured"
        )
        return Baseline(
            f"{path}.policy",
            None if trainer is None else f"{path}.trainer",
            None if policy is None else _paths(policy.agents),
            as_configured is True,
            word,
        )

    def _spelled_out(self, word: Node) -> tuple[Node, str]:
        """Return the baseline that a word means, a trainer with its policy or a policy, and "".

        If there is none of this name, return the word itself and what is wrong with it.
        """
        supplied = [candidate.component for candidate in self.plugins.components("trainer")]
        trainers = {c.name: c.around.get("policy", {}).get("use") for c in supplied}
        trainers = {name: policy for name, policy in trainers.items() if policy}
        policies = {candidate.component.name for candidate in self.plugins.components("policy")}
        component: dict[str, Any] = {"use": word.value}
        parts: dict[str, Any] = {"policy": component}
        if word.value in trainers:
            parts = {"policy": {"use": trainers[word.value]}, "trainer": component}
        elif word.value not in policies and ":" not in word.value:
            close = did_you_mean(word.value, {AS_UNTRAINED, *trainers, *policies})
            if close and word.raw is None:  # else the plugins may know more
                return (
                    word,
                    f"no policy, and no trainer with a policy, is called {word.value!r}{close}",
                )
        return from_plain(parts, word.source, word.line), ""

    # ------------------------------------------------------------------ the team

    def _roster(self, referred: Collection[str]) -> tuple[str, ...]:
        policy = self.builder.entries.get("policy")
        if policy is not None and policy.agents is not None:
            return _paths(policy.agents) or ()
        agents = self.builder.agents()
        roster = tuple(path for path in _paths(agents) or () if path not in referred)
        if not roster and "agents" in self.root.value and not self.problems.found:
            reason = "every agent is part of another" if agents else "no agent is defined"
            node = self.root.child("agents")
            self.problems.add(node, "agents", f"the team is empty: {reason}")
        return roster

    def _report_unused(self, referred: Collection[str]) -> None:
        for kind in self.kinds:
            node = self.root.child(kind.section)
            if kind.many and kind.name != "agent" and not kind.observes and node is not None:
                for path, child in node.children(kind.section):
                    if path not in referred:
                        self.problems.add(child, path, "defined, but nothing uses it")

    def _roots(self, roster: Iterable[str], stages: Iterable[str]) -> list[str]:
        single = [kind.section for kind in self.kinds if not kind.many and not kind.observes]
        single.remove(EXECUTOR)  # it is no part of what a run opens, but of how it is run
        baselines = [p for p in self.builder.entries if p.startswith("evaluation.baselines.")]
        teams = [self.builder.entries[path].agents or () for path in baselines]
        agents = [f"agents.{name}" for team in teams for name in team]
        return [*single, *stages, *baselines, *roster, *agents]


def _paths(names: Iterable[str] | None) -> tuple[str, ...] | None:
    return None if names is None else tuple(f"agents.{name}" for name in names)
