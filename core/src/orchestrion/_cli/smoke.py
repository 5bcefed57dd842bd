"""`orchestrion train --smoke`: the same run, small enough to see whether it works."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from orchestrion._config import Config, Entry

__all__ = ["PROBLEMS", "Changes", "smaller"]

PROBLEMS = 5
"""Of each split, in the evaluation, and iterations of each stage."""


class Changes(NamedTuple):
    """What `smaller` changes, as `-o` takes it, and what it says about that."""

    overrides: list[str]
    told: list[str]


def smaller(config: Config) -> Changes:
    """How a run becomes one of a few problems; components name their own settings in `smoke`."""
    wanted: dict[str, tuple[Any, Any]] = {}
    for path, now, small in (
        ("run.problems", config.run.problems, PROBLEMS),
        ("run.iterations", config.run.iterations, PROBLEMS),
        ("evaluation.episodes", config.evaluation.episodes, PROBLEMS),
        ("evaluation.seeds", config.evaluation.seeds, 1),
    ):
        if now is None or now > small:
            wanted[path] = (now, small)
    silent = []
    trainers = set(_trainers(config))
    for path, entry in config.components.items():
        small_ones = getattr(entry.cls, "smoke", None)
        if isinstance(small_ones, Mapping):
            wanted |= dict(_smaller(path, entry, small_ones))
        elif path in trainers:
            silent.append(path)
    told = ["smoke run: the result says whether it works, and nothing else. Left out:"]
    told += [f"  {path}: {_said(now)} -> {_said(small)}" for path, (now, small) in wanted.items()]
    told += [f"  {path} does not say what a small run of it is: as it is" for path in silent]
    overrides = [f"{path}={json.dumps(small)}" for path, (_, small) in wanted.items()]
    baselines = config.evaluation.baselines
    if any(one.word for one in baselines.values()):
        # A word has no settings to override: it is written out.
        written = json.dumps(config.resolved()["evaluation"]["baselines"])
        overrides.insert(0, f"evaluation.baselines={written}")
    return Changes(overrides, told)


def _trainers(config: Config) -> Iterator[str]:
    yield from config.stages
    for one in config.evaluation.baselines.values():
        if one.trainer is not None:
            yield one.trainer


def _smaller(
    path: str, entry: Entry, small_ones: Mapping[str, Any]
) -> Iterator[tuple[str, tuple[Any, Any]]]:
    for name, small in small_ones.items():
        now = getattr(entry.component, name)
        larger = not _is_number(now) or not _is_number(small) or now > small
        if now != small and larger:
            yield f"{path}.{name}", (now, small)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _said(value: Any) -> str:
    return "all" if value is None else str(value)
