"""The command `track`: sends a run to a tracker, or what is missing there."""

from __future__ import annotations

import click

from orchestrion import ConfigError, UsageError
from orchestrion.cli import block_option, emit, json_option, note


@click.command("track")
@click.argument("run", metavar="RUN")
@click.option(
    "--to",
    metavar="NAME",
    help="One of the config's trackers, or any tracker: tensorboard, mlflow, wandb, trackio, or "
    "module:Class. By default all of the config's.",
)
@click.option(
    "--option",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    help="A setting of that tracker, e.g. --option uri=sqlite:///mlflow.db.",
)
@block_option
@json_option
def track(
    run: str,
    to: str | None,
    settings: tuple[str, ...],
    block: tuple[str, ...],
    as_json: bool,
) -> None:
    """Send RUN, a folder or its name, to a tracker: what the tracker does not have yet.

    A finished run is sent whole, one that is still running as far as it is.
    """
    import sys
    from contextlib import redirect_stdout

    from orchestrion.config import draft
    from orchestrion.runs import RunReader, find_run, stored_config
    from orchestrion_track.follow import follow

    directory = find_run(run)
    if settings and to is None:
        raise UsageError("--option needs --to: say which tracker it is for")
    file = directory / "config.yaml"
    # The trackers alone: what else the run used need not be installed here.
    changes, name = list[str](), None
    if to is not None:
        with RunReader(directory) as reader:
            known = to in (stored_config(reader).get("trackers") or {})
        name = to if known else "to"
        changes = [f"trackers.{name}.use={to}"] * (not known)
        changes += [f"trackers.{name}.{setting}" for setting in settings]
    try:
        trackers = draft(file, changes, block=block).components("tracker", name)
    except ConfigError as error:
        raise ConfigError([_as_typed(p, f"trackers.{name}.") for p in error.problems]) from None
    if not trackers:
        raise UsageError(f"{directory}: its config has no trackers; name one with --to")
    sent = []
    for tracker in trackers.values():
        tracker.check()
        with redirect_stdout(sys.stderr):
            backend = follow(directory, tracker, lambda seconds: True)
        sent.append({"tracker": tracker.label, "run": backend.id})
        note(f"{directory}: sent to {tracker.label}, run {backend.id}")
    if as_json:
        emit({"run": str(directory), "sent": sent})


def _as_typed(problem: str, prefix: str) -> str:
    """Return a problem of `--to` or `--option` in the words of the command line."""
    path = f"-o {prefix}"
    if not problem.startswith(path):
        return problem
    setting, _, message = problem.removeprefix(path).partition(": ")
    text = message.removeprefix(f"{prefix}{setting}: ")
    return f"--to: {text}" if setting == "use" else f"--option {setting}: {text}"
