"""`orchestrion runs prune`: free disk space."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from orchestrion._cli.common import emit, json_option, note, root_option
from orchestrion._errors import StoreError, UsageError

if TYPE_CHECKING:
    from orchestrion._store import Retention


@click.command("prune")
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
    """Free disk space: drop parts of runs, or whole runs. A run in use is left alone.

    Runs are not deleted through links.
    """
    from orchestrion._store import find_run

    shrinking = retention is not None or checkpoints is not None
    if [bool(runs) and shrinking, bool(runs) and delete, keep_newest is not None].count(True) != 1:
        raise UsageError(
            "say what to prune: RUN... with --retention or --checkpoints, "
            "or RUN... --delete, or --keep-newest N"
        )
    if keep_newest is not None and runs:
        raise UsageError("--keep-newest N selects among all runs; leave RUN out")
    if keep_newest is not None and shrinking:
        raise UsageError(
            "--keep-newest N deletes runs; leave --retention and --checkpoints out, or name RUN"
        )
    if keep_newest is None:
        named = [find_run(run, root) for run in runs]
        if links := [path for path in named if delete and path.is_symlink()]:
            target = links[0].resolve()
            raise UsageError(f"{links[0]}: is a link; to delete the run, name {target}")
        chosen = list({path.resolve(): path for path in named}.values())
    else:
        chosen = _older(root, keep_newest)
    results = [_prune(path, retention, checkpoints, shrinking, dry_run) for path in chosen]
    if as_json:
        emit({"dry_run": dry_run, "runs": results})
        return
    for result in results:
        click.echo(f"{result['name']}: {result['action']}, {result['freed'] / 1e6:.1f} MB")
    if not results:
        click.echo("nothing to prune")


def _older(root: Path, keep: int) -> list[Path]:
    """Return all runs but the `keep` newest, without links and runs in use or unreadable."""
    from orchestrion._store import RunReader, run_directories
    from orchestrion._store.lock import lock_holder

    dated = []
    for directory in run_directories(root):
        if directory.is_symlink():
            note(f"left alone: {directory}: is a link")
            continue
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
        # The lock ensures that no process writes there. It also works for a damaged run.
        lock = RunLock(directory)
        try:
            shutil.rmtree(directory)
        finally:
            lock.release()
    freed = before if not shrinking else 0 if dry_run else before - _size(directory)
    return {"name": directory.name, "directory": str(directory), "action": action, "freed": freed}


def _size(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())
