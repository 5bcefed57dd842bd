"""`orchestrion sweep`: try settings, choose by validation, judge the winner on test."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from orchestrion import BudgetError, UsageError
from orchestrion.cli import (
    answer,
    block_option,
    emit,
    find_config,
    in_loop,
    json_option,
    note,
    override_option,
)

if TYPE_CHECKING:
    from orchestrion_sweep.plan import SweepPlan
    from orchestrion_sweep.sweeping import SweepResult


@click.command("sweep")
@click.argument("config", required=False, type=click.Path(path_type=Path))
@click.option(
    "--resume",
    "folder",
    metavar="FOLDER",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="Go on with a sweep that was interrupted.",
)
@click.option("--dry-run", is_flag=True, help="Say what would be done and what it costs at most.")
@override_option
@block_option
@json_option
def sweep(
    config: Path | None,
    folder: Path | None,
    dry_run: bool,
    overrides: tuple[str, ...],
    block: tuple[str, ...],
    as_json: bool,
) -> int:
    """Train CONFIG with the values that its section `search` gives, and report on the best.

    Every trial is a run in the sweep's folder; trial 0 is the config as it is. The best by
    validation is judged on test, once, and written to best.yaml. The config's budget is for all
    trials together. Exit code 1 if every trial failed.
    """
    from orchestrion_sweep.plan import read_plan
    from orchestrion_sweep.sweeping import begin

    if folder is not None and (config is not None or dry_run):
        raise UsageError("--resume takes the sweep's folder alone, and no CONFIG or --dry-run")
    path = folder if folder is not None else find_config(config)
    if dry_run:
        plan = read_plan(path, overrides, block)
        _forecast(plan, Path(plan.base.run.directory).expanduser(), as_json)
        return 0
    result = in_loop(begin(path, overrides, block))
    _carry_out(result)
    _show(result, as_json)
    return 0 if result.best is not None else 1


def _forecast(plan: SweepPlan, root: Path, as_json: bool) -> None:
    from orchestrion_sweep.forecasting import forecast_lines

    lines, data = in_loop(forecast_lines(plan, root))
    if as_json:
        emit(data)
        return
    for line in lines:
        click.echo(line)


def _carry_out(result: SweepResult) -> None:
    from orchestrion_sweep.showing import lines_of
    from orchestrion_sweep.sweeping import go_on

    resume = f"go on with: orchestrion sweep --resume {shlex.quote(str(result.folder))}"
    note(f"sweep: {result.folder}")
    try:
        in_loop(go_on(result, note), lambda _: note(resume))
    except BaseException as error:
        if isinstance(error, BudgetError):
            for line in lines_of(result):
                note(line)
        if not isinstance(error, UsageError):
            note(resume)
        raise


def _show(result: SweepResult, as_json: bool) -> None:
    import json

    from orchestrion.runs import write_atomic
    from orchestrion_sweep.showing import document, lines_of
    from orchestrion_sweep.sweeping import REPORT

    data = document(result)
    write_atomic(result.folder / REPORT, [json.dumps(data, indent=2, default=str).encode()])
    if as_json:
        emit(data)
        return
    for line in lines_of(result):
        answer(line)
