"""Small runs of the improvers, on pupils whose right habits are known, without a command line."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from orchestrion import Metrics
from orchestrion.config import Config, from_data
from orchestrion.runs import RunReader
from tests.plugins.evolution.support import result as result
from tests.plugins.evolution.support import train as train

HELPFUL, HARMFUL, USELESS = "count twice", "answer at once", "be polite"
EFFECTS: Mapping[str, Any] = {HELPFUL: {"any": 0.15}, HARMFUL: {"any": -0.15}}
HABITS = [{"habit": one} for one in (USELESS, HELPFUL, HARMFUL)]


RUN: Mapping[str, Any] = {
    "use": "behaviours",
    "model": "coach",
    "iterations": 1,
    "problems": 8,
    "samples": 4,
    "pairs": 160,
}


def config(
    trainer: Mapping[str, Any] | None = None, use: str | None = None, **parts: Any
) -> Config:
    """One pupil, right on half of the problems, and a coach that proposes three habits."""
    data = {
        "seed": 1,
        "task": {"use": "practice", "train": 32, "validation": 120, "test": 40},
        "models": {"coach": {"use": "practice-coach", "habits": HABITS}},
        "agents": {"anna": {"use": "pupil", "effects": EFFECTS}},
        "policy": {"use": "sequence", "steps": ["anna"]},
        "reward": {"use": "exact-outcome"},
        "trainer": {**RUN, **(trainer or {})} if use is None else {"use": use, **(trainer or {})},
        **parts,
    }
    return from_data(data)


def state_of(directory: Path, path: str = "trainer") -> Any:
    """What a component saved last."""
    with RunReader(directory) as run:
        checkpoint = run.usable().checkpoint
    assert checkpoint is not None
    return checkpoint.components[path].data


def metrics_of(directory: Path) -> list[Metrics]:
    """Of every iteration."""
    with RunReader(directory) as run:
        return [one.metrics for one in run.iterations()]
