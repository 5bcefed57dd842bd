"""Runs the application behind uvicorn until it is interrupted."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import uvicorn

from orchestrion import UsageError
from orchestrion_studio.app import create_app
from orchestrion_studio.page import warm

__all__ = ["serve"]


def serve(
    folder: Path, host: str, port: int, token: str | None, ready: Callable[[str], None]
) -> None:
    """Show the runs below a folder until SIGINT or SIGTERM.

    Args:
        folder: below which all runs are.
        host: where to listen.
        port: 0 takes a free one.
        token: see `create_app`.
        ready: called with the address once it listens.

    Raises:
        UsageError: the address cannot be used.
    """
    config = uvicorn.Config(
        create_app(folder, token=token),
        lifespan="off",
        ws="none",
        log_level="critical",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=1,  # pages that follow a run never end by themselves
    )
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With its protocol named, asyncio sends what is written at once.
    with socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((host, port))
            listener.listen(128)
        except OSError as error:
            raise UsageError(f"cannot listen on {host}, port {port}: {error.strerror}") from None
        warm()
        if hasattr(os, "nice"):
            os.nice(5)  # a training on this machine comes first
        shown = f"[{host}]" if ":" in host else host
        ready(f"http://{shown}:{listener.getsockname()[1]}")
        uvicorn.Server(config).run(sockets=[listener])
