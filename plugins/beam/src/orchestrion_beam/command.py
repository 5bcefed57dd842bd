"""`orchestrion beam`: what a run of trainer `grpo-beam` found out about its search."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from orchestrion import UsageError

if TYPE_CHECKING:
    from orchestrion import JSON

__all__ = ["beam", "report_of"]


@click.command("beam")
@click.argument("run", metavar="RUN")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def beam(run: str, as_json: bool) -> None:
    """Show the search of RUN beside its baselines, with as many calls each.

    `exports/beam/` in the run's folder has advantages, credits, and every trajectory there was.
    """
    from orchestrion_beam.report import as_text

    report = report_of(run)
    text = json.dumps(report, indent=1) + "\n" if as_json else as_text(report)
    click.echo(text, nl=False)


def report_of(run: str | Path) -> JSON:
    """The report in the newest checkpoint of a run.

    Raises:
        UsageError: there is no such run, or it has not come so far.
    """
    from orchestrion.runs import newest_states

    directory, states = newest_states(run)
    found = [state.data for state in states.values() if _is_ours(state.data)]
    if not found:
        raise UsageError(f"{directory}: no trainer grpo-beam has left anything in this run")
    reports: list[JSON] = [data["report"] for data in found if data["report"] is not None]
    if not reports:
        raise UsageError(
            f"{directory}: nothing is compared yet; the last iteration does that, unless "
            "`held_out` is 0"
        )
    return reports[-1]


def _is_ours(data: JSON) -> bool:
    return isinstance(data, dict) and {"pending", "round", "report"} <= set(data)
