"""`orchestrion studio`: show runs in a browser."""

from __future__ import annotations

import secrets
from pathlib import Path

import click

from orchestrion import UsageError, is_local


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
