"""The report and the diagnosis of a run: what `orchestrion runs show` says, computed once.

Intervals are bootstraps, which take seconds for many problems. They are computed in a thread once
the page that first needs them is on its way, and that page says that they come.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from attrs import define, frozen

from orchestrion.runs import RunReader, diagnose, stored_report
from orchestrion_studio.page import Data

DELAY = 0.4
"""Seconds before the thread starts, so that it does not slow the page being made."""
REST = 20.0
"""While a run trains, results that took s seconds to compute are kept for REST * s seconds."""
RUNS = 64


@frozen
class Assessment:
    """What is known about how good a run is.

    Args:
        report: as `orchestrion runs show --json` has it, without single problems; None if the run
            was not evaluated.
        findings: of the diagnosis.
    """

    report: Data | None
    findings: list[Data]


@define
class _Entry:
    version: object
    evaluated: int
    future: Future[Assessment]
    before: Assessment | None = None
    until: float = 0.0


_lock = threading.Lock()
_known: dict[Path, _Entry] = {}


def assessment_of(reader: RunReader, wait: bool) -> Assessment | None:
    """Return the report and the diagnosis of a run; None while a report is computed.

    While a run trains, the diagnosis may be some iterations old.

    Args:
        reader: the run.
        wait: whether to wait until both are as the run is, however long that takes.
    """
    evaluations = reader.load_evaluations()
    evaluated = hash(str(evaluations))
    version = (reader.created, reader.last_iteration(), evaluated)
    with _lock:
        entry = _known.get(reader.directory)
        if entry is None or (entry.version != version and (wait or _is_due(entry, reader))):
            before = _result(entry) if entry and entry.evaluated == evaluated else None
            entry = _Entry(version, evaluated, Future(), before)
            while len(_known) >= RUNS:
                _known.pop(next(iter(_known)))
            _known[reader.directory] = entry
            work = (reader.directory, evaluations, entry, 0.0 if wait else DELAY)
            threading.Thread(target=_compute, args=work, daemon=True).start()
    if wait:
        return entry.future.result()
    result = _result(entry) if entry.evaluated == evaluated else None
    if result is None and not evaluations:
        return Assessment(None, [])
    return result


def _is_due(entry: _Entry, reader: RunReader) -> bool:
    rested = time.monotonic() >= entry.until or reader.status != "running"
    return entry.future.done() and rested


def _result(entry: _Entry) -> Assessment | None:
    return entry.future.result() if entry.future.done() else entry.before


def _compute(directory: Path, evaluations: Mapping[str, Any], entry: _Entry, delay: float) -> None:
    if delay:
        time.sleep(delay)
        if sys.platform == "linux":  # where threads have priorities: a training comes first
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 10)
    began = time.monotonic()
    try:
        with RunReader(directory) as reader:
            report = stored_report(reader, evaluations)
            findings = [
                {"warning": finding.level > 1, "text": finding.text, "advice": finding.advice}
                for finding in diagnose(reader)
            ]
        end = time.monotonic()
        entry.until = end + REST * (end - began)
        result = Assessment(None if report is None else plain_report(report.as_json()), findings)
        entry.future.set_result(result)
    # Whatever it is, the page that waits shows it.
    except Exception as error:
        entry.future.set_exception(error)


def plain_report(data: Mapping[str, Any]) -> Data:
    """Return a report as pages show it: without single problems."""
    return {
        **{name: data[name] for name in ("split", "problems", "seeds", "verdict", "unit")},
        "contenders": [
            {**row, "passes": {str(k): value for k, value in row["passes"].items()}}
            for row in data["contenders"]
        ],
        "first": data["contenders"][0]["name"],
        "ahead": [{"name": f"minus {name}", **ahead} for name, ahead in data["ahead"].items()],
    }
