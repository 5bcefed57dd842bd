"""Runs the application behind uvicorn until it is interrupted."""

from __future__ import annotations

from pathlib import Path

import uvicorn

from orchestrion.cli import UVICORN, listener, note
from orchestrion_studio.app import create_app
from orchestrion_studio.page import warm
from orchestrion_studio.panels import makers


def serve(folder: Path, host: str, port: int, token: str | None) -> None:
    """Show the runs below a folder until SIGINT or SIGTERM; say where, once it listens.

    Raises:
        UsageError: the address cannot be used.
    """
    config = uvicorn.Config(
        create_app(folder, token=token),
        **UVICORN,
        timeout_graceful_shutdown=1,  # pages that follow a run never end by themselves
    )
    with listener(host, port) as opened:
        warm()
        makers()
        place = f"[{host}]" if ":" in host else host
        address = f"http://{place}:{opened.getsockname()[1]}/"
        note(f"studio: {address}" + (f"?token={token}" if token else ""))
        uvicorn.Server(config).run(sockets=[opened])
