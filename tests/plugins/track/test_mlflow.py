"""MLflow's own client gives back what the run store holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mlflow", reason="the extra mlflow is not installed")
pytest.importorskip("sqlalchemy", reason="the extra mlflow is not installed")

from mlflow.tracking import MlflowClient
from orchestrion_track.follow import follow, place_of
from orchestrion_track.mlflow import MLflow

from tests.plugins.track.support import Values, killed_and_resumed, sent, stored

pytestmark = pytest.mark.filterwarnings("ignore:The ``noload``")  # a query of MLflow's own


def read(client: Any, id: str) -> Values:
    """Return all metrics of a run; fails if a point is there twice."""
    found: Values = {}
    for name in client.get_run(id).data.metrics:
        for metric in client.get_metric_history(id, name):
            assert (name, metric.step) not in found
            found[name, metric.step] = metric.value
    return found


def test_a_killed_and_resumed_run_is_one_run_and_there_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # files are kept below the current folder
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    trackers = {"lab": {"use": "mlflow", "uri": uri, "report": True, "patience": 120.0}}
    directory = killed_and_resumed(tmp_path / "run", trackers)
    client: Any = MlflowClient(uri)
    experiment = client.get_experiment_by_name("orchestrion")
    [made] = client.search_runs([experiment.experiment_id])
    assert sent(directory) == {"run": made.info.run_id, "sent": 4}
    found = read(client, made.info.run_id)
    assert {key: value for key, value in found.items() if key[1] < 3} == stored(directory)
    assert found["evaluation/learned/solved", 3] == 1.0
    assert (made.info.status, made.data.params["agents.a.use"]) == (
        "FINISHED",
        "orchestrion.testing._stage:KitAgent",
    )
    files = [file.path for file in client.list_artifacts(made.info.run_id)]
    assert files == ["config.yaml", "report.json"]

    # As if the writer had been killed after it wrote, and before it noted that.
    tracker = MLflow(uri=uri, report=True)
    place = place_of(directory, tracker)
    place.write_text(place.read_text().replace('"sent": 4', '"sent": 1'))
    follow(directory, tracker, lambda seconds: True)
    assert read(client, made.info.run_id) == found
