"""What `train` and `resume` share: carry a run out, and store how it ended."""

from __future__ import annotations

import re
import shlex
from contextlib import suppress
from pathlib import Path

from orchestrion._cli.common import answer, emit, failure_lines, note
from orchestrion._cli.display import (
    Display,
    diagnosis_lines,
    dollars_text,
    report_lines,
    training_lines,
)
from orchestrion._cli.looping import in_loop
from orchestrion._errors import RunError, StoreError, UsageError
from orchestrion._importing import printing_aside
from orchestrion._observers import Observers
from orchestrion._report import Report
from orchestrion._run import Conduct, status_after
from orchestrion._runlog import run_log
from orchestrion._store import RunStore
from orchestrion._store.diagnosis import WARNING, as_document, diagnose, stopped_at_once
from orchestrion._store.exports import export_run
from orchestrion._store.names import RUNS
from orchestrion._store.reader import RunStatus
from orchestrion._stored import stored_report
from orchestrion.config import Config


def carry_out(
    config: Config, store: RunStore, observers: Observers, verbose: int, as_json: bool
) -> None:
    """Train to the end, and print the report."""
    with (
        Display(bool(verbose), terminal=False if as_json else None) as display,
        run_log(store.directory, display.say, verbose),
    ):
        display.say(f"run: {store.directory}")
        run = Conduct(config, store, display, observers)
        report = _train(run, display)
        for service, seconds in run.calls.waits().items():
            if seconds >= 1:
                display.say(
                    f"calls waited {seconds:.0f} s for the limits of {service}, summed over all "
                    "calls, many of which waited at the same time"
                )
    try:
        if as_json:
            emit(
                {
                    "run": str(store.directory),
                    "status": "completed",
                    "report": report.as_json(),
                    "never_tried": store.never_tried(),
                    "stopped_at_once": stopped_at_once(store.load_evaluations()),
                    **as_document(diagnose(store)),
                    "failures": run.failures,
                }
            )
        else:
            lines = [*report_lines(report), *training_lines(store), ""]
            if dollars := dollars_text(store):
                lines.append(f"spent on: {dollars}")
            answer(*lines, f"run: {store.directory}", *_next_lines(store.directory))
    finally:  # also if standard output is closed
        note(*failure_lines(run.failures))
        _export(store)


def _train(run: Conduct, display: Display) -> Report:
    """Train, note in the store how it ended, and tell the observers."""
    status: RunStatus = "failed"
    go_on = f"go on with: orchestrion resume {run.store.directory}"

    def ended_from_outside(error: str) -> None:
        _note_end(run, "failed" if error else "cancelled", error or "interrupted")
        display.say(go_on)

    try:
        report = in_loop(run.train(), ended_from_outside)
        status = "completed"
        run.store.set_status(status, **run.unbooked())
        return report
    except BaseException as error:
        status = status_after(error)
        reason = "interrupted" if status == "cancelled" else str(error) or type(error).__name__
        _note_end(run, status, reason)
        if run.store.discarded:
            display.say("nothing was run, and the run's folder is removed")
        elif status != "failed":
            cap = re.match(r"budget\.\w+(?=: )", reason)
            raised = f" -o {cap[0]}=N    # N: the new cap" if cap else ""
            for line in [*_evaluated_lines(run), *_warning_lines(run), f"{go_on}{raised}"]:
                display.say(line)
        elif run.begun and isinstance(error, UsageError):
            # The config is wrong, and a run cannot be resumed with another one.
            display.say(
                "this run cannot continue with its config: correct that, and start a new run"
            )
        elif run.begun:
            display.say(f"the run is kept; when the cause is removed, {go_on}")
        raise
    finally:
        if run.begun:
            # An error of an observer must not replace the result or the error of the run.
            try:
                with printing_aside():
                    run.observers.run_finished(run.store.directory, status)
            except RunError as error:
                display.say(f"warning: {error}")


def _evaluated_lines(run: Conduct) -> list[str]:
    """Return the report on what was evaluated before the run ended, if anything was."""
    report = stored_report(run.store)
    if report is None:
        return []
    missing = [name for name in run.config.evaluation.baselines if name not in report.outcomes]
    rest = [f"not evaluated yet: {', '.join(missing)}"] if missing else []
    return ["", *report_lines(report), *rest, ""]


def _warning_lines(run: Conduct) -> list[str]:
    """Return what went wrong in the training of a run that ended early; notes can wait."""
    return diagnosis_lines([f for f in diagnose(run.store) if f.level == WARNING])


def _note_end(run: Conduct, status: RunStatus, detail: str) -> None:
    # A run that was refused or could not be opened keeps the status it had.
    if run.begun or run.store.status == "running":
        # This may fail on a full disk; committed iterations are stored in any case.
        with suppress(StoreError):
            run.store.set_status(status, detail, **run.unbooked())


def _export(store: RunStore) -> None:
    """Write the exports; the run stays completed if that fails."""
    try:
        export_run(store)
    except StoreError as error:
        raise StoreError(
            f"the run is completed, but its exports could not be written: {error}; "
            f"try again with: orchestrion runs export {store.directory}"
        ) from error


def _next_lines(directory: Path) -> list[str]:
    """Return commands to use with a run that has ended."""
    in_runs = directory.parent == RUNS.absolute()
    name = shlex.quote(directory.name if in_runs else str(directory))
    return [
        f"next: orchestrion runs show {name} --problems    # what came of each problem",
        f"      orchestrion eval {name} -o PATH=VALUE    # judge it elsewhere",
        f"      orchestrion run {name} --input TEXT    # use it",
    ]
