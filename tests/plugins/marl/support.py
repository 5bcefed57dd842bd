"""A team of tiny models on the task `lookup`, trained in this process."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attrs import frozen

from orchestrion import Saved
from orchestrion.config import from_data
from orchestrion.runs import RunReader
from tests.plugins.evolution.support import train as run_config

__all__ = ["SIZES", "Trained", "config", "tensors", "train"]

SIZES = {"layers": 1, "width": 16, "heads": 2, "context": 16, "type": "gpt2"}
MODEL = {
    "use": "hf",
    "architecture": SIZES,
    "alphabet": "0123456789abcdefghVSAMyn=",
    "max_tokens": 2,
    "device": "cpu",
}
PROMPTS: dict[str, dict[str, Any]] = {
    "verifier": {
        "prompt": "V{count}{observation}=",
        "choices": ["y", "n"],
        "route": {"y": "answerer", "n": "searcher"},
        "fallback": "y",
    },
    "searcher": {"prompt": "S{observation}=", "choices": list("abcdefgh")},
    "answerer": {"prompt": "A{observation}=", "choices": list("0123456789")},
}


def config(
    models: dict[str, Any] | None = None,
    of: dict[str, str] | None = None,
    trained: list[str] | None = None,
    warm: dict[str, Any] | None = None,
    **marl: Any,
) -> dict[str, Any]:
    """Return a config as data: by default one model for each agent, named by its first letter."""
    names = of or {name: name[0] for name in PROMPTS}
    models = models or {name[0]: MODEL for name in PROMPTS}
    trained = trained or sorted(set(names.values()))
    stages: list[dict[str, Any]] = []
    if warm is not None:
        stages.append({"use": "sft", "models": trained, "teachers": ["teacher"], **warm})
    small = {"iterations": 2, "problems": 3, "group": 4, "optimizer": {"learning_rate": 0.01}}
    stages.append({"use": "marl", "models": trained, **small, **marl})
    return {
        "seed": 3,
        "task": {"use": "lookup", "rounds": 2, "train": 64, "validation": 8, "test": 8},
        # Results may depend on how many threads share a sum.
        "devices": {"cpu": {"use": "torch", "threads": 1}},
        "models": {**models, **({"teacher": {"use": "lookup-teacher"}} if warm else {})},
        "agents": {
            name: {"use": "prompted", "model": names[name], **settings}
            for name, settings in PROMPTS.items()
        },
        "policy": {"use": "follow", "router": "verifier"},
        "reward": {"use": "outcome-minus-cost", "cost_weight": 0.0},
        "trainer": stages,
        "limits": {"turns": 8},
        "evaluation": {"episodes": 2},
    }


@frozen
class Trained:
    """The result of a run: metrics of its iterations, saved state by config path."""

    metrics: list[Mapping[str, float]]
    states: Mapping[str, Saved]


def train(folder: Path, data: dict[str, Any]) -> Trained:
    """Run a config to its end and return the result."""
    with RunReader(run_config(from_data(data), folder)) as run:
        checkpoint = run.usable().checkpoint
        assert checkpoint is not None
        return Trained([iteration.metrics for iteration in run.iterations()], checkpoint.components)


def tensors(run: Trained, path: str) -> dict[str, bytes]:
    """Return the saved arrays of a component, by name."""
    return {name: array.data for name, array in run.states[path].arrays.items()}
