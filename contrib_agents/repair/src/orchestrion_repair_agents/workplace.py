"""What all repair agents do alike: read the task's observation, run trials, report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from orchestrion_repair import Outcome, ProgramTrial, RepairLimits

from orchestrion import JSON, Output, View

NOTHING = Output("There is no program here that I could work on.")
"""The answer to a view that is not of the repair task."""


def work_of(view: View) -> Mapping[str, Any] | None:
    """Return the observation's data if it is of the repair task."""
    data = view.observation.data if view.observation is not None else None
    wanted = ("code", "on", "entry_point", "visible", "limits", "regions", "order", "arguments")
    if isinstance(data, Mapping) and all(name in data for name in wanted):
        return data
    return None


def limits_of(work: Mapping[str, Any]) -> RepairLimits:
    """Return the task's limits on one program."""
    return RepairLimits(**work["limits"])


def trial_of(
    work: Mapping[str, Any],
    code: str,
    order: list[int],
    stop: bool = False,
    lines: bool = False,
) -> ProgramTrial:
    """Return a trial of a program on visible tests, in the given order."""
    cases = tuple(work["visible"][index] for index in order)
    return ProgramTrial(code, work["entry_point"], cases, work.get("prelude", ""), stop, lines)


def outcome_json(outcome: Outcome) -> dict[str, JSON]:
    """Return an outcome as agents report it."""
    asserted = {"want": outcome.want[0]} if outcome.want else {}
    return {
        **asserted,
        "passed": outcome.passed,
        "error": outcome.error,
        "line": outcome.line,
        "got": outcome.got,
        "lines": list(outcome.lines),
    }


def content_of(work: Mapping[str, Any]) -> list[JSON]:
    """Return all that decides what a program's tests give."""
    names = ("code", "entry_point", "prelude", "visible", "limits", "arguments")
    return [work.get(name) for name in names]
