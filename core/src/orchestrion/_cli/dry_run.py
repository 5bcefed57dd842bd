"""`orchestrion train --dry-run`: what a run would do, and what it can cost at most."""

from __future__ import annotations

from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from orchestrion._cli.common import emit, note, table_lines, usage_data
from orchestrion._cli.looping import in_loop

if TYPE_CHECKING:
    from orchestrion._forecast import Forecast
    from orchestrion._records import Usage
    from orchestrion._sampling import Seen
    from orchestrion.config import Config


def describe(config: Config, as_json: bool, root: Path, name: str, sample: int = 0) -> None:
    """Open the components without network access, and print what a run would do and cost.

    Args:
        config: structured and checked.
        as_json: whether to print JSON.
        root: the folder of all runs; the estimate uses the newest of the same config.
        name: of the config, for the folder of a sample.
        sample: how many episodes to run first; 0 for none.
    """
    from orchestrion._errors import RunError
    from orchestrion._forecast import forecast
    from orchestrion._offline import no_network
    from orchestrion._readiness import ready

    async def inspect() -> tuple[dict[str, Any], Forecast]:
        async with ready(config) as (opened, _):
            return _facts(config, opened), forecast(opened)

    with no_network(RunError, "a dry run asks nobody"):
        facts, bound = in_loop(inspect())
    seen = _seen(config, root, name, sample)
    if as_json:
        emit({"dry_run": True, **facts, "bound": _data(config, bound), **_estimated(seen, bound)})
        return
    ran = f"{sample} episodes were run as a sample" if sample else "nothing was run"
    click.echo(f"{config.source}: ok, {ran}")
    for name, value in facts.items():
        click.echo(f"  {name.replace('_', ' ')}: {_text(value)}")
    click.echo("\n".join(["", *_lines(config, bound), *_estimate_lines(seen, bound)]))


def _seen(config: Config, root: Path, name: str, sample: int) -> Seen | None:
    """Run a sample if there is to be one; return the newest episodes of this config."""
    from orchestrion._sampling import run_sample, seen_before

    if sample:
        from orchestrion._manifest import manifest
        from orchestrion._store import RunStore

        text, facts = config.to_yaml(), manifest(config) | {"sample": sample}
        with RunStore.create(root, text, facts, numbered=f"{name}-sample") as store:
            note(f"run: {store.directory}")
            in_loop(run_sample(config, store, sample))
    return seen_before(config, root)


def _estimated(seen: Seen | None, bound: Forecast) -> dict[str, Any]:
    from orchestrion._sampling import guesses

    if seen is None:
        return {"estimate": None}
    sums = {
        name: {"total": guess.total, "low": guess.low, "high": guess.high}
        for name, guess in guesses(seen, bound).items()
    }
    return {"estimate": {"run": str(seen.origin), "episodes": seen.episodes, **sums}}


def _estimate_lines(seen: Seen | None, bound: Forecast) -> list[str]:
    """Return the estimate as lines; none where nothing can be spent."""
    from orchestrion._sampling import guesses

    if not bound.total.calls and not bound.unknown and (seen is None or not seen.paid.usd):
        return []
    if seen is None:
        return ["", "no estimate: there is no completed run of this config; `--sample 5` runs some"]
    what = ", ".join(
        f"{guess.total:,.3g} {'US dollars' if name == 'usd' else name} "
        f"[{guess.low:,.3g}, {guess.high:,.3g}]"
        for name, guess in guesses(seen, bound).items()
    )
    if seen.whole:
        return ["", f"estimate: {what}", f"as {seen.origin} took, a completed run of this config"]
    return [
        "",
        f"estimate: {what}",
        f"from {seen.episodes:,} episodes of {seen.origin}, with 95 % intervals by how much these "
        "differ;",
        "what comes after training, and baselines, are taken to cost as much an episode as these",
    ]


def _facts(config: Config, opened: Any) -> dict[str, Any]:
    from orchestrion._engine.checks import iterations_of, problems_of
    from orchestrion._guards import place_of
    from orchestrion._records import Split

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


def _text(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {number}" for name, number in value.items())
    if isinstance(value, list):
        return ", ".join(_text(item) for item in value) or "none"
    return str(value)


def _data(config: Config, bound: Forecast) -> dict[str, Any]:
    return {
        "parts": [
            {
                "part": part.part,
                "who": part.who,
                "count": part.count,
                **usage_data(part.usage),
                "unknown": list(part.unknown),
            }
            for part in bound.parts
        ],
        "total": usage_data(bound.total),
        "unknown": list(bound.unknown),
        "assumptions": list(bound.assumptions),
        "budget": {
            name: {"cap": cap, "needs_at_most": need, "enough": enough}
            for name, (cap, need, enough) in bound.against(config.budget).items()
        },
    }


def _lines(config: Config, bound: Forecast) -> list[str]:
    """Return the bound as lines: a table, its assumptions, and whether the budget covers it."""
    if not bound.total.calls and not bound.total.tokens and not bound.unknown:
        return ["no calls to the outside: it costs nothing"]
    rows = [["at most", "", "turns or verdicts", "calls", "tokens", "US dollars", ""]]
    for part in bound.parts:
        if part.count or part.usage.calls or part.unknown:
            more = "and more" if part.unknown else ""
            count = f"<= {part.count:,}" if part.count else ""
            rows.append([part.part, part.who, count, *_cells(part.usage), more])
    more = "and more, which is not known" if bound.unknown else ""
    rows.append(["all", "", "", *_cells(bound.total), more])
    lines = [
        *table_lines(rows),
        "",
        "at most: every episode takes all its turns, every turn reads all that was written before "
        "it, and every answer has max_tokens; most runs take far less",
        "not included: what is tried again after a failure",
    ]
    lines += bound.assumptions
    lines += [f"not known: {reason}" for reason in bound.unknown]
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
        lines.append(f"budget.{name}: {cap:,g} {verdict} (at most {need:,.6g})")
    return lines + _at_once(config, bound)


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
