"""`orchestrion runs show`: a run, one of its episodes, or its calls."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from orchestrion._cli.common import answer, emit, json_option, note, root_option, table, time_text
from orchestrion._errors import UsageError

if TYPE_CHECKING:
    from orchestrion._store import RunReader


@click.command("show")
@click.argument("run")
@click.option("--episode", metavar="ID", help="Show one episode, turn by turn.")
@click.option(
    "--conversation", is_flag=True, help="With --episode: show what was asked and answered."
)
@click.option(
    "--turn",
    type=click.IntRange(min=1),
    metavar="N",
    help="With --episode: show what was asked and answered in this turn.",
)
@click.option(
    "--calls-of",
    "who",
    metavar="WHO",
    help='Show all calls of an agent, or of "trainer", "verifier" or "reward".',
)
@click.option("--problems", is_flag=True, help="Print what came of each held-out problem as well.")
@root_option
@json_option
def show_command(
    run: str,
    episode: str | None,
    conversation: bool,
    turn: int | None,
    who: str | None,
    problems: bool,
    root: Path,
    as_json: bool,
) -> None:
    """Show a run: what was learned, evaluated and spent; one of its episodes; or its calls.

    Stages, iterations and turns count from 1; with --json they are as stored, from 0.
    """
    from orchestrion._store import RunReader, find_run

    if episode is None and (conversation or turn is not None):
        raise UsageError("--conversation and --turn need --episode ID")
    if who is not None and (episode is not None or problems):
        raise UsageError("--calls-of goes over the whole run; leave --episode and --problems out")
    with RunReader(find_run(run, root)) as store:
        if episode is not None:
            _show_episode(store, episode, conversation, turn, as_json)
        elif who is not None:
            _show_calls(store, who, as_json)
        elif as_json:
            emit({"run": _detail(store)})
        else:
            _print_detail(store, _detail(store), problems)


def _detail(store: RunReader) -> dict[str, Any]:
    from msgspec.structs import asdict

    from orchestrion._store.exports import summarize

    summary = summarize(store)
    summary["execution"]["spend"] = asdict(summary["execution"]["spend"])
    return {
        "directory": str(store.directory),
        **summary,
        "metrics": [
            # These names replace metrics of the trainer that have the same name.
            {
                **iteration.metrics,
                "stage": iteration.stage,
                "iteration": iteration.iteration,
                "reward": iteration.reward,
            }
            for iteration in store.iterations()
        ],
        "events": [
            {"at": time_text(event.at), "kind": event.kind, "data": event.data}
            for event in store.events()
        ],
    }


def _print_detail(store: RunReader, detail: dict[str, Any], problems: bool) -> None:
    from orchestrion._cli.display import (
        dollars_text,
        own_cost_rows,
        problem_lines,
        report_lines,
        training_lines,
        usage_text,
    )
    from orchestrion._store.spending import own_costs
    from orchestrion._stored import stored_report

    episodes, execution = detail["episodes"], detail["execution"]
    facts = [
        ("status", " ".join([detail["status"], execution["detail"]]).strip()),
        ("folder", detail["directory"]),
        ("created", f"{time_text(execution['created'])}, worked {execution['seconds']:.0f} s"),
        ("iterations", str(detail["iterations"])),
        ("episodes", f"{episodes['count']}, {episodes['successes']} solved"),
        ("spent", usage_text(store.spend())),
        *([("spent on", dollars)] if (dollars := dollars_text(store)) else []),
        *own_cost_rows(own_costs(store)),
        ("checkpoint", (detail["checkpoint"] or {}).get("file", "none")),
        *(
            (path, f"{name} {text}")
            for path, notes in (detail["manifest"] or {}).get("opened", {}).items()
            for name, text in notes.items()
        ),
    ]
    click.echo(store.directory.name)
    answer(table([[f"  {name}", text] for name, text in facts]))
    if detail["metrics"]:
        answer("\nlast iterations", _metrics_table(detail["metrics"][-5:]), *training_lines(store))
    if detail["evaluations"]:
        report = stored_report(store, detail["evaluations"])
        assert report is not None  # there are evaluations
        answer("", *report_lines(report))
        answer(*(["", *problem_lines(report.outcomes)] if problems else ()))
    for event in detail["events"]:
        data = event["data"]
        if isinstance(data, dict):
            data = ", ".join(f"{name} {value}" for name, value in data.items())
        note(f"{event['at']} {event['kind']}: {data}" if data else f"{event['at']} {event['kind']}")


def _metrics_table(metrics: Sequence[dict[str, Any]]) -> str:
    from orchestrion._cli.display import EVERY_ITERATION

    columns = ("stage", "iteration", *EVERY_ITERATION)
    names = [name for name in columns if any(name in row for row in metrics)]
    counted = [
        {**row, "stage": row["stage"] + 1, "iteration": row["iteration"] + 1} for row in metrics
    ]
    cells = [[f"  {_cell(row.get(name))}" for name in names] for row in counted]
    return table([[f"  {name}" for name in names], *cells])


def _cell(value: Any) -> str:
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


def _show_episode(
    store: RunReader, name: str, conversation: bool, turn: int | None, as_json: bool
) -> None:
    from orchestrion._cli.conversation import episode_lines, places_of, talk_lines
    from orchestrion._store.serial import as_data

    stored = next(store.episodes(id=name), None)
    if stored is None:
        raise UsageError(
            f"{store.directory.name} has no episode {name!r}; "
            "`orchestrion runs export` writes all of them"
        )
    episode = stored.episode
    places = places_of(episode, turn) if conversation or turn is not None else []
    if any(names for _, names in places) and store.retention != "all":
        note(f"run.retention is {store.retention}: what calls asked is not kept")
    if as_json:
        conversation_data = [
            {"place": place, "calls": [as_data(call) for call in store.calls(names)]}
            for place, names in places
        ]
        extra = {"conversation": conversation_data} if places else {}
        emit({"source": stored.source, "episode": as_data(episode), **extra})
        return
    answer(*(episode_lines(episode) if not places else talk_lines(store, places)))


def _show_calls(store: RunReader, who: str, as_json: bool) -> None:
    from orchestrion._cli.conversation import call_lines
    from orchestrion._store.serial import as_data

    calls = store.all_calls(who)
    if as_json:
        emit({"calls": [as_data(call) for call in calls]})
        return
    for call in calls:
        answer(*call_lines([call]))
