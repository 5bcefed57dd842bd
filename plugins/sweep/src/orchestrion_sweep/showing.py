"""What came of a sweep, as a table and as plain data."""

from __future__ import annotations

from typing import Any

from attrs import asdict

from orchestrion.cli import table
from orchestrion.runs import Estimate
from orchestrion_sweep.space import shown
from orchestrion_sweep.sweeping import BEST, OnTest, SweepResult
from orchestrion_sweep.trials import FIGURES, Trial, spent_of


def interval(value: Estimate, sign: bool = False, name: str = "") -> str:
    """Return a mean with its interval; costs may be tiny."""
    if not value.count:
        return "-"
    form = ("+" if sign else "") + (".3g" if name == "cost" else ".4f")
    return f"{value.mean:{form}} [{value.low:{form}}, {value.high:{form}}]"


def lines_of(result: SweepResult) -> list[str]:
    """Return the report on a sweep, finished or not."""
    lines = [table(_rows(result)), ""]
    lines += [
        f"trial {trial.number} {trial.status}: {' '.join(trial.reason.split())}"
        for trial in result.trials
        if trial.reason
    ]
    if len(result.plan.settings.objectives) > 1 and result.front:
        names = " and ".join(result.plan.settings.objectives)
        numbers = ", ".join(str(trial.number) for trial in result.front)
        lines.append(f"best in {names} together, none beats the other: trials {numbers}")
    if result.best is not None:
        lines += _of_winner(result, result.best)
    if result.best is not None and result.test is not None:
        lines += _of_test(result.test, result.best.number)
    spend = result.spend
    lines.append(
        f"all runs took {spend.calls:,} calls, {spend.tokens:,} tokens, {spend.usd:,.4f} US dollars"
    )
    return lines


def _rows(result: SweepResult) -> list[list[str]]:
    paths = list(result.plan.space.dimensions)
    main = result.plan.settings.objectives[0]
    others = [name for name in FIGURES if name != main]
    paid = ["US dollars"] if result.spend.usd else []
    head = ["trial", *paths, f"validation {main}", *others, *paid, "status"]
    rows = [head]
    for trial in result.trials:
        figures = {name: trial.figure(result.plan, name) for name in FIGURES}
        rows.append(
            [
                f"{trial.number}{' *' if trial is result.best else ''}",
                *(shown(trial.values[path]) if path in trial.values else "=" for path in paths),
                interval(figures[main], name=main),
                *(f"{figures[name].mean:.4g}" if trial.rows else "-" for name in others),
                *(f"{spent_of(trial).usd:.4f}" for _ in paid),
                trial.status,
            ]
        )
    return rows


def _of_winner(result: SweepResult, winner: Trial) -> list[str]:
    count = sum(bool(trial.rows) for trial in result.trials)
    name = result.plan.settings.objectives[0]
    values = ", ".join(f"{path} {shown(value)}" for path, value in winner.values.items())
    return [
        f"* the best of {count} by validation {name}: {values or 'the config as it is'}",
        f"  its validation figure is the best of {count}, so it is too high",
        f"  written to {result.folder / BEST}",
    ]


def _of_test(test: OnTest, number: int) -> list[str]:
    head = ["", *FIGURES]
    rows = [head, [f"trial {number}", *(interval(test.best[name], name=name) for name in FIGURES)]]
    if test.ahead is not None and test.as_configured is not None:
        own = test.as_configured
        rows.append(["as configured", *(interval(own[name], name=name) for name in FIGURES)])
        rows.append(["difference", *(interval(test.ahead[name], True, name) for name in FIGURES)])
    elif number and test.as_configured is None:
        rows.append(["as configured", "failed", "", ""])
    title = f"on test ({test.problems} problems, judged once; 95 % intervals over problems)"
    return ["", title, table(rows), ""]


def document(result: SweepResult) -> dict[str, Any]:
    """Return the same as plain data."""
    plan, best = result.plan, result.best
    return {
        "sweep": str(result.folder),
        **plan.settings.plain(),
        "search": plan.space.plain(),
        "trials": [_trial(result, trial) for trial in result.trials],
        "best": None if best is None else {"trial": best.number, "values": dict(best.values)},
        "best_config": None if best is None else str(result.folder / BEST),
        "front": [trial.number for trial in result.front],
        "optimistic": "the winner's validation figure is the best of several, so it is too high",
        "test": None if result.test is None else asdict(result.test),
        "spend": {name: getattr(result.spend, name) for name in ("calls", "tokens", "usd")},
    }


def _trial(result: SweepResult, trial: Trial) -> dict[str, Any]:
    figures = {name: trial.figure(result.plan, name) for name in FIGURES}
    return {
        "trial": trial.number,
        "values": dict(trial.values),
        "runs": [folder.name for folder in trial.folders],
        "status": trial.status,
        "reason": trial.reason,
        "spend_usd": spent_of(trial).usd,
        "validation": {n: asdict(v) for n, v in figures.items()} if trial.rows else None,
    }
