"""`orchestrion train --smoke`: the same run, made small to see whether it works."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from orchestrion.config import Config

PROBLEMS = 5
"""Problems of each split and in the evaluation, and iterations of each stage."""


def smaller(config: Config) -> tuple[list[str], list[str]]:
    """Return the overrides that make a run small, and lines that explain them.

    Components name their settings for a small run in `smoke`.
    """
    changed: dict[str, tuple[Any, Any]] = {}
    for path, now, small in (
        ("run.problems", config.run.problems, PROBLEMS),
        ("run.iterations", config.run.iterations, PROBLEMS),
        ("evaluation.episodes", config.evaluation.episodes, PROBLEMS),
        ("evaluation.seeds", config.evaluation.seeds, 1),
    ):
        if now is None or now > small:
            changed[path] = (now, small)
    unchanged = []
    baselines = config.evaluation.baselines
    trainers = {*config.stages, *(baseline.trainer for baseline in baselines.values())}
    for path, entry in config.components.items():
        smoke = getattr(entry.component, "smoke", None)
        if not isinstance(smoke, Mapping):
            unchanged += [path] if path in trainers else []
            continue
        for name, small in smoke.items():
            now = getattr(entry.component, name)
            larger = not _is_number(now) or not _is_number(small) or now > small
            if now != small and larger:
                changed[f"{path}.{name}"] = (now, small)
    lines = ["smoke run: it shows whether the config works; its numbers mean nothing. Reduced:"]
    lines += [f"  {path}: {_text(now)} -> {_text(small)}" for path, (now, small) in changed.items()]
    lines += [f"  {path} names no settings for a smoke run: unchanged" for path in unchanged]
    overrides = [f"{path}={json.dumps(small)}" for path, (_, small) in changed.items()]
    if any(baseline.word for baseline in baselines.values()):
        # A word has no settings to override: replace it by what it stands for.
        written = json.dumps(config.resolved()["evaluation"]["baselines"])
        overrides.insert(0, f"evaluation.baselines={written}")
    return overrides, lines


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _text(value: Any) -> str:
    return "all" if value is None else str(value)
