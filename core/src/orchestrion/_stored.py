"""The config and the results of a run as its store has them, for those that show them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from orchestrion._comparison import Judged
from orchestrion._report import Report, of_evaluations
from orchestrion._store import RunReader
from orchestrion._store.evaluations import read_evaluation


def stored_config(store: RunReader) -> dict[str, Any]:
    """Return the resolved config of a run as plain data."""
    from ruamel.yaml import YAML

    config: dict[str, Any] = YAML(typ="safe", pure=True).load(store.config_text)
    return config


def stored_report(
    store: RunReader, evaluations: Mapping[str, Mapping[str, Any]] | None = None
) -> Report | None:
    """Return the report on the evaluations that a run has stored; None if it has none.

    Args:
        store: the run.
        evaluations: as `load_evaluations` returns them, for callers that have them already.
    """
    evaluations = store.load_evaluations() if evaluations is None else evaluations
    if not evaluations:
        return None
    config = stored_config(store)
    settings = config["evaluation"]
    return of_evaluations(evaluations, settings["split"], settings["seeds"], config["seed"])


def stored_results(store: RunReader) -> dict[str, Judged]:
    """Return the results of a run to compare with others, by contender, its own team first."""
    report = stored_report(store)
    if report is None:
        return {}
    return _judged(report.as_json(), store.directory.name, stored_config(store)["task"])


def results_of_file(path: Path) -> dict[str, Judged]:
    """Return the results in a file of an evaluation, by contender.

    Raises:
        StoreError: it is none, or is not what was written.
    """
    document = read_evaluation(path)
    return _judged(document["report"], str(path), document.get("task"))


def _judged(report: Mapping[str, Any], title: str, task: Any) -> dict[str, Judged]:
    title, digests = f"{title} ({report['split']})", report.get("digests", {})
    return {
        contender: Judged(title, outcomes, report["seeds"], digests, task)
        for contender, outcomes in report["outcomes"].items()
    }
