"""`orchestrion agent-server`: agents of a config for callers on other machines."""

from __future__ import annotations

import os
from pathlib import Path

import click

from orchestrion import Secret, UsageError
from orchestrion.cli import (
    block_option,
    in_loop,
    note,
    override_option,
    stopped_by_signals,
)

_FILE = click.Path(path_type=Path, dir_okay=False, exists=True)
_PORT = click.IntRange(0, 65535)


@click.command("agent-server")
@click.argument("target", metavar="CONFIG")
@click.option(
    "--agent", "names", multiple=True, metavar="NAME", help="Serve this one; by default all."
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Where to listen.")
@click.option("--port", type=_PORT, default=8700, show_default=True, help="Of gRPC; 0: a free one.")
@click.option("--http-port", type=_PORT, help="Of plain HTTP, which is not served without.")
@click.option(
    "--concurrency",
    type=click.IntRange(1),
    default=64,
    show_default=True,
    help="Turns at once; further ones wait.",
)
@click.option(
    "--drain",
    type=click.FloatRange(0),
    default=30,
    show_default=True,
    help="Seconds that turns in flight get after SIGTERM.",
)
@click.option("--key-env", metavar="NAME", help="Variable with the key that callers must send.")
@click.option("--tls-cert", type=_FILE, help="The server's certificate.")
@click.option("--tls-key", type=_FILE, help="Its private key.")
@click.option("--client-ca", type=_FILE, help="Callers need a certificate signed by one of these.")
@override_option
@block_option
def agent_server(
    target: str,
    names: tuple[str, ...],
    host: str,
    port: int,
    http_port: int | None,
    concurrency: int,
    drain: float,
    key_env: str | None,
    tls_cert: Path | None,
    tls_key: Path | None,
    client_ca: Path | None,
    overrides: tuple[str, ...],
    block: tuple[str, ...],
) -> None:
    """Serve agents of CONFIG (or of a run) over gRPC, for the components grpc and http.

    SIGTERM or Ctrl-C lets turns in flight finish; a second one ends at once.
    """
    import asyncio

    from orchestrion.runs import open_run
    from orchestrion_remote.server import Settings, serving

    key = ""
    if key_env is not None:
        key = Secret(key_env, os.environ.get(key_env, "").strip()).reveal()
        if not key:
            raise UsageError(f"the environment variable {key_env} is not set")
        if not (key.isascii() and key.isprintable()):
            raise UsageError(f"{key_env} is not a key: it has unprintable characters")
    settings = Settings(
        concurrency=concurrency,
        drain=drain,
        key=key,
        cert=tls_cert,
        cert_key=tls_key,
        client_ca=client_ca,
    )

    async def serve() -> None:
        stop = asyncio.Event()
        async with open_run(target, overrides, block) as trained:
            for line in trained.notes:
                note(line)
            with stopped_by_signals(stop):
                async with serving(trained, names, host, port, http_port, settings) as server:
                    shown = f"[{host}]" if ":" in host else host
                    places = f"gRPC at {shown}:{server.grpc_port}"
                    if server.http_port is not None:
                        scheme = "http" if settings.cert is None else "https"
                        places += f", {scheme}://{shown}:{server.http_port}/agents/NAME"
                    note(f"serving {', '.join(server.agents.names)}: {places}")
                    await stop.wait()
                    note("stopping: no new requests")

    in_loop(serve())
