"""`orchestrion train --dry-run`: what a run would do, and what that can cost at most."""

from __future__ import annotations

from contextlib import AsyncExitStack
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from orchestrion._cli.common import emit, note, table, usage_data
from orchestrion._cli.looping import in_loop

if TYPE_CHECKING:
    from orchestrion._config import Config
    from orchestrion._forecast import Forecast
    from orchestrion._records import Usage
    from orchestrion._sampling import Seen

__all__ = ["describe"]


def describe(config: Config, as_json: bool, root: Path, name: str, sample: int = 0) -> None:
    """Open the components without a way to the outside, ask them, and print what they say.

    Args:
        config: structured and checked.
        as_json: whether to print JSON.
        root: the folder of all runs; the newest of the same config is estimated from.
        name: of the config, for the folder of a sample.
        sample: how many episodes are run for real first.
    """
    from orchestrion._errors import RunError
    from orchestrion._forecast import forecast
    from orchestrion._offline import no_network

    async def ask() -> tuple[dict[str, Any], Forecast]:
        from orchestrion._engine.opening import open_components
        from orchestrion._keys import Key

        async with AsyncExitStack() as stack:
            opened = await open_components(config, stack, Key(config.seed), live=False, trial=True)
            return _facts(config, opened), forecast(opened)

    with no_network(RunError, "a dry run asks nobody"):
        facts, found = in_loop(ask())
    seen = _seen(config, root, name, sample)
    if as_json:
        emit({"dry_run": True, **facts, "bound": _data(config, found), **_estimated(seen, found)})
        return
    ran = f"{sample} episodes were run as a sample" if sample else "nothing was run"
    click.echo(f"{config.source}: ok, {ran}")
    for name, value in facts.items():
        click.echo(f"  {name.replace('_', ' ')}: {_said(value)}")
    click.echo("")
    for line in [*_lines(config, found), *_guessed(seen, found)]:
        click.echo(line)


def _seen(config: Config, root: Path, name: str, sample: int) -> Seen | None:
    """Episodes of this config that were run for real, now or earlier."""
    from orchestrion._sampling import run_sample, seen_before

    if sample:
        from orchestrion._run import manifest
        from orchestrion._store import RunStore

        text, facts = config.to_yaml(), manifest(config) | {"sample": sample}
        with RunStore.create_next(root, f"{name}-sample", text, facts) as store:
            note(f"run: {store.directory}")
            in_loop(run_sample(config, store, sample))
    return seen_before(config, root)


def _estimated(seen: Seen | None, found: Forecast) -> dict[str, Any]:
    from orchestrion._sampling import guesses

    if seen is None:
        return {"estimate": None}
    sums = {
        name: {"total": one.total, "low": one.low, "high": one.high}
        for name, one in guesses(seen, found).items()
    }
    return {"estimate": {"run": str(seen.origin), "episodes": seen.episodes, **sums}}


def _guessed(seen: Seen | None, found: Forecast) -> list[str]:
    """The estimate for people, where there is something to take at all."""
    from orchestrion._sampling import guesses

    if not found.total.calls and not found.unknown and (seen is None or not seen.paid.usd):
        return []
    if seen is None:
        return ["", "no estimate: there is no completed run of this config; `--sample 5` runs some"]
    what = ", ".join(
        f"{one.total:,.3g} {'US dollars' if name == 'usd' else name} "
        f"[{one.low:,.3g}, {one.high:,.3g}]"
        for name, one in guesses(seen, found).items()
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
    return lines + _at_once(config, found)


def _at_once(config: Config, found: Forecast) -> list[str]:
    """What the budget covers at the same moment, where that is less than is allowed to run."""
    each, width, lines = found.each(), config.run.concurrency, []
    for name, most in (("tokens", float(each.tokens)), ("usd", each.usd)):
        cap = getattr(config.budget, name)
        if not cap or not most or isnan(most) or cap >= most * width:
            continue
        fits = int(cap / most)
        if not fits:
            lines.append(
                f"budget.{name}: {cap:,g} may not cover a single call (at most {most:,.3g}), and "
                "the run would end with it; lower max_tokens of the models, or raise the budget"
            )
            continue
        lines.append(
            f"budget.{name}: {cap:,g} covers {fits:,} calls at once (each at most {most:,.3g}), "
            f"and run.concurrency is {width}: others wait until these have taken less; "
            f"lower max_tokens of the models, or set run.concurrency or limits.concurrency "
            f"of the models to {fits:,}"
        )
    return lines


def _cells(usage: Usage) -> list[str]:
    usd = "not known" if isnan(usage.usd) else f"{usage.usd:,.2f}"
    return [f"{usage.calls:,}", f"{usage.tokens:,}", usd]
