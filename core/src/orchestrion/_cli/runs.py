"""`orchestrion runs`: list, show, compare, export and prune what runs have stored."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from orchestrion._cli.common import answer, emit, json_option, note, table
from orchestrion._errors import StoreError, UsageError

if TYPE_CHECKING:
    from orchestrion._report import Outcomes, Report
    from orchestrion._store import Retention, RunReader

__all__ = ["command"]

root_option = click.option(
    "--root",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("runs"),
    show_default=True,
    help="The folder of all runs.",
)


@click.group("runs", no_args_is_help=True)
def command() -> None:
    """List, show, compare, export and prune runs.

    RUN is a folder, a name such as repair-3, or repair for the newest of that name.
    """


# ------------------------------------------------------------------------------------- list


@command.command("list")
@root_option
@json_option
def list_command(root: Path, as_json: bool) -> None:
    """List all runs, with how they stand and what they reached."""
    from orchestrion._store import run_directories

    runs = [_facts(directory) for directory in run_directories(root)]
    if as_json:
        emit({"runs": runs})
    elif not runs:
        click.echo(f"no runs in {root}")
    else:
        head = ["RUN", "STATUS", "ITERATIONS", "EPISODES", "REWARD", "CREATED"]
        click.echo(table([head, *map(_row, runs)]))


def _facts(directory: Path) -> dict[str, Any]:
    """One line of the list; a run that cannot be read is no reason to hide the others."""
    from orchestrion._store import RunReader

    facts: dict[str, Any] = {"name": directory.name, "directory": str(directory)}
    try:
        with RunReader(directory) as store:
            return facts | _numbers(store)
    except StoreError as error:
        return facts | {"status": "unreadable", "problem": str(error)}
    # What stands in a damaged database may break anything that reads it.
    except Exception as error:
        problem = f"{directory}: is damaged ({type(error).__name__}: {error})"
        return facts | {"status": "unreadable", "problem": problem}


def _numbers(store: RunReader) -> dict[str, Any]:
    iterations = store.iterations()
    return {
        "status": store.status,
        "detail": store.detail,
        "iterations": len(iterations),
        "episodes": sum(one.episodes for one in iterations),
        "reward": iterations[-1].reward if iterations else None,
        "created": _time(store.created),
        "seconds": store.seconds,
    }


def _row(run: dict[str, Any]) -> list[str]:
    if "problem" in run:
        return [run["name"], run["status"], "", "", "", run["problem"]]
    reward = "" if run["reward"] is None else f"{run['reward']:.3f}"
    return [
        *(run["name"], run["status"], str(run["iterations"]), str(run["episodes"])),
        *(reward, run["created"]),
    ]


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).astimezone().isoformat(" ", "seconds")


# ------------------------------------------------------------------------------------- show


@command.command("show")
@click.argument("run")
@click.option("--episode", metavar="ID", help="Show one episode, turn by turn.")
@click.option(
    "--conversation", is_flag=True, help="With --episode: show what was asked and answered."
)
@click.option(
    "--turn",
    type=click.IntRange(min=0),
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
    """Show a run: what was learned, evaluated and spent; one of its episodes; or its calls."""
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
    from attrs import asdict

    from orchestrion._store.exports import summarize

    summary = summarize(store)
    summary["execution"]["spend"] = asdict(summary["execution"]["spend"])
    return {
        "directory": str(store.directory),
        **summary,
        "metrics": [
            # A trainer's own metrics may be called anything.
            {**one.metrics, "stage": one.stage, "iteration": one.iteration, "reward": one.reward}
            for one in store.iterations()
        ],
        "events": [
            {"at": _time(event.at), "kind": event.kind, "data": event.data}
            for event in store.events()
        ],
    }


def _print_detail(store: RunReader, detail: dict[str, Any], problems: bool) -> None:
    episodes, execution = detail["episodes"], detail["execution"]
    facts = [
        ("status", " ".join([detail["status"], execution["detail"]]).strip()),
        ("folder", detail["directory"]),
        ("created", f"{_time(execution['created'])}, worked {execution['seconds']:.0f} s"),
        ("iterations", str(detail["iterations"])),
        ("episodes", f"{episodes['count']}, {episodes['successes']} solved"),
        ("spent", _spent(execution["spend"])),
        ("checkpoint", (detail["checkpoint"] or {}).get("file", "none")),
        *(
            (path, f"{name} {text}")
            for path, notes in (detail["manifest"] or {}).get("opened", {}).items()
            for name, text in notes.items()
        ),
    ]
    from orchestrion._cli.display import problem_lines, report_lines
    from orchestrion._cli.driving import training_lines

    click.echo(store.directory.name)
    click.echo(table([[f"  {name}", text] for name, text in facts]))
    if detail["metrics"]:
        click.echo("\nlast iterations")
        click.echo(_metrics_table(detail["metrics"][-5:]))
        for line in training_lines(store):
            click.echo(line)
    if detail["evaluations"]:
        click.echo("")
        report = _report(store, detail["evaluations"])
        for line in report_lines(report):
            click.echo(line)
        for line in ["", *problem_lines(report.outcomes)] if problems else ():
            answer(line)
    for event in detail["events"]:
        note(f"{event['at']} {event['kind']}: {event['data']}")


def dollars(amount: float) -> str:
    """US dollars to the cent, or to three digits where that would show less."""
    from orchestrion._cli.display import figure

    return f"{amount:.2f}" if amount == 0 or amount >= 1 else figure(amount, cost=True)


def _spent(usage: dict[str, Any]) -> str:
    tokens = usage["input_tokens"] + usage["output_tokens"]
    return f"{usage['calls']} calls, {tokens} tokens, {dollars(usage['usd'])} US dollars"


def _report(store: RunReader, evaluations: dict[str, Any]) -> Report:
    """The report that training ended with, as far as it came."""
    from ruamel.yaml import YAML

    from orchestrion._report import of_evaluations

    config = YAML(typ="safe", pure=True).load(store.config_text)
    judged = config["evaluation"]
    return of_evaluations(evaluations, judged["split"], judged["seeds"], config["seed"])


def _metrics_table(metrics: Sequence[dict[str, Any]]) -> str:
    from orchestrion._cli.driving import EVERY_ITERATION

    every = ("stage", "iteration", *EVERY_ITERATION)
    names = [name for name in every if any(name in row for row in metrics)]
    cells = [[f"  {_cell(row.get(name))}" for name in names] for row in metrics]
    return table([[f"  {name}" for name in names], *cells])


def _cell(value: Any) -> str:
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


def _show_episode(
    store: RunReader, name: str, conversation: bool, turn: int | None, as_json: bool
) -> None:
    from orchestrion._cli.conversation import call_data, episode_lines, places_of, talk_lines
    from orchestrion._store.serial import encode, parse

    found = next(store.episodes(id=name), None)
    if found is None:
        raise UsageError(
            f"{store.directory.name} has no episode {name!r}; "
            "`orchestrion runs export` writes all of them"
        )
    episode = found.episode
    places = places_of(episode, turn) if conversation or turn is not None else []
    if any(names for _, names in places) and store.retention != "all":
        note(f"run.retention is {store.retention}: what calls asked is not kept")
    if as_json:
        talk = [
            {"place": place, "calls": [call_data(one) for one in store.calls(names)]}
            for place, names in places
        ]
        shown = {"conversation": talk} if places else {}
        emit({"source": found.source, "episode": parse(encode(episode)), **shown})
        return
    for line in episode_lines(episode) if not places else talk_lines(store, places):
        answer(line)


def _show_calls(store: RunReader, who: str, as_json: bool) -> None:
    from orchestrion._cli.conversation import call_data, call_lines

    calls = store.all_calls(who)
    if as_json:
        emit({"calls": [call_data(one) for one in calls]})
        return
    for call in calls:
        for line in call_lines([call]):
            answer(line)


# ---------------------------------------------------------------------------------- compare


@command.command("compare")
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
    from orchestrion._keys import Key
    from orchestrion._report import compare_outcomes

    results = [_result(one, root) for one in (first, second)]
    (name, a, seeds), (other, b, others) = results
    comparison = compare_outcomes((name, other), a, b, (seeds, others), Key(0).child("compare"))
    if as_json:
        emit({"comparison": comparison.as_json()})
    else:
        for line in comparison_lines(comparison):
            answer(line)


def _result(name: str, root: Path) -> tuple[str, Outcomes, int]:
    """What is called so, the outcomes of one contender of it, and tries a problem."""
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
    from orchestrion._store import RunReader, find_run
    from orchestrion._store.evaluations import read_evaluation

    path = next((one for one in (Path(name), root / name) if one.is_file()), None)
    if path is not None:
        report = read_evaluation(path)["report"]
        return f"{path} ({report['split']})", report["outcomes"], report["seeds"]
    with RunReader(find_run(name, root)) as store:
        evaluations = store.load_evaluations()
        if not evaluations:
            return store.directory.name, {}, 1
        report = _report(store, evaluations)
        return f"{store.directory.name} ({report.split})", dict(report.outcomes), report.seeds


# ----------------------------------------------------------------------------------- export


@command.command("export")
@click.argument("run")
@click.option(
    "--to",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where to; the run's own exports folder if left out.",
)
@click.option(
    "--conversations",
    is_flag=True,
    help="Write calls.jsonl as well: what models and tools were asked and answered.",
)
@root_option
@json_option
def export_command(
    run: str, folder: Path | None, conversations: bool, root: Path, as_json: bool
) -> None:
    """Write episodes.json, rewards.csv, learned_behaviors.json and summary.json."""
    from orchestrion._store import RunReader, find_run
    from orchestrion._store.exports import export_run

    with RunReader(find_run(run, root)) as store:
        paths = [str(path) for path in export_run(store, folder, conversations)]
    if as_json:
        emit({"files": paths})
    else:
        click.echo("\n".join(paths))


# ------------------------------------------------------------------------------------ prune


@command.command("prune")
@click.argument("runs", metavar="[RUN]...", nargs=-1)
@click.option(
    "--retention",
    type=click.Choice(["all", "turns", "episodes", "none"]),
    help="Keep no more than this of the episodes and calls of each RUN.",
)
@click.option(
    "--checkpoints", type=click.IntRange(min=1), help="Keep only so many checkpoints of each RUN."
)
@click.option("--delete", is_flag=True, help="Delete each RUN as a whole.")
@click.option(
    "--keep-newest",
    type=click.IntRange(min=0),
    metavar="N",
    help="Delete all runs but the N created last; names no RUN.",
)
@click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")
@root_option
@json_option
def prune_command(
    runs: tuple[str, ...],
    retention: Retention | None,
    checkpoints: int | None,
    delete: bool,
    keep_newest: int | None,
    dry_run: bool,
    root: Path,
    as_json: bool,
) -> None:
    """Free disk space: drop parts of runs, or whole runs. A run in use is left alone."""
    from orchestrion._store import find_run

    shrinking = retention is not None or checkpoints is not None
    if [bool(runs) and shrinking, bool(runs) and delete, keep_newest is not None].count(True) != 1:
        raise UsageError(
            "say what to prune: RUN... with --retention or --checkpoints, "
            "or RUN... --delete, or --keep-newest N"
        )
    if keep_newest is not None and runs:
        raise UsageError("--keep-newest N goes over all runs; name no RUN beside it")
    chosen = (
        [find_run(run, root) for run in runs] if keep_newest is None else _older(root, keep_newest)
    )
    results = [_prune(path, retention, checkpoints, shrinking, dry_run) for path in chosen]
    if as_json:
        emit({"dry_run": dry_run, "runs": results})
    for result in () if as_json else results:
        click.echo(f"{result['name']}: {result['action']}, {result['freed'] / 1e6:.1f} MB")
    if not results and not as_json:
        click.echo("nothing to prune")


def _older(root: Path, keep: int) -> list[Path]:
    """All runs but the newest; those in use, or that cannot be read, are not counted."""
    from orchestrion._store import RunReader, run_directories
    from orchestrion._store.lock import lock_holder

    dated = []
    for directory in run_directories(root):
        try:
            with RunReader(directory) as store:
                dated.append((store.created, directory))
        except StoreError as error:
            note(f"left alone: {error}")
    dated.sort(key=lambda pair: pair[0], reverse=True)
    return [path for _, path in dated[keep:] if lock_holder(path) is None]


def _prune(
    directory: Path,
    retention: Retention | None,
    checkpoints: int | None,
    shrinking: bool,
    dry_run: bool,
) -> dict[str, Any]:
    from orchestrion._store import RunStore
    from orchestrion._store.lock import RunLock

    before = _size(directory)
    action = "shrunk" if shrinking else "deleted"
    if dry_run:
        action = f"would be {action}"
    elif shrinking:
        with RunStore.open(directory) as store:
            store.shrink(retention, checkpoints)
    else:
        # The lock makes sure that nobody writes there; a damaged run can be deleted, too.
        lock = RunLock(directory)
        try:
            shutil.rmtree(directory)
        finally:
            lock.release()
    freed = before if not shrinking else 0 if dry_run else before - _size(directory)
    return {"name": directory.name, "directory": str(directory), "action": action, "freed": freed}


def _size(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())
