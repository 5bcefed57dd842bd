"""The teams as an MCP server: each model is a tool, over HTTP or standard input and output.

Specification: https://modelcontextprotocol.io/specification. Over HTTP each request stands for
itself: there are no sessions, so nothing of one client can reach another. Each finished turn is
reported as progress to a client that gives a progress token.
"""

from __future__ import annotations

import asyncio
import os
import re
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing, suppress
from importlib.metadata import version
from typing import Any

import anyio
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.exceptions import MCPError
from mcp.types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    ContentBlock,
    ImageContent,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    Tool,
)
from starlette.types import ASGIApp, Receive, Scope, Send

from orchestrion import Turn, did_you_mean
from orchestrion.runs import Trained
from orchestrion_serve.episodes import Episodes, answer_of, images_of, line_of
from orchestrion_serve.exchange import Service
from orchestrion_serve.hosted import Exchange, exchange_of, logged
from orchestrion_serve.refusals import Refusal, encodable, wrong
from orchestrion_serve.requests import Call, Log, Settings

Context = ServerRequestContext[Any, Any]

INPUT = {
    "type": "object",
    "properties": {
        "message": {"type": "string", "description": "What the team is to answer."},
        "category": {"type": "string", "description": "Of which kind the message is, if known."},
    },
    "required": ["message"],
    "additionalProperties": False,
}
OUTPUT = {
    "type": "object",
    "properties": {
        "answer": {"type": "string"},
        "finish_reason": {
            "enum": ["stop", "length"],
            "description": "`length` if a limit of the team's config ended its work.",
        },
        "episode": {"type": "string", "description": "The key of the episode's randomness."},
        "usage": {
            "type": "object",
            "description": "Of the whole team.",
            "properties": {
                "input_tokens": {"type": "integer"},
                "output_tokens": {"type": "integer"},
                "usd": {"type": ["number", "null"], "description": "null: not known."},
                "cost": {
                    "type": ["number", "null"],
                    "description": "In the agents' own unit; null: not known.",
                },
            },
            "required": ["input_tokens", "output_tokens", "usd", "cost"],
        },
    },
    "required": ["answer", "finish_reason", "episode", "usage"],
}


def http_app(service: Service) -> ASGIApp:
    """Return the application that answers at `/mcp`."""
    server = _server(_exchange)

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        # One for each request, as nothing is kept between them.
        manager = StreamableHTTPSessionManager(
            server, stateless=True, max_request_body_size=service.admission.settings.max_body
        )
        async with manager.run():
            await manager.handle_request(scope, receive, send)

    return answer


def _exchange(context: Context) -> Exchange:
    """Return the admitted request that a call came with."""
    assert context.request is not None
    return exchange_of(context.request.scope)


class StdioTools:
    """MCP over standard input and output: one client, which started this process."""

    def __init__(self, teams: Mapping[str, Trained], settings: Settings, log: Log) -> None:
        self._log, self._drain_seconds = log, settings.drain
        self._episodes = Episodes(teams, settings)
        self._server = _server(self._exchange)
        self._answering: set[asyncio.Task[Any]] = set()
        self._lines = _Lines()
        self._wire = open(_claimed(1, os.dup(2)), "w", encoding="utf-8")  # noqa: SIM115

    async def serve(self) -> None:
        """Answer until the client closes standard input, or all is drained."""
        # Its annotation asks for more than the iteration that it uses.
        lines: Any = self._lines
        with self._wire as wire:
            async with stdio_server(lines, anyio.wrap_file(wire)) as (reads, writes):
                options = self._server.create_initialization_options()
                await self._server.run(reads, writes, options)

    async def drain(self) -> None:
        """Refuse new calls, wait until those in flight are answered, and end `serve`."""
        await self._episodes.drain()
        if self._answering:
            await asyncio.wait(self._answering, timeout=self._drain_seconds)
        self._lines.end()

    def _exchange(self, context: Context) -> Exchange:
        task = asyncio.current_task()
        assert task is not None
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)
        return Exchange(Call(self._log), self._episodes)


def _server(exchange: Callable[[Context], Exchange]) -> Server[Any]:
    """Return a server that finds the request behind each call of a tool by `exchange`."""

    async def list_tools(
        context: Context, params: PaginatedRequestParams | None
    ) -> ListToolsResult:
        names = _names(exchange(context))
        return ListToolsResult(
            tools=[
                Tool(
                    name=name,
                    description=f"Ask the team of agents `{model}`, and get its answer.",
                    input_schema=INPUT,
                    output_schema=OUTPUT,
                )
                for name, model in names.items()
            ]
        )

    async def call_tool(context: Context, params: CallToolRequestParams) -> CallToolResult:
        request = exchange(context)
        try:
            with logged(request.call):
                names = _names(request)
                if params.name not in names:
                    close = did_you_mean(params.name, names)
                    message = f"there is no tool {params.name!r:.80}{close}"
                    raise Refusal(404, "model_not_found", message)
                request.episodes.choose(request.call, names[params.name])
                data, images = await _answer(context, request, params.arguments or {})
        except Refusal as refusal:
            if refusal.status == 404:
                raise MCPError(INVALID_PARAMS, str(refusal)) from None
            text = f"{refusal.code}: {refusal}"
            return CallToolResult(content=[TextContent(type="text", text=text)], is_error=True)
        content: list[ContentBlock] = [TextContent(type="text", text=data["answer"])]
        for url in images:
            kind, _, image = url.removeprefix("data:").partition(";base64,")
            if image:  # this protocol has none by their address
                content.append(ImageContent(type="image", data=image, mime_type=kind))
        return CallToolResult(content=content, structured_content=data)

    return Server(
        "orchestrion",
        version=version("orchestrion-serve"),
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


async def _answer(
    context: Context, exchange: Exchange, arguments: Mapping[str, Any]
) -> tuple[dict[str, Any], list[str]]:
    """Run an episode, reporting its turns; return the tool's output, and images."""
    message, category = arguments.get("message"), arguments.get("category", "")
    if not isinstance(message, str) or not arguments.keys() <= {"message", "category"}:
        raise wrong("give the text `message` and no other argument but `category`", "message")
    if not isinstance(category, str):
        raise wrong("`category` is a text", "category")
    if not message.strip() or message != encodable(message):
        raise wrong("`message` is empty or not Unicode", "message")
    turns = 0
    async with aclosing(exchange.run(message, steps=True, category=category)) as events:
        async for item in events:
            if isinstance(item, Turn):
                turns += 1
                await context.session.report_progress(turns, message=line_of(item).rstrip())
            else:
                output = {"answer": answer_of(item), **exchange.facts(item)}
                result = output, images_of(item)
    return result


def _names(exchange: Exchange) -> dict[str, str]:
    """Return the models of a client by names that tools may have."""
    names: dict[str, str] = {}
    for model in exchange.episodes.names.of(exchange.call.tenant):
        name = re.sub(r"[^A-Za-z0-9_.-]", "_", model)[:100]
        while name in names:
            name += "_"
        names[name] = model
    return names


def _claimed(number: int, other: int) -> int:
    """Return a copy of a standard stream, which becomes another: agents cannot reach the client."""
    wire = os.dup(number)
    os.dup2(other, number)
    os.close(other)
    return wire


class _Lines:
    """The lines of standard input, read by a thread that does not keep the process alive."""

    def __init__(self) -> None:
        self._wire = _claimed(0, os.open(os.devnull, os.O_RDONLY))
        self._loop = asyncio.get_running_loop()
        self._pieces: asyncio.Queue[bytes] = asyncio.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def end(self) -> None:
        """End the lines, as if the client had."""
        self._pieces.put_nowait(b"")

    def _read(self) -> None:
        piece = b"."
        with suppress(RuntimeError):  # the loop is closed
            while piece:
                piece = os.read(self._wire, 1 << 16)
                self._loop.call_soon_threadsafe(self._pieces.put_nowait, piece)

    async def __aiter__(self) -> AsyncIterator[str]:
        rest = b""
        while piece := await self._pieces.get():
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                yield line.decode(errors="replace")
