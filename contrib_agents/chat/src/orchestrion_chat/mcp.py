"""The tool `mcp`: functions of an MCP server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Protocol

from attrs import Factory, asdict, frozen

from orchestrion import JSON, Answer, CallError, Calls, Meta, OpenContext, Request, Usage
from orchestrion_chat.interfaces import ArgumentError, Bounds, Function, Result, Tool
from orchestrion_chat.schemas import misfits
from orchestrion_chat.sees import IMAGE_TOKENS, MOST_IMAGES

Seconds = Annotated[float, Meta(gt=0)]


@frozen
class MCP:
    """The allowed tools of a server that speaks the Model Context Protocol.

    A server is started with the run and stopped after it, or reached over HTTP. A replay does
    neither and uses the record. The model is told of a failing tool. A server that died is
    restarted; the interrupted call is repeated if the tool only reads, and else reported to the
    model as failed. If the server cannot be restarted, the turn fails.

    Args:
        command: program and arguments of a server on standard input and output.
        url: of a server over streamable HTTP, instead of `command`.
        allow: tools that may be called and that the server declares as read-only.
        allow_writes: tools that may be called although they may change something.
        environment: names of variables passed to `command`, beside HOME, PATH and the like.
        directory: the working directory of `command`; by default the current one.
        token: name of the environment variable with a bearer token for `url`.
        prefix: put before the name of each tool, to tell two servers apart.
        timeout: the maximum of seconds of one call; the model is told of a longer one.
        start_timeout: the maximum of seconds until the server answers at the start.
        max_result: the maximum of bytes of a result; a longer one is cut, with a remark.
        max_image: the maximum of bytes of an image that the model is shown, which must support
            images; 0 shows none, and the result's text names them.
        restarts: the maximum of restarts of a dead server between two answered calls.
        max_definition: the maximum of bytes of a tool's name, description and schema.
    """

    command: list[str] = Factory(list)
    url: Annotated[str, Meta(pattern=r"^(https?://\S+)?$")] = ""
    allow: list[str] = Factory(list)
    allow_writes: list[str] = Factory(list)
    environment: list[str] = Factory(list)
    directory: Path | None = None
    token: Annotated[str, Meta(pattern=r"^([A-Za-z_]\w*)?$")] = ""
    prefix: Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]{0,32}$")] = ""
    timeout: Seconds = 60.0
    start_timeout: Seconds = 30.0
    max_result: Annotated[int, Meta(ge=1)] = 8_000
    max_image: Annotated[int, Meta(ge=0)] = 0
    restarts: Annotated[int, Meta(ge=0)] = 10
    max_definition: Annotated[int, Meta(ge=1)] = 8_000

    def __attrs_post_init__(self) -> None:
        if bool(self.command) == bool(self.url):
            raise ValueError("set either command or url")
        if not self.allowed:
            raise ValueError("allow and allow_writes are empty: name the tools that may be called")
        if len({*self.allowed}) < len(self.allowed):
            raise ValueError("allow and allow_writes name a tool twice")
        if self.token and not self.url:
            raise ValueError("token has no effect with command; name the variable in environment")

    @property
    def allowed(self) -> list[str]:
        """The names of all tools that may be called, as the server has them."""
        return [*self.allow, *self.allow_writes]

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[Tool]:
        """Yield the tool; the server runs unless this is a replay or a dry run."""
        name = ctx.path.removeprefix("tools.")
        if not ctx.live:
            yield _Server(self, name)
            return
        from orchestrion_chat.mcp_session import McpSession

        async with McpSession.opened(self, ctx.path, ctx.environment) as session:
            yield _Server(self, name, session)


class _Session(Protocol):
    """What is used of `McpSession`, whose module imports the SDK."""

    def functions(self) -> Sequence[Function]: ...

    async def call(self, name: str, arguments: Mapping[str, JSON]) -> Result: ...


@frozen
class _Server(Tool):
    settings: MCP
    name: str
    session: _Session | None = None

    async def functions(self, calls: Calls) -> Sequence[Function]:
        # Recorded in every activation, so that a replay shows the model the same functions.
        content: JSON = ["tools", self.settings.allowed, self.settings.prefix]

        async def do() -> Answer:
            return Answer([asdict(function) for function in self._running().functions()])

        answer = await calls.run(Request(f"mcp:{self.name}", content), do)
        return [Function(**entry) for entry in answer.data]

    def bounds(self) -> Bounds:
        settings = self.settings
        images = MOST_IMAGES * IMAGE_TOKENS if settings.max_image else 0
        definitions = len(settings.allowed) * settings.max_definition
        return Bounds(definitions, settings.max_result + images)

    async def call(self, function: Function, arguments: Mapping[str, JSON], calls: Calls) -> Result:
        name = function.name
        wrong = misfits(function.schema, dict(arguments))
        if wrong:
            raise ArgumentError("; ".join(wrong))

        async def do() -> Answer:
            result = await self._running().call(name, arguments)
            return Answer(asdict(result), Usage(calls=1))

        # The session's own, shorter timeout is reported to the model.
        limit = self.settings.timeout + 60
        request = Request(f"mcp:{self.name}", ["call", name, dict(arguments)], timeout=limit)
        answer = await calls.run(request, do, Usage(calls=1))
        return Result(**answer.data)

    def _running(self) -> _Session:
        if self.session is None:
            raise CallError(f"the MCP server {self.name} is not started in a replay", "permanent")
        return self.session
