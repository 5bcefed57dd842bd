"""Small runs of the improvers, on pupils whose right habits are known, without a command line."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from orchestrion.config import Config, from_data
from orchestrion.interfaces import Metrics
from orchestrion.run import Run, manifest
from orchestrion.store import RunReader, RunStore

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


class Silent:
    """Shows nothing, and breaks off after so many iterations."""

    def __init__(self, until: int | None = None) -> None:
        self.until = until

    def stage(self, name: str, iterations: int, done: int) -> None:
        """Nothing."""

    def iteration(self, iteration: int, metrics: Metrics, seconds: float) -> None:
        """Break off, when it is time."""
        if self.until is not None and iteration + 1 >= self.until:
            raise KeyboardInterrupt

    def noted(self, path: str, name: str, text: str) -> None:
        """Nothing."""

    def evaluating(self, name: str, known: bool) -> None:
        """Nothing."""


def train(given: Config, directory: Path, until: int | None = None) -> Path:
    """Train in a run folder, from the start or on from where it was broken off."""
    if (directory / "run.db").exists():
        store = RunStore.open(directory)
    else:
        store = RunStore.create(directory, given.to_yaml(), manifest(given))
    with store:
        try:
            asyncio.run(Run(given, store, Silent(until)).train())
        except KeyboardInterrupt:
            assert until is not None
    return directory


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


def result(directory: Path) -> dict[str, Any]:
    """All that must not depend on how a run was carried out."""
    with RunReader(directory) as run:
        newest = sorted(run.checkpoints.glob("*.safetensors"))[-1]
        return {
            "metrics": [one.metrics for one in run.iterations()],
            "checkpoint": sha256(newest.read_bytes()).hexdigest(),
            "evaluations": run.load_evaluations(),
        }
