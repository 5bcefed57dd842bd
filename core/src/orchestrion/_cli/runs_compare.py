"""`orchestrion runs compare`: two results, problem by problem."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from orchestrion._cli.common import answer, emit, json_option, root_option
from orchestrion._errors import UsageError

if TYPE_CHECKING:
    from orchestrion._comparison import ComparedResult


@click.command("compare")
@click.argument("first", metavar="A")
@click.argument("second", metavar="B")
@root_option
@json_option
def compare_command(first: str, second: str, root: Path, as_json: bool) -> None:
    """Compare two results problem by problem: which one solves what the other does not.

    A and B are runs, whose evaluation at the end of training is meant, or files of evaluations, as
    `orchestrion eval` keeps them or prints them with --json. RUN:NAME or FILE:NAME means another
    contender of the same report, e.g. repair-1:random. Only problems with the same content are
    paired.
    """
    from orchestrion._cli.display import comparison_lines
    from orchestrion._comparison import compare_outcomes

    results = _result(first, root), _result(second, root)
    try:
        comparison = compare_outcomes(*results)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise UsageError(
            f"{first} or {second} was damaged: its outcomes cannot be compared "
            f"({type(error).__name__}: {error})"
        ) from error
    if as_json:
        emit({"comparison": comparison.as_json()})
    else:
        answer(*comparison_lines(comparison))


def _result(name: str, root: Path) -> ComparedResult:
    """Return the result that A or B names."""
    from attrs import evolve

    try:
        contenders = _contenders(name, root)
        contender = next(iter(contenders), "")
    except UsageError:
        target, colon, contender = name.rpartition(":")
        if not colon:
            raise
        contenders = _contenders(target, root)
    if not contenders:
        raise UsageError(f"{name} was not evaluated yet; `orchestrion eval` does that")
    if contender not in contenders:
        title, names = next(iter(contenders.values())).name, ", ".join(contenders)
        raise UsageError(f"{title} has no evaluation of {contender!r}; it has {names}")
    result = contenders[contender]
    return evolve(result, name=f"{result.name}, {contender}")


def _contenders(name: str, root: Path) -> dict[str, ComparedResult]:
    """Return the results of a report by contender."""
    from orchestrion._store import RunReader, find_run
    from orchestrion._stored import results_of_file, stored_results

    path = next((file for file in (Path(name), root / name) if file.is_file()), None)
    if path is not None:
        return results_of_file(path)
    with RunReader(find_run(name, root)) as store:
        return stored_results(store)
