"""The report and the diagnosis of a run: what `orchestrion runs show` says, computed once.

Intervals are bootstraps, which take seconds for many problems. They are computed in a thread once
the page that first needs them is on its way, and that page says that they come.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future
from functools import lru_cache
from pathlib import Path
from typing import Any

from attrs import define, frozen

from orchestrion.runs import RunReader, diagnose, stored_config, stored_report
from orchestrion_studio.page import Data

__all__ = ["Judged", "config_of", "judged"]

DELAY = 0.4
"""Seconds after which a thread begins, as it slows the page that is being made."""
RUNS = 64


@frozen
class Judged:
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
    future: Future[Judged]
    before: Judged | None = None


_lock = threading.Lock()
_known: dict[Path, _Entry] = {}


def judged(reader: RunReader, wait: bool) -> Judged | None:
    """Return the report and the diagnosis of a run; None while a report is computed.

    While a run trains, the diagnosis may be a few iterations old.

    Args:
        reader: the run.
        wait: whether to wait until both are as the run is, however long that takes.
    """
    evaluations = reader.load_evaluations()
    evaluated = hash(str(evaluations))
    version = (reader.created, reader.last_iteration(), evaluated)
    with _lock:
        entry = _known.get(reader.directory)
        if entry is None or (entry.version != version and (wait or entry.future.done())):
            before = _result(entry) if entry and entry.evaluated == evaluated else None
            entry = _Entry(version, evaluated, Future(), before)
            while len(_known) >= RUNS:
                _known.pop(next(iter(_known)))
            _known[reader.directory] = entry
            work = (reader.directory, evaluations, entry.future, 0.0 if wait else DELAY)
            threading.Thread(target=_compute, args=work, daemon=True).start()
    if wait:
        return entry.future.result()
    result = _result(entry) if entry.evaluated == evaluated else None
    if result is None and not evaluations:
        return Judged(None, [])
    return result


def _result(entry: _Entry) -> Judged | None:
    return entry.future.result() if entry.future.done() else entry.before


def _compute(
    directory: Path, evaluations: Mapping[str, Any], future: Future[Judged], delay: float
) -> None:
    try:
        time.sleep(delay)
        with RunReader(directory) as reader:
            report = stored_report(reader, evaluations)
            findings = [
                {"warning": finding.level > 1, "text": finding.text, "advice": finding.advice}
                for finding in diagnose(reader)
            ]
        future.set_result(Judged(None if report is None else _plain(report.as_json()), findings))
    # Whatever it is, the page that waits shows it.
    except Exception as error:
        future.set_exception(error)


def _plain(data: dict[str, Any]) -> Data:
    return {
        **{name: data[name] for name in ("split", "problems", "seeds", "verdict", "unit")},
        "contenders": [
            {**row, "passes": {str(k): value for k, value in row["passes"].items()}}
            for row in data["contenders"]
        ],
        "first": data["contenders"][0]["name"],
        "ahead": [{"name": f"minus {name}", **ahead} for name, ahead in data["ahead"].items()],
    }


def config_of(reader: RunReader) -> dict[str, Any]:
    """Return the resolved config of a run as plain data, not to be changed."""
    return _parsed(reader.config_text)


@lru_cache(maxsize=64)
def _parsed(text: str) -> dict[str, Any]:
    class Text:
        config_text = text

    return stored_config(Text())  # type: ignore[arg-type]
