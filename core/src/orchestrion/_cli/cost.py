"""`orchestrion cost`: what a run's calls took."""

from __future__ import annotations

from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from orchestrion._cli.common import answer, emit, json_option, root_option, table, usage_data

if TYPE_CHECKING:
    from orchestrion._store.spending import Spent

_CACHE = ("cache_read_tokens", "cache_write_tokens", "cache_saved_usd")
GROUPS = ("service", "who", "stage")
_FREE = "made no calls; its turns needed none, or were reused from what came before"


@click.command("cost")
@click.argument("run")
@root_option
@json_option
def command(run: str, root: Path, as_json: bool) -> None:
    """Show what the calls of RUN took, by service, by agent and by stage, and how long.

    Calls that were dropped with an unfinished iteration were paid as well, and are counted. Costs
    in the agents' own unit are those of the stored episodes.
    """
    from orchestrion._cli.display import own_cost_rows
    from orchestrion._store import RunReader, find_run
    from orchestrion._store.spending import Spent, own_costs, reused_calls, spent_by

    directory = find_run(run, root)
    with RunReader(directory) as store:
        rows, stated = store.journal.rows(), store.stated()
        costs, reused = own_costs(store), reused_calls(store, rows, stated)
        evaluations = [f"evaluation of {name}" for name in store.load_evaluations()]
    total = spent_by(rows, lambda row: "all").get("all")
    groups = {group: spent_by(rows, attrgetter(group)) for group in GROUPS}
    # One whose turns were all reused from what came before has no call of its own.
    free = [stage for stage in evaluations if rows and stage not in groups["stage"]]
    groups["stage"] |= {stage: Spent() for stage in free}
    if as_json:
        by_group = {
            f"by_{group}": {name: _data(spent) for name, spent in members.items()}
            for group, members in groups.items()
        }
        facts = {"run": str(directory), "total": _data(total) if total is not None else None}
        beside = {"stated_by_turns": usage_data(stated), "reused_calls": reused, "own_costs": costs}
        emit({**facts, **by_group, **beside})
        return
    if total is None:
        click.echo(f"{directory.name}: Orchestrion made no calls to services")
    else:
        answer(f"{directory.name}\n\n{_tables(groups, total)}")
        answer(*_notes(total), *(f"{stage}: {_FREE}" for stage in free))
    if reused > 0:
        answer(f"{reused:,} calls of turns were not made: what equal turns gave was reused")
    if stated.calls or stated.tokens or stated.usd:
        answer(
            "reported by agents themselves, or computed again by local models: "
            f"{stated.calls:,} calls, {stated.tokens:,} tokens, {stated.usd:,.4f} US dollars"
        )
    if costs:
        answer(table(own_cost_rows(costs)))


def _tables(groups: dict[str, dict[str, Spent]], total: Spent) -> str:
    head = ["calls", "input", "output", "US dollars", "retried", "p50", "p90", "p99"]
    rows = []
    for group, members in groups.items():
        rows.append(["agent" if group == "who" else group, *head])
        rows += [[f"  {name or '-'}", *_cells(spent)] for name, spent in members.items()]
    rows.append(["all", *_cells(total)])
    return table(rows)


def _cells(spent: Spent) -> list[str]:
    usage, latencies = spent.usage, spent.latencies()
    mark = "~" if spent.estimated.calls or spent.estimated.tokens or spent.estimated.usd else ""
    usd = f"{mark}{usage.usd:,.4f}" + ("+?" if spent.unpriced else "")
    return [
        f"{mark}{usage.calls:,}",
        f"{mark}{usage.input_tokens:,}",
        f"{mark}{usage.output_tokens:,}",
        usd,
        f"{spent.retried:,}",
        *(f"{seconds:.3g} s" for seconds in latencies.values()),
        *([] if latencies else ["", "", ""]),
    ]


def _notes(total: Spent) -> list[str]:
    from orchestrion._store.spending import UNSURE

    lines = [""]
    read, written, saved = (total.billed.get(name, 0) for name in _CACHE)
    if read or written:
        lines.append(
            f"{read:,.0f} of {total.usage.input_tokens:,} input tokens were read from the prompt "
            f"caches of services and {written:,.0f} written, which saved {saved:,.4f} US dollars"
        )
    tools = {name: number for name, number in total.billed.items() if name not in _CACHE}
    if tools:
        uses = ", ".join(f"{name} {number:,.0f} times" for name, number in tools.items())
        lines.append(f"the services' own tools were used: {uses}")
    if total.cached:
        lines.append(f"{total.cached:,} calls were answered from a cache, and took nothing")
    if total.failed:
        lines.append(f"{total.failed:,} calls failed for good")
    for kind, (count, usage) in total.booked.items():
        attempts = "attempt" if count == 1 else "attempts"
        lines.append(
            f"{count:,} {attempts} {UNSURE[kind]}: {usage.tokens:,} tokens, "
            f"{usage.usd:,.4f} US dollars"
        )
    estimated = total.estimated
    if estimated.calls or estimated.tokens or estimated.usd:
        lines.append(
            f"~ has estimates in it: {estimated.calls:,} calls, {estimated.tokens:,} tokens, "
            f"{estimated.usd:,.4f} US dollars in all, which no service reported"
        )
    if total.unpriced:
        lines.append(f"+? has {total.unpriced:,} calls in it whose price is not known")
    return lines if len(lines) > 1 else []


def _data(spent: Spent) -> dict[str, Any]:
    return {
        "answered": spent.answered,
        "cached": spent.cached,
        "failed": spent.failed,
        "retried": spent.retried,
        "unpriced": spent.unpriced,
        **usage_data(spent.usage),
        "estimated": usage_data(spent.estimated),
        "billed": spent.billed,
        "booked_without_answer": {
            kind: {"attempts": count, **usage_data(usage)}
            for kind, (count, usage) in spent.booked.items()
        },
        "seconds": {f"p{q * 100:g}": value for q, value in spent.latencies().items()},
    }
