"""The commands `studio`, `report` and `watch`: a run in a browser, as a file, in a terminal."""

from __future__ import annotations

import secrets
import sys
from pathlib import Path

import click

from orchestrion import UsageError, is_local
from orchestrion.cli import answer, note


@click.command("studio")
@click.argument(
    "folder",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    default=Path("runs"),
    required=False,
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Where to listen.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8300, show_default=True, help="0: a free one."
)
@click.option(
    "--token",
    envvar="ORCHESTRION_STUDIO_TOKEN",
    help="Let in only who has it; needed for a host that other machines can reach. `new` makes "
    "one up.  [env: ORCHESTRION_STUDIO_TOKEN]",
)
def studio(folder: Path, host: str, port: int, token: str | None) -> None:
    """Show all runs below FOLDER in a browser: while they train, and afterwards.

    Nothing is written, and nothing leaves this machine. Ctrl-C ends it.
    """
    if token == "new":
        token = secrets.token_urlsafe(24)
    if token is None and not is_local(host):
        raise UsageError(f"--host {host}: other machines could reach it; give --token TOKEN")
    if token is not None and len(token) < 16:
        raise UsageError("--token: it has fewer than 16 characters; `--token new` makes one up")
    if token is not None and not (token.isascii() and token.isprintable()):
        raise UsageError("--token: a header cannot carry it; use printable ASCII characters")
    from orchestrion_studio.server import serve

    serve(folder, host, port, token)


@click.command("report")
@click.argument("run", metavar="RUN")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write to this file.  [default: RUN.html here; with --md, print]",
)
@click.option("--md", "as_markdown", is_flag=True, help="Markdown for a pull request instead.")
def report(run: str, output: Path | None, as_markdown: bool) -> None:
    """Write RUN as one self-contained HTML file: results, curves, what was learned, some episodes.

    The file loads nothing and runs no script, so that it opens from disk, anywhere.
    """
    from orchestrion.runs import RunReader, find_run, write_atomic

    directory = find_run(run)
    with RunReader(directory) as store:
        if as_markdown:
            from orchestrion_studio.markdown import markdown_of

            text = markdown_of(store)
        else:
            from orchestrion_studio.self_contained import html_of

            text = html_of(store)
            output = output or Path(f"{store.directory.name}.html")
    if output is None:
        answer(text)
        return
    data = text.encode(errors="replace")
    write_atomic(output.absolute(), [data], "report")
    note(f"{output}: {len(data):,} bytes")


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
