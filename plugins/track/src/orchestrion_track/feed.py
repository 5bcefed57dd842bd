"""What a run folder has to tell a tracker, as points: the same whether the run is done or not."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from orchestrion.config import flat
from orchestrion.runs import Report, RunReader, stored_config, stored_report
from orchestrion_track.interfaces import Point, RunInfo


class Feed:
    """Reads the points of a run, each once, in order of their steps.

    Args:
        reader: the run.
        sent: points of earlier steps are left out.
    """

    def __init__(self, reader: RunReader, sent: int) -> None:
        self.reader, self.sent = reader, sent
        self._steps = 0
        self._at = reader.created

    def info(self) -> RunInfo:
        """Return what is known of the run from its beginning."""
        directory = self.reader.directory
        return RunInfo(directory.name, directory, dict(flat(stored_config(self.reader))))

    def iterations(self) -> list[Point]:
        """Return the points of iterations that were committed since the last call."""
        points = []
        for iteration in self.reader.iterations(first=self._steps):
            self._at += iteration.seconds
            point = Point(self._steps, self._at, iteration.metrics)
            self._steps += 1
            # A resumed run repeats iterations after its checkpoint, with the same results.
            if point.step >= self.sent:
                points.append(point)
        return points

    def results(self) -> list[Point]:
        """Return the point of a completed run's results; none for another, or if it was sent."""
        if self.reader.status != "completed" or self._steps < self.sent:
            return []
        values = {f"spend/{name}": float(value) for name, value in self._spend().items()}
        report = stored_report(self.reader)
        if report is not None:
            values |= _figures(report)
        at = self.reader.created + self.reader.seconds
        return [Point(self._steps, at, {k: v for k, v in values.items() if not math.isnan(v)})]

    def write_report(self, folder: Path) -> list[Path]:
        """Write `config.yaml` and, if there is one, the report as `report.json`."""
        files = [folder / "config.yaml"]
        files[0].write_text(self.reader.config_text, encoding="utf-8")
        report = stored_report(self.reader)
        if report is not None:
            files.append(folder / "report.json")
            files[1].write_text(json.dumps(report.as_json(), indent=2), encoding="utf-8")
        return files

    def _spend(self) -> dict[str, float]:
        spend = self.reader.spend()
        names = ("calls", "input_tokens", "output_tokens", "usd")
        return {name: getattr(spend, name) for name in names} | {"seconds": self.reader.seconds}


def _figures(report: Report) -> dict[str, float]:
    values: dict[str, float] = {}
    for contender in report.contenders:
        place = f"evaluation/{contender.name}"
        for name in ("solved", "cost", "reward", "turns"):
            values |= _interval(f"{place}/{name}", getattr(contender, name))
        for name in ("limit", "failed", "missing", "trained_on"):
            values[f"{place}/{name}"] = float(getattr(contender, name))
    for name, ahead in report.ahead.items():
        values |= _interval(f"ahead/{name}", ahead)
    return values


def _interval(name: str, value: Any) -> dict[str, float]:
    return {name: value.mean, f"{name}/low": value.low, f"{name}/high": value.high}
