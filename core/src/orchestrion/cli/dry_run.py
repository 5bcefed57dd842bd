"""`orchestrion train --dry-run`: what a run would do, and what that can cost at most."""

from __future__ import annotations

from contextlib import AsyncExitStack
from math import isnan
from typing import TYPE_CHECKING, Any

import click

from orchestrion.cli.common import emit, table, usage_data
from orchestrion.cli.looping import in_loop

if TYPE_CHECKING:
    from orchestrion.config import Config
    from orchestrion.forecast import Forecast
    from orchestrion.records import Usage

__all__ = ["describe"]


def describe(config: Config, as_json: bool) -> None:
    """Open the components without a way to the outside, ask them, and print what they say."""
    from orchestrion.errors import RunError
    from orchestrion.forecast import forecast
    from orchestrion.offline import no_network

    async def ask() -> tuple[dict[str, Any], Forecast]:
        from orchestrion.engine.opening import open_components
        from orchestrion.keys import Key

        async with AsyncExitStack() as stack:
            opened = await open_components(config, stack, Key(config.seed), live=False, trial=True)
            return _facts(config, opened), forecast(opened)

    with no_network(RunError, "a dry run asks nobody"):
        facts, found = in_loop(ask())
    if as_json:
        emit({"dry_run": True, **facts, "bound": _data(config, found)})
        return
    click.echo(f"{config.source}: ok, nothing was run")
    for name, value in facts.items():
        click.echo(f"  {name.replace('_', ' ')}: {_said(value)}")
    click.echo("")
    for line in _lines(config, found):
        click.echo(line)


def _facts(config: Config, opened: Any) -> dict[str, Any]:
    from orchestrion.guards import iterations_of, place_of, problems_of
    from orchestrion.records import Split

    task, place = opened.runtimes[config.task], place_of(config, config.task)
    names: tuple[Split, ...] = ("train", "validation", "test")
    stages = [
        {
            "trainer": config.components[path].use,
            "iterations": iterations_of(opened.runtimes[path], place_of(config, path)),
        }
        for path in config.stages
    ]
    return {
        "task": config.components[config.task].use,
        "problems": {split: len(problems_of(task, split, place)) for split in names},
        "team": [path.partition(".")[2] for path in config.roster],
        "policy": config.components[config.policy].use,
        "stages": stages,
        "baselines": list(config.evaluation.baselines),
        "evaluated_on": config.evaluation.split,
        "plugins": [plugin.origin for plugin in config.plugins_used],
    }


def _said(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {number}" for name, number in value.items())
    if isinstance(value, list):
        return ", ".join(_said(one) for one in value) or "none"
    return str(value)


def _data(config: Config, found: Forecast) -> dict[str, Any]:
    return {
        "parts": [
            {
                "part": part.part,
                "who": part.who,
                "count": part.count,
                "exact": part.exact,
                **usage_data(part.usage),
                "unknown": list(part.unknown),
            }
            for part in found.parts
        ],
        "total": usage_data(found.total),
        "unknown": list(found.unknown),
        "assumptions": list(found.assumptions),
        "budget": {
            name: {"cap": cap, "needs_at_most": most, "enough": enough}
            for name, (cap, most, enough) in found.against(config.budget).items()
        },
    }


def _lines(config: Config, found: Forecast) -> list[str]:
    """The bound as a table for people."""
    if not found.total.calls and not found.total.tokens and not found.unknown:
        return ["no calls to the outside: it costs nothing"]
    rows = [["at most", "", "turns or verdicts", "calls", "tokens", "US dollars", ""]]
    for part in found.parts:
        if part.count or part.usage.calls or part.unknown:
            exact = f"{part.count:,}" if part.exact else f"<= {part.count:,}"
            more = "and more" if part.unknown else ""
            count = exact if part.count else ""
            rows.append([part.part, part.who, count, *_cells(part.usage), more])
    more = "and more, which is not known" if found.unknown else ""
    rows.append(["all", "", "", *_cells(found.total), more])
    lines = [*table(rows).splitlines(), "", "failures aside: what is tried again comes on top"]
    lines += found.assumptions
    lines += [f"not known: {reason}" for reason in found.unknown]
    for name, (cap, most, enough) in found.against(config.budget).items():
        if name == "usd" and isnan(most):
            lines.append(
                f"budget.usd: {cap:,g} refuses calls whose price is not known; give those models "
                "a `price` in the config, or take budget.usd out"
            )
            continue
        verdict = {
            True: "is enough",
            False: "may run out; the run then ends and can be resumed with more",
            None: "may or may not be enough",
        }[enough]
        lines.append(f"budget.{name}: {cap:,g} {verdict} (at most {most:,.6g})")
    return lines


def _cells(usage: Usage) -> list[str]:
    usd = "not known" if isnan(usage.usd) else f"{usage.usd:,.2f}"
    return [f"{usage.calls:,}", f"{usage.tokens:,}", usd]
