"""A run in MLflow, written in batches by its client."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from attrs import frozen

from orchestrion_track.interfaces import Backend, Point, RunInfo, Tracker

ENDS = {"completed": "FINISHED", "failed": "FAILED", "running": ""}
"""MLflow's words for how a run ended; other ways are KILLED."""


@frozen
class MLflow(Tracker):
    """A run in MLflow.

    Args:
        uri: of the server or the store, e.g. "http://127.0.0.1:5000" or "sqlite:///mlflow.db". By
            default as MLflow finds it, e.g. in MLFLOW_TRACKING_URI. For credentials set MLflow's
            own variables, such as MLFLOW_TRACKING_TOKEN.
        experiment: its name; made if it does not exist.
        report: whether to keep `config.yaml` and `report.json` with the run at its end.
    """

    uri: str | None = None
    experiment: str = "orchestrion"
    report: bool = False

    needs: ClassVar[tuple[str, ...]] = ("mlflow",)
    extra: ClassVar[str] = "orchestrion-track[mlflow]"

    def connect(self, run: RunInfo, known: str | None, sent: int) -> Backend:
        from mlflow.tracking import MlflowClient

        client: Any = MlflowClient(self.uri)
        if known is not None:
            client.update_run(known, status="RUNNING")
            return _MLflowRun(client, known)
        known_experiment = client.get_experiment_by_name(self.experiment)
        if known_experiment is None:
            number = client.create_experiment(self.experiment)
        else:
            number = known_experiment.experiment_id
        backend = _MLflowRun(client, client.create_run(number, run_name=run.name).info.run_id)
        backend.describe(run)
        return backend


class _MLflowRun:
    def __init__(self, client: Any, id: str) -> None:
        self._client, self.id = client, id
        self.held: int | None = 0
        # Every iteration has the first of these metrics, and the results have the second.
        for name in ("episodes", "spend/calls"):
            history = client.get_metric_history(id, name)
            self.held = max([self.held, *(metric.step + 1 for metric in history)])

    def describe(self, run: RunInfo) -> None:
        """Write the config as parameters."""
        from mlflow.entities import Param

        params = [Param(_key(name), str(value)[:6000]) for name, value in run.config.items()]
        for part in _parts(params, 100):
            self._client.log_batch(self.id, params=part)

    def log(self, points: Sequence[Point]) -> None:
        from mlflow.entities import Metric

        metrics: list[Any] = []
        for point in points:
            step = [
                Metric(_key(name), value, round(point.at * 1000), point.step)
                for name, value in point.values.items()
            ]
            # What belongs to a step is written at once, or it would be taken for complete.
            if metrics and len(metrics) + len(step) > 1000:
                self._write(metrics)
                metrics = []
            metrics += step
        self._write(metrics)

    def _write(self, metrics: list[Any]) -> None:
        # One step may have more than MLflow takes at a time: those that mark it come last.
        metrics.sort(key=lambda metric: (metric.step, metric.key in ("episodes", "spend/calls")))
        for part in _parts(metrics, 1000):
            self._client.log_batch(self.id, metrics=part)

    def attach(self, file: Path) -> None:
        self._client.log_artifact(self.id, str(file))

    def finish(self, status: str) -> None:
        self._client.set_tag(self.id, "orchestrion.status", status)
        if end := ENDS.get(status, "KILLED"):
            self._client.set_terminated(self.id, status=end)


def _key(name: str) -> str:
    """Return a name as MLflow takes it: other characters become their numbers."""
    return re.sub(r"[^\w./ -]", lambda match: f"_{ord(match[0]):x}_", name)[:250]


def _parts(items: Sequence[Any], size: int) -> list[Any]:
    return [items[start : start + size] for start in range(0, len(items), size)]
