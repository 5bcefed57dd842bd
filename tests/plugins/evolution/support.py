"""Small runs of trainer `evolution` on jurors, without the command line."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from orchestrion import Metrics
from orchestrion._run import Conduct
from orchestrion.config import Config, from_data
from orchestrion.runs import Progress, RunReader, RunStore, manifest


class Silent(Progress):
    """Shows nothing, and interrupts a run after some iterations."""

    def __init__(self, until: int | None = None) -> None:
        self.until = until

    def iteration(self, iteration: int, metrics: Metrics, seconds: float) -> None:
        """Interrupt the run if it has done enough iterations."""
        if self.until is not None and iteration + 1 >= self.until:
            raise KeyboardInterrupt


AGENTS: Mapping[str, Any] = {
    "anna": {"use": "juror", "on": {"sums": 0.95, "differences": 0.3}},
    "ben": {"use": "juror", "on": {"sums": 0.3, "differences": 0.95}},
    "eve": {"use": "juror", "accuracy": 0.7, "cost": 3},
    "head": {
        "use": "foreman",
        "cost": 0.1,
        "trusts": {"sums": ["anna"], "differences": ["ben"]},
    },
}


def config(trainer: Mapping[str, Any] | None = None, **parts: Any) -> Config:
    """Return a config over jurors; `head(anna, ben)` is right in .95 of cases, at a cost of 2.1."""
    data = {
        "seed": 3,
        "task": {"use": "jury", "train": 60, "validation": 40, "test": 40},
        "agents": dict(AGENTS),
        "policy": {"use": "dag", "chain": "eve"},
        "reward": {"use": "exact-outcome"},
        "trainer": {
            "use": "evolution",
            "evaluations": 60,
            "batch": 12,
            "population": 12,
            "problems": 20,
            "slots": 3,
            "finalists": 4,
            "fresh": 20,
            "held_out": 20,
            "baselines": ["single"],
            **(trainer or {}),
        },
        **parts,
    }
    return from_data(data)


def train(given: Config, directory: Path, until: int | None = None) -> Path:
    """Train in a run folder, from the start or from where it was interrupted."""
    if (directory / "run.db").exists():
        store = RunStore.open(directory)
    else:
        store = RunStore.create(directory, given.to_yaml(), manifest(given))
    with store:
        try:
            asyncio.run(Conduct(given, store, Silent(until)).train())
        except KeyboardInterrupt:
            assert until is not None
    return directory


def result(directory: Path) -> dict[str, Any]:
    """Return everything that must not depend on how a run was carried out."""
    with RunReader(directory) as run:
        newest = sorted(run.checkpoints.glob("*.safetensors"))[-1]
        return {
            "metrics": [iteration.metrics for iteration in run.iterations()],
            "checkpoint": sha256(newest.read_bytes()).hexdigest(),
            "evaluations": run.load_evaluations(),
        }
