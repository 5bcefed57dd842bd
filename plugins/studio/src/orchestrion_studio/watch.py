"""`orchestrion watch`: a run in a terminal, live."""

from __future__ import annotations

import sys

import click

from orchestrion import UsageError


@click.command("watch")
@click.argument("run", metavar="RUN")
def watch(run: str) -> None:
    """Show RUN in the terminal, and follow it while it works.

    Status, progress with time left, curves, who acts, what was spent, baselines and events. The
    run is only read; q leaves the page.
    """
    from orchestrion.runs import find_run

    directory = find_run(run)
    try:
        from orchestrion_studio.watch_app import WatchApp
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "textual":
            raise
        raise UsageError(
            "`orchestrion watch` needs the library textual; install it with: "
            "pip install 'orchestrion-studio[watch]'"
        ) from error
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError(
            "`orchestrion watch` needs a terminal; `orchestrion runs show` prints a run"
        )
    WatchApp(directory).run()
