"""`orchestrion train --dry-run`: what a run would do, and what it can cost at most."""

from __future__ import annotations

from collections.abc import Mapping
from math import isnan
from pathlib import Path
from typing import Any, get_args

import click

from orchestrion._cli.common import emit, note, table_lines, usage_data
from orchestrion._cli.display import usage_text
from orchestrion._cli.looping import in_loop
from orchestrion._engine.checks import iterations_of, problems_of
from orchestrion._engine.opening import Opened
from orchestrion._errors import RunError
from orchestrion._forecast import Forecast, forecast, spent_before, training_episodes
from orchestrion._guards import place_of
from orchestrion._offline import no_network
from orchestrion._readiness import doubts, ready
from orchestrion._records import Split, Usage
from orchestrion._report import OWN_UNIT, amounts, unit_of
from orchestrion.config import Config

_WHO = {
    "agents": "turns of agents",
    "judge": "episodes judged",
    "policy": "decisions prepared",
    "trainer": "calls of the trainer",
}
"""What a part counts."""


def describe(config: Config, as_json: bool, root: Path) -> None:
    """Open the components without network access, and print what a run would do and cost."""

    async def inspect() -> tuple[dict[str, Any], Forecast, list[str]]:
        async with ready(config) as (opened, sizes):
            return _facts(config, opened, sizes), forecast(opened), doubts(opened)

    with no_network(RunError, "a dry run asks nobody"):
        facts, bound, warnings = in_loop(inspect())
    before = spent_before(config, root)
    if as_json:
        estimate = before and {"run": str(before[0]), **usage_data(before[1])}
        data = _data(config, bound)
        document = {"dry_run": True, **facts, "bound": data, "estimate": estimate}
        emit({**document, "warnings": warnings})
        return
    click.echo(f"{config.source}: ok, nothing was run")
    for name, value in facts.items():
        click.echo(f"  {name.replace('_', ' ')}: {_text(value)}")
    click.echo("\n".join(["", *_lines(config, bound), *_estimate_lines(before, bound)]))
    note(*(f"warning: {text}" for text in warnings))


def _estimate_lines(before: tuple[Path, Usage] | None, bound: Forecast) -> list[str]:
    """Return what the config took before as lines; none where nothing can be spent."""
    if not bound.total.calls and not bound.unknown and (before is None or not before[1].usd):
        return []
    if before is None:
        return [
            "",
            "no estimate: there is no completed run of this config; `orchestrion cost` says what a "
            "smaller one took",
        ]
    run, usage = before
    text = f"estimate: {usage_text(usage)}, as {run} took, a completed run of this config"
    return ["", text]


def _facts(config: Config, opened: Opened, sizes: Mapping[Split, int]) -> dict[str, Any]:
    task, place = opened.runtimes[config.task], place_of(config, config.task)
    stages = [
        {
            "trainer": config.components[path].use,
            "iterations": iterations_of(opened.runtimes[path], place_of(config, path)),
        }
        for path in config.stages
    ]
    return {
        "task": config.components[config.task].use,
        "problems": {split: len(problems_of(task, split, place)) for split in get_args(Split)},
        "team": [path.partition(".")[2] for path in config.roster],
        "policy": config.components[config.policy].use,
        "stages": stages,
        "baselines": list(config.evaluation.baselines),
        "training_episodes_at_most": training_episodes(opened, sizes),
        "evaluated_on": config.evaluation.split,
        "plugins": [plugin.origin for plugin in config.plugins_used],
    }


def _text(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_text(item)}" for name, item in value.items()) or "none"
    if isinstance(value, list):
        return ", ".join(_text(item) for item in value) or "none"
    if value is None:
        return "not known"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _data(config: Config, bound: Forecast) -> dict[str, Any]:
    return {
        "parts": [
            {
                "part": part.part,
                "who": part.who,
                "count": part.count,
                **usage_data(part.usage),
                "cost": part.usage.cost,
                "unknown": list(part.unknown),
            }
            for part in bound.parts
        ],
        "total": {**usage_data(bound.total), "cost": bound.total.cost},
        "unknown": list(bound.unknown),
        "assumptions": list(bound.assumptions),
        "budget": {
            name: {"cap": cap, "needs_at_most": need, "enough": enough}
            for name, (cap, need, enough) in bound.against(config.budget).items()
        },
    }


def _lines(config: Config, bound: Forecast) -> list[str]:
    """Return the bound as lines: a table, its assumptions, and whether the budget covers it."""
    has_calls = bool(bound.total.calls or bound.total.tokens or bound.unknown)
    has_own = unit_of([amounts(bound.total)]) == OWN_UNIT and bound.total.cost > 0

    def row(name: str, who: str, count: str, usage: Usage, more: str) -> list[str]:
        cells = [*(_cells(usage) if has_calls else ()), *([f"{usage.cost:,.6g}"] * has_own)]
        return [name, who, count, *cells, more]

    services = ["calls", "tokens", "US dollars"] * has_calls
    rows = [["at most", "", "number", *services, *[f"cost ({OWN_UNIT})"] * has_own, ""]]
    for part in bound.parts:
        if part.count or part.usage.calls or part.unknown:
            more = "and more" if part.unknown else ""
            count = f"<= {part.count:,}" if part.count else ""
            rows.append(row(part.part, _WHO[part.who], count, part.usage, more))
    if has_calls or has_own:
        rows.append(row("all", "", "", bound.total, _unknown(bound)))
    if not has_calls:
        return [
            *table_lines(rows),
            "",
            "no calls to services; what agents take by themselves, such as functions that call "
            "one, is not known here",
            *_against_budget(config, bound),
        ]
    lines = [
        *table_lines(rows),
        "",
        "at most: every episode takes all its turns, every turn reads all that was written before "
        "it, and every answer has max_tokens; most runs take far less",
        "not included: what is tried again after a failure",
    ]
    lines += bound.assumptions
    lines += [f"not known: {reason}" for reason in bound.unknown]
    return lines + _against_budget(config, bound) + _at_once(config, bound)


def _unknown(bound: Forecast) -> str:
    return "and more, which is not known" if bound.unknown else ""


def _against_budget(config: Config, bound: Forecast) -> list[str]:
    """Return whether each cap of the budget covers the bound."""
    lines = []
    for name, (cap, need, enough) in bound.against(config.budget).items():
        if name == "usd" and isnan(need):
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
        known = f"at most {need:,.6g} {_unknown(bound)}".rstrip()
        lines.append(f"budget.{name}: {cap:,g} {verdict} ({known})")
    return lines


def _at_once(config: Config, bound: Forecast) -> list[str]:
    """Return warnings where the budget covers fewer calls at once than may run."""
    each, width, lines = bound.each(), config.run.concurrency, []
    for name, need in (("tokens", float(each.tokens)), ("usd", each.usd)):
        cap = getattr(config.budget, name)
        if not cap or not need or isnan(need) or cap >= need * width:
            continue
        fits = int(cap / need)
        if not fits:
            lines.append(
                f"budget.{name}: {cap:,g} may not cover a single call (at most {need:,.3g}), and "
                "the run would end with it; lower max_tokens of the models, or raise the budget"
            )
            continue
        lines.append(
            f"budget.{name}: {cap:,g} covers {fits:,} calls at once (each at most {need:,.3g}), "
            f"and run.concurrency is {width}: others wait until these have taken less; "
            f"lower max_tokens of the models, or set run.concurrency or limits.concurrency "
            f"of the models to {fits:,}"
        )
    return lines


def _cells(usage: Usage) -> list[str]:
    usd = "not known" if isnan(usage.usd) else f"{usage.usd:,.2f}"
    return [f"{usage.calls:,}", f"{usage.tokens:,}", usd]
