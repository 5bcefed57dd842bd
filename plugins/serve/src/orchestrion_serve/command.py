"""`orchestrion serve`: answer chat completions with trained teams."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from orchestrion import UsageError
from orchestrion.cli import (
    answer,
    block_option,
    emit,
    in_loop,
    json_option,
    note,
    override_option,
    stopped_by_signals,
)
from orchestrion_serve.use_options import SIZE, open_uses, use_options

if TYPE_CHECKING:
    import asyncio

    from orchestrion.runs import Trained
    from orchestrion_serve.keys import Keys
    from orchestrion_serve.requests import Settings
    from orchestrion_serve.versions import Versions


@click.command("serve")
@click.argument("targets", nargs=-1, metavar="RUN...")
@click.option("--host", default="127.0.0.1", show_default=True, help="Where to listen.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8000, show_default=True, help="0: a free one."
)
@click.option(
    "--keys",
    "keys_file",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="API keys: a line NAME SHA256HEX for each, and limits.",
)
@click.option(
    "--concurrency",
    type=click.IntRange(1),
    default=64,
    show_default=True,
    help="Requests at once; more are answered with 429.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(0, min_open=True),
    default=600,
    show_default=True,
    help="Seconds of a request; then 504.",
)
@click.option(
    "--max-body",
    type=SIZE,
    default="1MB",
    show_default=True,
    help="The largest body; beyond it 413.",
)
@click.option(
    "--drain",
    type=click.FloatRange(0),
    default=30,
    show_default=True,
    help="Seconds that requests in flight get after SIGTERM.",
)
@click.option(
    "--max-usd",
    type=click.FloatRange(0, min_open=True),
    help="US dollars of a request; then 402.  [default: no cap]",
)
@click.option(
    "--known-categories",
    is_flag=True,
    help="Answer 400 if a question has none of the categories that its team learned from.",
)
@click.option(
    "--mcp",
    is_flag=True,
    help="Be an MCP server on standard input and output, instead of HTTP.",
)
@use_options
@click.option("--hash-key", is_flag=True, help="Read a key from standard input, print its hash.")
@override_option
@block_option
@click.pass_context
def serve(
    ctx: click.Context,
    /,
    targets: tuple[str, ...],
    host: str,
    port: int,
    keys_file: Path | None,
    concurrency: int,
    timeout: float,
    max_body: int,
    drain: float,
    max_usd: float | None,
    known_categories: bool,
    mcp: bool,
    hash_key: bool,
    overrides: tuple[str, ...],
    block: tuple[str, ...],
    **use: Any,
) -> None:
    """Serve each RUN (or config) as a model: OpenAI's and Anthropic's formats, MCP and A2A.

    Nothing is learned while it serves; `--log` keeps what can be learned from. One line of JSON a
    request is printed, without its contents. SIGTERM or Ctrl-C lets requests in flight finish; a
    second one ends at once. SIGHUP opens each RUN anew.
    """
    from orchestrion_serve.keys import Keys, hash_of

    if hash_key:
        click.echo(hash_of(sys.stdin.readline().strip()))
        return
    if not targets:
        raise UsageError("name a run or a config to serve")
    from orchestrion_serve.requests import Settings
    from orchestrion_serve.versions import versions_of

    settings = Settings(concurrency, timeout, max_body, drain, max_usd, known_categories)
    changes = {"overrides": overrides, "block": block}
    opening = versions_of(targets, **changes)
    if mcp:
        _refuse_with_mcp(ctx)
        in_loop(_serve_stdio(opening, settings, _Lines(sys.stderr)))
        return
    keys = Keys.read(keys_file) if keys_file is not None else None
    lines = _Lines(sys.stdout)  # in the loop, this name is another stream
    in_loop(_serve(opening, host, port, settings, keys, lines, {**use, **changes}))


def _refuse_with_mcp(ctx: click.Context) -> None:
    """Refuse the options that only act over HTTP.

    Raises:
        UsageError: one of them was given.
    """
    both = {"concurrency", "timeout", "drain", "max_usd", "known_categories"}
    both |= {"mcp", "overrides", "block", "targets"}
    for param in ctx.command.params:
        given = ctx.get_parameter_source(param.name or "")
        if param.name not in both and given is click.core.ParameterSource.COMMANDLINE:
            raise UsageError(f"--mcp: {param.opts[0]} acts over HTTP only; leave it out")


@click.command("serve-log")
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False, exists=True))
@json_option
def serve_log(folder: Path, as_json: bool) -> None:
    """Show what the log of a served model says: versions, feedback, and trials of versions."""
    from orchestrion_serve.showing import document_of, lines_of

    document = document_of(folder)
    if as_json:
        emit(document)
        return
    for line in lines_of(document):
        answer(line)


async def _serve(
    opening: AbstractAsyncContextManager[Versions],
    host: str,
    port: int,
    settings: Settings,
    keys: Keys | None,
    log: _Lines,
    use: Mapping[str, Any],
) -> None:
    import asyncio

    from orchestrion_serve.server import serving

    async with AsyncExitStack() as stack:
        teams = await stack.enter_async_context(opening)
        _notes(teams)
        uses = await open_uses(stack, teams, use, keys)
        stop = asyncio.Event()
        with stopped_by_signals(stop), _reload_on_hangup(teams):
            async with serving(teams, host, port, settings, keys, log, uses) as server:
                note(f"serving {', '.join(teams)} at {server.address}/v1")
                waiting = asyncio.create_task(stop.wait())
                ends: list[asyncio.Future[Any]] = [waiting, server.done, teams.failed]
                await asyncio.wait(ends, return_when="FIRST_COMPLETED")
                waiting.cancel()
                note("stopping: no new requests")
        if teams.failed.done():
            teams.failed.result()


async def _serve_stdio(
    opening: AbstractAsyncContextManager[Versions], settings: Settings, log: _Lines
) -> None:
    import asyncio

    try:
        from orchestrion_serve.mcp_tools import StdioTools
    except ImportError as error:
        raise UsageError(f"--mcp: install orchestrion-serve[mcp]: {error}") from None

    async with opening as teams:
        _notes(teams)
        stop = asyncio.Event()
        with stopped_by_signals(stop), _reload_on_hangup(teams):
            tools = StdioTools(teams, settings, log)
            note(f"serving {', '.join(teams)} by MCP on standard input and output")
            working = asyncio.create_task(tools.serve())
            waiting = asyncio.create_task(stop.wait())
            await asyncio.wait({waiting, working}, return_when="FIRST_COMPLETED")
            waiting.cancel()
            note("stopping: no new calls")
            await tools.drain()
            await working


def _notes(teams: Mapping[str, Trained]) -> None:
    for name, team in teams.items():
        for line in team.notes:
            note(f"{name}: {line}")
        if team.categories:
            known = ", ".join(team.categories[:8])
            field = '`"orchestrion": {"category": "..."}`'
            note(f"{name}: it learned from problems with a category ({known}); send {field}")


@contextmanager
def _reload_on_hangup(teams: Versions) -> Iterator[None]:
    """Open all versions anew at SIGHUP, for as long as the block lasts."""
    import asyncio

    loop = asyncio.get_running_loop()
    work: set[asyncio.Task[None]] = set()

    async def reload() -> None:
        for text in await teams.reload():
            note(text)

    def start() -> None:
        task = asyncio.create_task(reload())
        work.add(task)
        task.add_done_callback(work.discard)

    with suppress(ValueError, RuntimeError):  # not in the main thread
        loop.add_signal_handler(signal.SIGHUP, start)
    try:
        yield
    finally:
        with suppress(ValueError, RuntimeError):
            loop.remove_signal_handler(signal.SIGHUP)


class _Lines:
    """Prints each record as one line of JSON."""

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._told = stream, False

    def __call__(self, record: Mapping[str, object]) -> None:
        """Print a record; whoever reads the lines may go away without ending the server."""
        import json

        try:
            print(json.dumps(record), file=self._stream, flush=True)
        except (OSError, ValueError) as error:
            if not self._told:
                self._told = True
                note(f"requests are not logged any more: standard output: {error}")
            if isinstance(error, BrokenPipeError):  # for good: at the end Python would fail by it
                with open(os.devnull, "w") as nowhere:
                    os.dup2(nowhere.fileno(), self._stream.fileno())
