"""`orchestrion front`: what an evolution run found, as a table, a picture or data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from orchestrion import UsageError

if TYPE_CHECKING:
    from orchestrion import JSON

__all__ = ["front", "report_of"]


@click.command("front")
@click.argument("run", metavar="RUN")
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "svg", "json"]),
    default="table",
    show_default=True,
)
@click.option("--output", type=click.Path(path_type=Path), help="Write to this file.")
def front(run: str, form: str, output: Path | None) -> None:
    """Show the graphs that RUN found: cost, reward in the search, again, and held out.

    `orchestrion graph RUN` draws the one it uses; `exports/evolution/` in the run's folder has a
    config and a drawing of each.
    """
    from orchestrion_evolution.drawing import front_svg, front_table

    report = report_of(run)
    if form == "json":
        text = json.dumps(report, indent=1) + "\n"
    else:
        text = (front_table if form == "table" else front_svg)(report)
    if output is None:
        click.echo(text, nl=False)
    else:
        output.write_text(text, encoding="utf-8")


def report_of(run: str | Path) -> JSON:
    """The report in the newest checkpoint of a run.

    Raises:
        UsageError: there is no such run, or it has not come so far.
    """
    from orchestrion.runs import newest_states

    directory, states = newest_states(run)
    for state in states.values():
        if isinstance(state.data, dict) and {"batches", "report"} <= set(state.data):
            if state.data["report"] is not None:
                return state.data["report"]
            raise UsageError(
                f"{directory}: is still searching; the front is measured in the last iteration"
            )
    raise UsageError(f"{directory}: no trainer evolution has left anything in this run")
