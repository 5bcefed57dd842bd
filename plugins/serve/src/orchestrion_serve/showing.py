"""What the log of a served model says, for people and as data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from orchestrion_logged import read

from orchestrion.cli import table
from orchestrion_serve.canary import trials_of


def document_of(folder: Path) -> dict[str, Any]:
    """Return versions with their requests and feedback, steps, and trials.

    Raises:
        UsageError: the log is damaged.
    """
    log = read(folder)
    versions: dict[str, dict[str, Any]] = {}
    for request in log.served.values():
        row = versions.setdefault(
            request.version,
            {"requests": 0, "explored": 0, "failed": 0, "feedback": 0, "score": 0.0},
        )
        row["requests"] += 1
        row["explored"] += request.explored
        row["failed"] += request.status in ("failed", "cancelled")
        if (score := log.feedback.get(request.served)) is not None:
            row["feedback"] += 1
            row["score"] += score.score
    for row in versions.values():
        row["score"] = row["score"] / row["feedback"] if row["feedback"] else None
        row["without_feedback"] = row["requests"] - row["feedback"]
    return {
        "log": str(folder),
        "notes": log.notes,
        "versions": versions,
        "steps": [
            {"step": s.step, "version": s.version, "time": s.time, **s.data} for s in log.steps
        ],
        "trials": [
            {"old": c.old, "new": c.new, "verdict": c.verdict or "open", **c.figures()}
            for c in trials_of(log)
        ],
    }


def lines_of(document: dict[str, Any]) -> list[str]:
    """Return a document as lines."""
    rows = [["version", "requests", "explored", "failed", "feedback", "mean score"]]
    for version, row in document["versions"].items():
        score = "" if row["score"] is None else f"{row['score']:.4f}"
        counts = [str(row[name]) for name in ("requests", "explored", "failed", "feedback")]
        rows.append([version, *counts, score])
    lines = [*document["notes"], table(rows)]
    for step in document["steps"]:
        run = f" ({step['run']})" if step.get("run") else ""
        lines.append(f"{step['step']}: {step['version']}{run}")
    for trial in document["trials"]:
        lines.append(
            f"trial of {trial['new']} beside {trial['old']}: {trial['verdict']}; new - old "
            f"{trial['difference']:+.4f}, at 95 % {trial['low']:+.4f} to {trial['high']:+.4f}, "
            f"{trial['scores_new']} and {trial['scores_old']} scores"
        )
    return lines
