"""Train on the kit's stage, and reload what was learned, as the checks need it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from orchestrion._engine.calls import CallPath
from orchestrion._engine.checks import merged_metrics
from orchestrion._engine.opening import Opened
from orchestrion._errors import ConfigError, OrchestrionError
from orchestrion._keys import Key
from orchestrion._records import Saved
from orchestrion._session import EngineSession
from orchestrion._store.checkpoint import Checkpoint, decode_checkpoint, encode_checkpoint
from orchestrion.config import Config, from_data
from orchestrion.testing._stage import building

if TYPE_CHECKING:
    from orchestrion._components import Component
    from orchestrion.testing._kit import Subject

__all__ = ["metrics_of", "reloaded", "small", "train", "use_of"]


async def train(parts: Opened, config: Config, count: int, first: int = 0) -> list[Any]:
    """Run iterations `first` to `count`, or the trainer's last; return the metrics of each."""
    path = config.stages[0]
    trainer = parts.runtimes[path]
    reported = []
    for i in range(first, min(count, trainer.iterations)):
        engine = parts.engine(CallPath())
        key = Key(1).child("iteration", i)
        session = EngineSession(engine, f"0/{i}", key, Key(2), build=building(config))
        try:
            reported.append(metrics_of(await trainer.iterate(i, session)))
        finally:
            engine.close()
    return reported


def metrics_of(reported: Any) -> dict[str, float]:
    """Return an iteration's metrics; fail if they are not numbers by name."""
    try:
        return merged_metrics({}, reported, "iterate()")
    except OrchestrionError as error:
        raise AssertionError(str(error)) from None


def reloaded(states: Mapping[str, Saved]) -> Mapping[str, Saved]:
    """Return learned states as a later process reads them from a checkpoint."""
    for path, saved in states.items():
        kind = type(saved).__name__
        assert isinstance(saved, Saved), f"{path}: save() returned a {kind}, not a Saved"
    try:
        chunks = encode_checkpoint(Checkpoint(0, 0, states))
    except (OrchestrionError, TypeError, ValueError, AttributeError) as error:
        raise AssertionError(
            f"what save() returned cannot be written to a checkpoint: {error}; Saved.data is JSON, "
            "Saved.arrays holds Array"
        ) from None
    return decode_checkpoint(b"".join(chunks)).components


def use_of(subject: Subject, candidate: Any) -> dict[str, Any]:
    """Return the settings of another component of the subject's plugin, as in a config."""
    return {"use": f"{subject.found.plugin.distribution}:{candidate.name}", **candidate.example}


def small(subject: Subject, trainer: Component, around: Mapping[str, Any] | None = None) -> Config:
    """Return a config around a component, with its trainer's smoke settings and two iterations."""
    config = subject.config(around=around)
    path = config.stages[0]
    smoke = {**getattr(config.components[path].cls, "smoke", {}), "iterations": 2}
    changes = {key: value for key, value in smoke.items() if key not in trainer.example}
    for keys in (list(changes), [key for key in changes if key != "iterations"]):
        overrides = [f"{path}.{key}={json.dumps(changes[key])}" for key in keys]
        with suppress(ConfigError):
            return from_data(config.resolved(), overrides, plugins=config.plugins)
    return config
