"""What this distribution supplies."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrion import Component, Kind, hookimpl

HERE = "orchestrion_track"


@hookimpl
def orchestrion_kinds() -> Iterator[Kind]:
    yield Kind("tracker", "trackers", f"{HERE}.interfaces:Tracker", observes=True)


@hookimpl
def orchestrion_components() -> Iterator[tuple[str, Component]]:
    for name, path, summary in (
        ("tensorboard", "tensorboard:TensorBoard", "event files that TensorBoard shows"),
        ("mlflow", "mlflow:MLflow", "a run in MLflow, on a server or in a database file"),
        ("wandb", "wandb:Wandb", "a run in Weights & Biases, online or offline"),
        ("trackio", "trackio:Trackio", "a run in trackio, in its local database or on a server"),
    ):
        yield "tracker", Component(name, f"{HERE}.{path}", summary)
