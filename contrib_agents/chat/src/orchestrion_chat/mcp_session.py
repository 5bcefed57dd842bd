"""A connection to an MCP server, with the official SDK. Imported when one is opened."""

from __future__ import annotations

import asyncio
import os
import re
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, TextIO
from urllib.parse import urlsplit

import anyio
import httpx2
import msgspec
from attrs import define, field, frozen
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.types import CONNECTION_CLOSED

from orchestrion import (
    JSON,
    CallError,
    Key,
    OpenContext,
    UsageError,
    hidden,
    is_loopback,
    register_named,
)
from orchestrion_chat.functions import definition_bytes
from orchestrion_chat.interfaces import Function, Result
from orchestrion_chat.sees import MOST_IMAGES
from orchestrion_chat.texts import capped

if TYPE_CHECKING:
    from orchestrion_chat.mcp import MCP

_MOST_PAGES = 100
_PAUSE, _LONGEST_PAUSE = 0.25, 30.0
"""Seconds before a restart: none the first time, then doubling."""
IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp")
_SHOWN = 500
"""The maximum of characters of a server's last output in an error."""


@frozen
class _ServerTool:
    """A function as the model sees it, and its name at the server."""

    function: Function
    name: str


@define
class McpSession:
    """A running server, and its tools by the names that models see.

    After a server died or lost the session, the next call starts it or a session again: at once,
    then after growing pauses, at most `restarts` times without an answered call in between.
    """

    settings: MCP
    place: str
    environment: Mapping[str, str] = field(repr=False)
    _tools: dict[str, _ServerTool] = field(factory=dict)
    _client: Client | None = None
    _stderr: TextIO | None = None
    _last_output: str = ""
    _end: asyncio.Event = field(factory=asyncio.Event)
    _task: asyncio.Task[None] | None = None
    _restarting: asyncio.Lock = field(factory=asyncio.Lock)
    _restarts: int = 0
    _forgotten: bool = False

    @staticmethod
    @asynccontextmanager
    async def opened(
        settings: MCP, place: str, environment: Mapping[str, str]
    ) -> AsyncIterator[McpSession]:
        """Yield a session that ends with the block.

        Raises:
            UsageError: the server does not start, or does not offer the allowed tools.
        """
        session = McpSession(settings, place, environment)
        await session._start()
        try:
            yield session
        finally:
            await session._stop()

    async def _start(self) -> Client:
        """Start the server and list its tools.

        Raises:
            UsageError: it does not start, or does not offer the allowed tools.
        """
        ready: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._end, self._forgotten = asyncio.Event(), False
        # In its own task: the SDK's scopes must be left in the task that entered them, and an
        # error in them must not cancel the caller.
        self._task = asyncio.create_task(self._run(ready, self._end))
        try:
            async with asyncio.timeout(self.settings.start_timeout):
                return await asyncio.shield(ready)
        except BaseException as error:
            self._task.cancel()
            await self._stop()
            if isinstance(error, UsageError) or not isinstance(error, Exception):
                raise
            reason = f"{type(error).__name__}: {error}"
            if isinstance(error, TimeoutError):
                reason = f"no answer within {self.settings.start_timeout:g} s (start_timeout)"
            server = f"the MCP server {self._server_name()} does not start"
            raise UsageError(f"{self.place}: {server}: {reason}{self._server_output()}") from None

    async def _stop(self) -> None:
        self._end.set()
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)
        self._task = None

    async def _run(self, ready: asyncio.Future[Client], end: asyncio.Event) -> None:
        try:
            async with AsyncExitStack() as stack:
                transport = await self._transport(stack)
                # No cache: the tools are listed once.
                client = await stack.enter_async_context(Client(transport, cache=None))
                await self._list(client)
                self._client = client
                ready.set_result(client)
                await end.wait()
        except BaseException as error:
            if not ready.done():
                ready.set_exception(_plain(error))
                ready.exception()  # marks it as retrieved if nobody waits
            if not isinstance(error, Exception):
                raise
        finally:
            self._client = None

    async def _connected(self) -> Client:
        """Return the connection, restored if it was lost.

        Raises:
            CallError: that fails; transient as long as a retry may help.
        """
        async with self._restarting:
            if self._client is not None:
                return self._client
            if self._restarts >= self.settings.restarts:
                raise CallError(
                    f"the MCP server {self._server_name()} cannot be reached any more"
                    f"{self._server_output()}; started {self._restarts} times again, and no call "
                    "was answered (restarts)",
                    "permanent",
                )
            if self._restarts:
                await asyncio.sleep(min(_LONGEST_PAUSE, _PAUSE * 2**self._restarts))
            self._restarts += 1
            await self._stop()
            try:
                return await self._start()
            except UsageError as error:
                raise CallError(str(error), "transient") from None

    async def _transport(self, stack: AsyncExitStack) -> Any:
        settings = self.settings
        if settings.command:
            stderr = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115 (the stack's)
            self._stderr = stack.enter_context(stderr)
            stack.callback(self._server_output)  # reads it before the file is closed
            program, *arguments = settings.command
            known = self.environment
            passed_on = {name: known[name] for name in settings.environment if name in known}
            register_named(passed_on)
            server = StdioServerParameters(
                command=program, args=arguments, env=passed_on, cwd=settings.directory
            )
            return stdio_client(server, errlog=self._stderr)
        headers = {}
        if settings.token:
            context = OpenContext(f"{self.place}.token", Key(0), environment=self.environment)
            token = context.secret(settings.token, header=True)
            headers["Authorization"] = f"Bearer {token.reveal()}"
        http = httpx2.AsyncClient(
            headers=headers,
            timeout=httpx2.Timeout(settings.start_timeout, read=settings.timeout + 60),
            follow_redirects=False,
            event_hooks={"response": [self._look]},
            # The environment's proxy is used, except for this machine.
            trust_env=not is_loopback(urlsplit(settings.url).hostname or ""),
        )
        await stack.enter_async_context(http)
        return streamable_http_client(settings.url, http_client=http)

    async def _look(self, response: httpx2.Response) -> None:
        """Notice status 404: the server has lost the session and did not run the call."""
        if response.status_code == 404 and "mcp-session-id" in response.request.headers:
            self._forgotten = True

    async def _list(self, client: Client) -> None:
        """List the server's tools, and keep the allowed ones."""
        offered: dict[str, Any] = {}
        cursor = None
        for _ in range(_MOST_PAGES):
            page = await client.list_tools(cursor=cursor)
            offered |= {tool.name: tool for tool in page.tools}
            cursor = page.next_cursor
            if not cursor:
                break
        tools: dict[str, _ServerTool] = {}
        for name in self.settings.allowed:
            if name not in offered:
                raise UsageError(
                    f"{self.place}: the server has no tool {name!r}; "
                    f"it has {', '.join(sorted(offered)) or 'none'}"
                )
            function = self._function(offered[name])
            if function.name in tools:
                raise UsageError(f"{self.place}: two tools would be called {function.name!r}")
            tools[function.name] = _ServerTool(function, name)
        self._tools = tools

    def _function(self, tool: Any) -> Function:
        """Return a tool of the server as the model sees it."""
        hints = tool.annotations
        reads = hints is not None and hints.read_only_hint is True
        if tool.name in self.settings.allow and not reads:
            raise UsageError(
                f"{self.place}.allow: the server does not declare {tool.name!r} as read-only; "
                "if it may change something, move it to allow_writes"
            )
        shown = self.settings.prefix + re.sub(r"[^A-Za-z0-9_-]", "_", tool.name)
        function = Function(
            shown[:64],
            tool.description or tool.title or "",
            tool.input_schema,
            tool.name in self.settings.allow_writes,
        )
        size = definition_bytes(function)
        if size > self.settings.max_definition:
            raise UsageError(
                f"{self.place}: the definition of {tool.name!r} has {size} bytes; "
                "raise max_definition to allow that"
            )
        return function

    def functions(self) -> list[Function]:
        """Return the functions of the server, as models see them."""
        return [tool.function for tool in self._tools.values()]

    async def call(self, name: str, arguments: Mapping[str, JSON]) -> Result:
        """Call a tool; repeat the call on a new connection if the first was lost and that is safe.

        Raises:
            CallError: the server cannot be reached.
        """
        lost = f"the server {self._server_name()} ended in the middle of the call"
        for _ in range(2):
            client = await self._connected()
            if name not in self._tools:
                raise CallError(f"{self.place}: the server has no {name!r} any more", "permanent")
            tool = self._tools[name]
            result = await self._attempt(client, tool.name, arguments)
            if result is not None:
                self._restarts = 0
                return result
            if self._client is client:  # no other call has restored the connection
                self._client = None
            if tool.function.writes and not self._forgotten:
                return Result(f"{lost}; whether it was done is not known", error=True)
        return Result(f"{lost}, twice{self._server_output()}", error=True)

    async def _attempt(
        self, client: Client, name: str, arguments: Mapping[str, JSON]
    ) -> Result | None:
        """Return the result of a call; None if the connection was lost."""
        try:
            async with asyncio.timeout(self.settings.timeout):
                result = await client.call_tool(name, dict(arguments))
        except TimeoutError:
            return Result(f"no result within {self.settings.timeout:g} s", error=True)
        except MCPError as error:
            if error.code == CONNECTION_CLOSED or self._forgotten:
                return None
            return Result(self._capped(f"{error.message}"), error=True)
        except (anyio.ClosedResourceError, anyio.BrokenResourceError, OSError):
            return None
        except (RuntimeError, ValueError) as error:  # a result that does not fit its declaration
            return Result(self._capped(f"{type(error).__name__}: {error}"), error=True)
        parts = _images(result, self.settings.max_image)
        return Result(self._capped(_text(result, len(parts))), result.is_error, parts)

    def _capped(self, text: str) -> str:
        return capped(text, self.settings.max_result)

    def _server_name(self) -> str:
        return self.settings.url or os.path.basename(self.settings.command[0])

    def _server_output(self) -> str:
        """Return the last output of the server's program, for an error."""
        if self._stderr is not None and not self._stderr.closed:
            self._stderr.seek(0)
            self._last_output = hidden(self._stderr.read().strip())[-_SHOWN:]
        return f"; it said: {self._last_output}" if self._last_output else ""


def _plain(error: BaseException) -> BaseException:
    """Return the first error of a group; a cancellation becomes an error."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error if isinstance(error, Exception) else RuntimeError("it was stopped")


def _images(result: Any, most: int) -> list[dict[str, JSON]]:
    """Return the images of a result for the model, as parts of a message."""
    images = [block for block in result.content if block.type == "image"]
    fitting = [block for block in images if len(block.data) * 3 // 4 <= most]
    return [
        {"type": "image", "media_type": block.mime_type, "data": block.data}
        for block in fitting[:MOST_IMAGES]
        if block.mime_type in IMAGES
    ]


def _text(result: Any, images_shown: int) -> str:
    """Return a result's text, in which other content is only named."""
    parts = []
    for block in result.content:
        if block.type == "text":
            parts.append(block.text)
        elif block.type == "resource" and isinstance(getattr(block.resource, "text", None), str):
            parts.append(block.resource.text)
        elif block.type == "resource_link":
            parts.append(f"[a link to {block.uri}]")
        elif block.type != "image":
            parts.append(f"[{block.type}, not shown]")
    images = sum(block.type == "image" for block in result.content)
    parts += ["[image, not shown]"] * (images - images_shown)
    if not parts and not images_shown and result.structured_content is not None:
        return msgspec.json.encode(result.structured_content).decode()
    return "\n".join(parts)
