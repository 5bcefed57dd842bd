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
HABITS = [{"habit": text} for text in (USELESS, HELPFUL, HARMFUL)]
OF_TRAINER = {"iterations", "every", "problems", "samples", "held_out"}


def improving(improver: Mapping[str, Any], **settings: Any) -> dict[str, Any]:
    """Return the trainer `improve`; settings are its own or the improver's."""
    own = {name: value for name, value in settings.items() if name in OF_TRAINER}
    rest = {name: value for name, value in settings.items() if name not in OF_TRAINER}
    return {
        "use": "improve",
        "iterations": 1,
        "problems": 8,
        "samples": 4,
        "improver": {"model": "coach", **improver, **rest},
        **own,
    }


def config(settings: Mapping[str, Any] | None = None, **parts: Any) -> Config:
    """Return a run of one pupil, right on half of the problems, and a coach with three habits."""
    data = {
        "seed": 1,
        "task": {"use": "practice", "train": 32, "validation": 120, "test": 40},
        "models": {"coach": {"use": "practice-coach", "habits": HABITS}},
        "agents": {"anna": {"use": "pupil", "effects": EFFECTS}},
        "policy": {"use": "sequence", "steps": ["anna"]},
        "reward": {"use": "exact-outcome"},
        "trainer": improving({"use": "behaviours", "pairs": 160}, **(settings or {})),
        **parts,
    }
    return from_data(data)


def checkpoint_of(directory: Path) -> Any:
    """Return the newest checkpoint of a run."""
    with RunReader(directory) as run:
        return run.usable().checkpoint


def state_of(directory: Path, path: str = "trainer.improver") -> Any:
    """Return what a component saved last."""
    return checkpoint_of(directory).components[path].data


def metrics_of(directory: Path) -> list[Metrics]:
    """Return the metrics of every iteration."""
    with RunReader(directory) as run:
        return [iteration.metrics for iteration in run.iterations()]
