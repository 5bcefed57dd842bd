"""`orchestrion runs`: list, show, compare, export and prune what runs have stored."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from orchestrion._cli.common import answer, emit, json_option, root_option, table, time_text
from orchestrion._cli.runs_compare import compare_command
from orchestrion._cli.runs_prune import prune_command
from orchestrion._cli.runs_show import show_command
from orchestrion._errors import StoreError

if TYPE_CHECKING:
    from orchestrion._store import RunReader


@click.group("runs", no_args_is_help=True)
def command() -> None:
    """List, show, compare, export and prune runs.

    RUN is a folder, a name such as repair-3, or repair for the newest of that name.
    """


command.add_command(show_command)
command.add_command(compare_command)
command.add_command(prune_command)


@command.command("list")
@root_option
@json_option
def list_command(root: Path, as_json: bool) -> None:
    """List all runs: how they stand, and the reward of the last training iteration."""
    from orchestrion._store import run_directories
    from orchestrion._store.names import nested_runs

    runs = [_facts(directory) for directory in run_directories(root)]
    if as_json:
        emit({"runs": runs})
    elif not runs:
        click.echo(f"no runs in {root}{nested_runs(root)}")
    else:
        head = ["RUN", "STATUS", "ITERATIONS", "EPISODES", "TRAINING REWARD", "CREATED"]
        answer(table([head, *map(_row, runs)]))


def _facts(directory: Path) -> dict[str, Any]:
    """Return a line of the list; also for a run that cannot be read."""
    from orchestrion._store import RunReader

    facts: dict[str, Any] = {"name": directory.name, "directory": str(directory)}
    try:
        with RunReader(directory) as store:
            return facts | _numbers(store)
    except StoreError as error:
        return facts | {"status": "unreadable", "problem": str(error)}
    # What a damaged database holds may break any of the code that reads it.
    except Exception as error:
        problem = f"{directory}: is damaged ({type(error).__name__}: {error})"
        return facts | {"status": "unreadable", "problem": problem}


def _numbers(store: RunReader) -> dict[str, Any]:
    iterations = store.iterations()
    return {
        "status": store.status,
        "detail": store.detail,
        "iterations": len(iterations),
        "episodes": sum(iteration.episodes for iteration in iterations),
        "reward": iterations[-1].reward if iterations else None,
        "created": time_text(store.created),
        "seconds": store.seconds,
    }


def _row(run: dict[str, Any]) -> list[str]:
    if "problem" in run:
        return [run["name"], run["status"], "", "", "", run["problem"]]
    reward = "" if run["reward"] is None else f"{run['reward']:.3f}"
    counts = [str(run["iterations"]), str(run["episodes"])]
    return [run["name"], run["status"], *counts, reward, run["created"]]


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
@click.option(
    "--parquet",
    is_flag=True,
    help="Write episodes, turns and metrics as Parquet files as well; needs pyarrow.",
)
@root_option
@json_option
def export_command(
    run: str, folder: Path | None, conversations: bool, parquet: bool, root: Path, as_json: bool
) -> None:
    """Write episodes.json, rewards.csv, learned_behaviors.json and summary.json."""
    from orchestrion._store import RunReader, find_run
    from orchestrion._store.exports import export_run

    with RunReader(find_run(run, root)) as store:
        paths = [str(path) for path in export_run(store, folder, conversations, parquet)]
    if as_json:
        emit({"files": paths})
    else:
        click.echo("\n".join(paths))
