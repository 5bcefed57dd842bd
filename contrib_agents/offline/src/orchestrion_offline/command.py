"""Serve simulated speakers to any program: the command `orchestrion llm-stub serve`."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from orchestrion import UsageError

if TYPE_CHECKING:
    from orchestrion_offline.interfaces import Speaker
    from orchestrion_offline.settings import Serving

SHIPPED = ("echo", "scripted", "solver", "reviewer", "coder", "coach", "judge", "router")
"""The speakers that are served, with their default settings, without a file."""


@click.group("llm-stub")
def llm_stub() -> None:
    """A stand-in for the services of OpenAI and Anthropic, on this machine."""


@llm_stub.command()
@click.option("--port", default=0, type=click.IntRange(0, 65535), help="0 takes a free one.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Where it listens.")
@click.option(
    "--speakers",
    "file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="A YAML file with a section `speakers`; without it all are served as they come.",
)
@click.option("--latency", default=0.0, help="Seconds until an answer begins.")
@click.option("--spread", default=0.0, help="How far the latency varies.")
@click.option("--law", type=click.Choice(["uniform", "lognormal"]), default="uniform")
@click.option("--tokens-per-second", default=0.0, help="How fast an answer is written; 0: at once.")
@click.option("--requests-per-minute", default=0, help="Above it the answer is 429; 0: no limit.")
@click.option("--api-key", default="", help="The only key it takes; by default any.")
@click.option(
    "--trouble",
    "troubles",
    multiple=True,
    metavar="NAME=SHARE",
    help="What goes wrong and how often, e.g. rate_limited=0.1; may be repeated.",
)
@click.option("--seed", default=0, help="Other draws for the same requests.")
def serve(
    port: int, host: str, file: Path | None, troubles: tuple[str, ...], **behaviour: Any
) -> None:
    """Serve speakers until Ctrl-C.

    It speaks Chat Completions, Responses and Messages, with streams, tools and batches. Answers
    depend on the request and its Idempotency-Key alone.
    """
    speakers = read_speakers(file)
    asyncio.run(_serve(speakers, _behaviour(behaviour, troubles), host, port))


def read_speakers(path: Path | None) -> Mapping[str, Speaker]:
    """Return speakers by name.

    Args:
        path: a YAML file with the section `speakers`; None is each of `SHIPPED`.

    Raises:
        ConfigError: with everything that is wrong in the file.
    """
    from orchestrion.config import read_section

    shipped = {"speakers": {name: {"use": f"orchestrion-offline:{name}"} for name in SHIPPED}}
    return read_section("speaker", shipped if path is None else path)


def _behaviour(options: Mapping[str, Any], troubles: tuple[str, ...]) -> Serving:
    from orchestrion_offline.settings import TROUBLES, Serving, Troubles

    shares: dict[str, float] = {}
    for text in troubles:
        name, _, value = text.partition("=")
        if name not in TROUBLES:
            raise UsageError(f"--trouble {text}: the names are {', '.join(TROUBLES)}")
        try:
            shares[name] = float(value)
        except ValueError:
            raise UsageError(f"--trouble {text}: expected NAME=SHARE, e.g. {name}=0.1") from None
    for name, number in [*options.items(), *shares.items()]:
        if isinstance(number, float) and not 0 <= number < float("inf"):
            raise UsageError(f"{name}: expected a finite number of 0 or more, got {number}")
    try:
        return Serving(**options, troubles=Troubles(**shares))
    except ValueError as error:
        raise UsageError(f"--trouble: {error}") from None


async def _serve(speakers: Mapping[str, Speaker], behaviour: Serving, host: str, port: int) -> None:
    from orchestrion_offline.server import StubServer

    server = StubServer(speakers, behaviour)
    try:
        await server.start(host, port)
    except OSError as error:
        raise UsageError(f"cannot listen on {host}:{port}: {error.strerror or error}") from None
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        if sys.platform != "win32":
            loop.add_signal_handler(number, stop.set)
    click.echo(_greeting(server.url, list(speakers), bool(behaviour.api_key)))
    sys.stdout.flush()
    try:
        await stop.wait()
    finally:
        await server.close()
        click.echo(f"served {server.requests} requests", err=True)


def _greeting(url: str, names: list[str], locked: bool) -> str:
    # With prices, since a budget in US dollars refuses models without them.
    key = "key_env: STUB_KEY, " if locked else ""
    model = f"model: {names[0]}, {key}price: {{input: 0, output: 0}}, base_url:"
    hint = "which needs no key; other programs send any text as"
    if locked:
        hint = "with the key in STUB_KEY; other programs send it as"
    return f"""\
serving {", ".join(names)}; Ctrl-C ends it
OPENAI_BASE_URL={url}/v1
ANTHROPIC_BASE_URL={url}

in a config:
  models:
    a: {{use: openai, {model} "{url}/v1"}}
    b: {{use: anthropic, {model} "{url}"}}
{hint} OPENAI_API_KEY or ANTHROPIC_API_KEY"""
