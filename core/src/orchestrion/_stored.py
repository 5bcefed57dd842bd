"""The config and the results of a run as its store has them, for those that show them."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from functools import lru_cache
from pathlib import Path
from typing import Any

from orchestrion._comparison import ComparedResult, differences
from orchestrion._report import Report, of_evaluations, stored_digests
from orchestrion._store import RunReader
from orchestrion._store.evaluations import read_evaluation


def stored_config(store: RunReader) -> dict[str, Any]:
    """Return the resolved config of a run as plain data."""
    return deepcopy(_parsed(store.config_text))


def changed_settings(store: RunReader) -> str:
    """Return in parentheses which settings of a run's config.yaml were changed; "" if none."""
    now = _parsed((store.directory / "config.yaml").read_text("utf-8"))
    paths = [path for path, _, _ in differences(_parsed(store.config_text), now)]
    return f" ({', '.join(paths)})" if paths else ""


@lru_cache(maxsize=32)
def _parsed(text: str) -> dict[str, Any]:
    from ruamel.yaml import YAML

    config: dict[str, Any] = YAML(typ="safe", pure=True).load(text)
    return config


def stored_report(
    store: RunReader, evaluations: Mapping[str, Mapping[str, Any]] | None = None
) -> Report | None:
    """Return the report on the evaluations that a run has stored; None if it has none.

    `evaluations` are for callers that have them already, as `load_evaluations` returns them.
    """
    evaluations = store.load_evaluations() if evaluations is None else evaluations
    if not evaluations:
        return None
    config = stored_config(store)
    settings = config["evaluation"]
    return of_evaluations(evaluations, settings["split"], settings["seeds"], config["seed"])


def stored_results(store: RunReader) -> dict[str, ComparedResult]:
    """Return the results of a run to compare with others, by contender, its own team first."""
    evaluations, config = store.load_evaluations(), stored_config(store)
    settings, digests = config["evaluation"], stored_digests(evaluations)
    code = (store.manifest or {}).get("code", {})
    for event in store.events():
        if event.kind == "code changed":
            code = event.data["code"]
    title, seeds = f"{store.directory.name} ({settings['split']})", settings["seeds"]
    return {
        contender: ComparedResult(title, stored["outcomes"], seeds, digests, config, code)
        for contender, stored in evaluations.items()
    }


def results_of_file(path: Path) -> dict[str, ComparedResult]:
    """Return the results in a file of an evaluation, by contender."""
    document = read_evaluation(path)
    report = document["report"]
    config = document.get("config") or {"task": document.get("task")}
    title, digests = f"{path} ({report['split']})", report.get("digests", {})
    code = document.get("code", {})  # files of earlier versions have none
    return {
        contender: ComparedResult(title, outcomes, report["seeds"], digests, config, code)
        for contender, outcomes in report["outcomes"].items()
    }
