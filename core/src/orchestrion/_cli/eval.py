"""`orchestrion eval`: judge a run's policy, or a config's, on a split."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from orchestrion._cli.common import (
    answer,
    block_option,
    emit,
    failure_lines,
    json_option,
    note,
    override_option,
)
from orchestrion._cli.looping import in_loop
from orchestrion._errors import StoreError

if TYPE_CHECKING:
    from orchestrion._records import Split


@click.command("eval")
@click.argument("target", metavar="RUN|CONFIG")
@override_option
@block_option
@click.option(
    "--split",
    type=click.Choice(["train", "validation", "test"]),
    help="The problems to judge on; default: the config's evaluation.split.",
)
@click.option(
    "--episodes", type=click.IntRange(1), help="How many problems; default: as in the config."
)
@click.option("--seeds", type=click.IntRange(1), help="Tries a problem; default: as in the config.")
@click.option("--no-baselines", is_flag=True, help="Leave the run's baselines out.")
@click.option("--problems", is_flag=True, help="Print what came of each problem as well.")
@json_option
def command(
    target: str,
    overrides: tuple[str, ...],
    block: tuple[str, ...],
    split: Split | None,
    episodes: int | None,
    seeds: int | None,
    no_baselines: bool,
    problems: bool,
    as_json: bool,
) -> None:
    """Evaluate RUN (a folder or its name), or CONFIG as it is, without training.

    With -o the same policy is tried elsewhere, e.g. -o task.suite=my-bugs. The run's baselines
    are judged as they were trained. What came of each problem is kept in RUN, under evaluations/;
    `orchestrion runs compare` compares two of those, or two runs.
    """
    from orchestrion._cli.display import diagnosis_lines, problem_lines, report_lines
    from orchestrion._manifest import code_of
    from orchestrion._report import Report
    from orchestrion._store.diagnosis import cut_off
    from orchestrion._store.evaluations import keep_evaluation
    from orchestrion._trained import Trained, open_run

    async def judge() -> tuple[Report, Trained]:
        async with open_run(target, overrides, block) as trained:
            note(*trained.notes, *trained.changes())
            return await trained.evaluate(split, seeds, episodes, not no_baselines), trained

    report, trained = in_loop(judge())
    document = {
        "target": target,
        "overrides": list(overrides),
        "config": trained.components.initial.resolved(),
        "code": code_of(trained.components.initial),
        "report": report.as_json(),
        "failures": trained.failures,
    }
    if as_json:
        emit(document)
    else:
        findings = cut_off(report.outcomes[report.contenders[0].name])
        answer(*report_lines(report), *diagnosis_lines([*findings]))
        answer(*(["", *problem_lines(report.outcomes)] if problems else ()))
    if trained.directory is not None:
        try:
            note(f"kept: {keep_evaluation(trained.directory, document)}")
        except StoreError as error:  # a run may be read where nothing can be written
            note(f"not kept: {error}")
    note(*failure_lines(trained.failures))
