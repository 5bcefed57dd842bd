"""What a sweep will do, checked before anything is run."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path

from attrs import evolve, frozen

from orchestrion import JSON, ConfigError, Key
from orchestrion.config import Config, Draft, draft, value_at
from orchestrion_sweep.settings import MOST, Sections, Sweep
from orchestrion_sweep.space import Space, Values, shown

FIXED = {
    "task": "trials would be judged on other problems",
    "seed": "that would pick the luckiest seed; `sweep: {seeds: 3}` tries each trial with three",
    "evaluation": "trials would be judged in different ways",
    "budget": "one budget holds for the whole sweep",
    "run": "it says how runs are carried out",
    "reward": "trials could not be compared by their rewards; `objective: solved` compares them",
}
"""Sections that cannot be searched, and why."""

TRIES = 100
"""Draws of a trial until one is new."""


@frozen
class SweepPlan:
    """A checked sweep."""

    draft: Draft  # the config without the sections of the sweep
    base: Config  # that config as it is
    space: Space  # which values are tried
    settings: Sweep  # how

    @property
    def seeds(self) -> list[int]:
        """Return the training seeds of every trial."""
        return [self.base.seed + i for i in range(self.settings.seeds)]

    @property
    def digest(self) -> str:
        """Return the SHA-256 of all that decides which trials there are and what comes of them."""
        settings = self.settings.plain()
        if self.settings.method != "optuna":  # whose suggestions depend on it
            del settings["parallel"]
        text = json.dumps([self.base.digest, self.space.plain(), settings])
        return hashlib.sha256(text.encode()).hexdigest()

    def best(self, values: Values) -> Config:
        """Return the config with these values."""
        return self.draft.config(dict(values), "search")

    def trial(self, values: Values, seed: int | None = None) -> Config:
        """Return the config of a trial's run: judged on validation, without baselines.

        Raises:
            ConfigError: these values do not fit together.
        """
        return self._evaluation_config("validation", values, seed)

    def test(self, values: Values, seed: int) -> Config:
        """Return the config of the run in which a trial is judged on test."""
        return self._evaluation_config("test", values, seed)

    def _evaluation_config(self, split: str, values: Values, seed: int | None) -> Config:
        evaluation = {"evaluation.split": split, "evaluation.baselines": {}}
        own_seed = {} if seed is None else {"seed": seed}
        return self.draft.config({**values, **evaluation, **own_seed}, "search")

    def draws(self) -> list[Values]:
        """Return the values of all trials of a grid or of random search, the config's own first.

        Of equal configs only the first is tried.

        Raises:
            ConfigError: values of a trial do not fit together.
        """
        trials: list[Values] = [{}]
        digests = {self.trial({}).digest}
        problems: list[str] = []

        def is_new(values: Values) -> bool:
            try:
                digest = self.trial(values).digest
            except ConfigError as error:
                together = ", ".join(f"{path}: {shown(value)}" for path, value in values.items())
                problems.extend(f"{problem} (with {together})" for problem in error.problems)
                return True
            if digest in digests:
                return False
            digests.add(digest)
            return True

        if self.settings.method == "grid":
            trials += [values for values in self.space.grid() if is_new(values)]
        else:
            key = Key(self.base.seed).child("sweep")
            for number in range(1, self.settings.trials or 0):
                tries = (self.space.draw(key.child(number, i)) for i in range(TRIES))
                new = next((values for values in tries if is_new(values)), None)
                if new is None:
                    break  # all there are, or nearly
                trials.append(new)
        if problems:
            raise ConfigError(problems, self.base.source)
        return trials


def read_plan(path: Path, overrides: Sequence[str] = (), block: Sequence[str] = ()) -> SweepPlan:
    """Read a config with its section `search`, and check every value that may be tried.

    Raises:
        ConfigError: everything that is wrong, each with its file and line.
    """
    written = draft(path, overrides, block=block)
    problems: list[str] = []
    sections = None
    try:
        sections = written.take(Sections)
    except ConfigError as error:
        problems += error.problems
    base = None
    try:
        base = written.config()
    except ConfigError as error:
        problems += error.problems
    if sections is not None:
        problems += _misplaced(written, sections)
    space = None
    if sections is not None:
        # With each value the problems of the config itself are found again; they are listed once.
        space, wrong_values = _checked(written, sections)
        problems += wrong_values
    if problems or sections is None or base is None or space is None:
        raise ConfigError(list(dict.fromkeys(problems)), str(path))
    return SweepPlan(written, base, space, sections.sweep)


def _misplaced(written: Draft, sections: Sections) -> list[str]:
    """Return which settings cannot be searched, or not by this method."""
    problems: list[str] = []

    def add(path: str, text: str) -> None:
        problems.append(written.problem("search", path, text))

    for path, dimension in sections.search.items():
        section = path.partition(".")[0].partition("[")[0]
        compared = section == "reward" and "reward" not in sections.sweep.objectives
        if section in FIXED and not compared:
            add(path, f"{section} cannot be searched: {FIXED[section]}")
        for other in sections.search:
            if other.startswith((f"{path}.", f"{path}[")):
                add(other, f"is a part of {path}, which is searched as well; leave one out")
        if sections.sweep.method == "grid" and not dimension.values:
            add(path, "a grid needs values it can list: choice or integers")
    combinations = prod(len(dimension.values) for dimension in sections.search.values())
    if sections.sweep.method == "grid" and combinations > MOST:
        text = f"a grid of {combinations:,} trials; {MOST:,} are the most"
        advice = "search fewer values, or use `method: random`"
        problems.append(written.problem("sweep", "method", f"{text}: {advice}"))
    return problems


def _checked(written: Draft, sections: Sections) -> tuple[Space, list[str]]:
    """Return which values are tried, and what is wrong with single ones, each with its line.

    Paths among them are absolute: the folder of the sweep holds them, too.
    """
    problems: list[str] = []
    dimensions = {}
    for path, dimension in sections.search.items():
        values: list[JSON] = []
        for value in dimension.choice or dimension.range or ():
            try:
                tried = written.config({path: value}, "search")
            except ConfigError as error:
                problems += error.problems
            else:
                values.append(_absolute(value, value_at(tried.resolved(), path)))
        chosen = dimension.choice is not None and len(values) == len(dimension.choice)
        dimensions[path] = evolve(dimension, choice=tuple(values)) if chosen else dimension
    return Space(dimensions), problems


def _absolute(value: JSON, resolved: JSON) -> JSON:
    """Return a value with its paths as the config has them once it is resolved."""
    if isinstance(value, str) and isinstance(resolved, str):
        return resolved if Path(resolved).is_absolute() else value
    if isinstance(value, Mapping) and isinstance(resolved, Mapping):
        return {name: _absolute(item, resolved.get(name)) for name, item in value.items()}
    if (
        isinstance(value, Sequence)
        and isinstance(resolved, Sequence)
        and len(value) == len(resolved)
    ):
        return [_absolute(item, other) for item, other in zip(value, resolved, strict=True)]
    return value
