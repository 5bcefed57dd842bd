"""`orchestrion runs compare`: two results, problem by problem."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from orchestrion._cli.common import answer, emit, json_option, root_option
from orchestrion._cli.runs_show import report_of
from orchestrion._errors import UsageError

if TYPE_CHECKING:
    from orchestrion._report import Outcomes

__all__ = ["compare_command"]


@click.command("compare")
@click.argument("first", metavar="A")
@click.argument("second", metavar="B")
@root_option
@json_option
def compare_command(first: str, second: str, root: Path, as_json: bool) -> None:
    """Compare two results problem by problem: which one solves what the other does not.

    A and B are runs, whose evaluation at the end of training is meant, or files of evaluations, as
    `orchestrion eval` keeps them or prints them with --json. RUN:NAME or FILE:NAME means another
    contender of the same report, e.g. repair-1:random.
    """
    from orchestrion._cli.display import comparison_lines
    from orchestrion._comparison import compare_outcomes
    from orchestrion._keys import Key

    name_a, outcomes_a, seeds_a = _result(first, root)
    name_b, outcomes_b, seeds_b = _result(second, root)
    comparison = compare_outcomes(
        (name_a, name_b), outcomes_a, outcomes_b, (seeds_a, seeds_b), Key(0).child("compare")
    )
    if as_json:
        emit({"comparison": comparison.as_json()})
    else:
        for line in comparison_lines(comparison):
            answer(line)


def _result(name: str, root: Path) -> tuple[str, Outcomes, int]:
    """Return the title, the outcomes and the tries per problem of what A or B names."""
    try:
        title, contenders, seeds = _results(name, root)
        contender = next(iter(contenders), "")
    except UsageError:
        target, colon, contender = name.rpartition(":")
        if not colon:
            raise
        title, contenders, seeds = _results(target, root)
    if contender not in contenders:
        known = ", ".join(contenders)
        raise UsageError(
            f"{title} has no evaluation of {contender!r}; it has {known}"
            if known
            else f"{title} was not evaluated yet; `orchestrion eval` does that"
        )
    return f"{title}, {contender}", contenders[contender], seeds


def _results(name: str, root: Path) -> tuple[str, dict[str, Outcomes], int]:
    """Return the title, the outcomes by contender, and the tries per problem."""
    from orchestrion._store import RunReader, find_run
    from orchestrion._store.evaluations import read_evaluation

    path = next((file for file in (Path(name), root / name) if file.is_file()), None)
    if path is not None:
        report = read_evaluation(path)["report"]
        return f"{path} ({report['split']})", report["outcomes"], report["seeds"]
    with RunReader(find_run(name, root)) as store:
        evaluations = store.load_evaluations()
        if not evaluations:
            return store.directory.name, {}, 1
        report = report_of(store, evaluations)
        return f"{store.directory.name} ({report.split})", dict(report.outcomes), report.seeds
