"""The gRPC service; imported when a server starts."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NoReturn

import grpc

from orchestrion import Key, UsageError, View
from orchestrion_remote import agent_pb2 as pb
from orchestrion_remote.body import Reply, view_and_key
from orchestrion_remote.rpc_wire import (
    HEALTH,
    NOT_SERVING,
    OPTIONS,
    SERVICE,
    SERVING,
    reply_message,
    request_from,
)
from orchestrion_remote.server import AGAIN, Agents, RefusedError, Settings

CLOSING = 5.0
"""Seconds that callers get to read the last answers."""

_CODES = {
    "busy": grpc.StatusCode.RESOURCE_EXHAUSTED,
    "stopping": grpc.StatusCode.UNAVAILABLE,
    "unknown": grpc.StatusCode.NOT_FOUND,
    "invalid": grpc.StatusCode.INVALID_ARGUMENT,
    "budget": grpc.StatusCode.FAILED_PRECONDITION,
}


@asynccontextmanager
async def serving_grpc(
    agents: Agents, host: str, port: int, settings: Settings
) -> AsyncIterator[int]:
    """Serve agents until the block ends; yield the port.

    Raises:
        UsageError: the port or a certificate cannot be used.
    """
    server = grpc.aio.server(options=[*OPTIONS, ("grpc.so_reuseport", 0)])
    service = _Service(agents)
    act = grpc.unary_unary_rpc_method_handler(
        service.act, pb.ActRequest.FromString, pb.ActResponse.SerializeToString
    )
    stream = grpc.unary_stream_rpc_method_handler(
        service.act_stream, pb.ActRequest.FromString, pb.ActEvent.SerializeToString
    )
    check = grpc.unary_unary_rpc_method_handler(service.check)
    handlers = (
        (SERVICE, {"Act": act, "ActStream": stream}),
        (HEALTH.split("/")[1], {"Check": check}),
    )
    server.add_generic_rpc_handlers(
        [grpc.method_handlers_generic_handler(name, methods) for name, methods in handlers]
    )
    shown = f"[{host}]" if ":" in host else host
    address = f"{shown}:{port}"
    try:
        if settings.cert is None:
            port = server.add_insecure_port(address)
        else:
            port = server.add_secure_port(address, _credentials(settings))
    except RuntimeError:
        raise UsageError(f"cannot listen on {host}, port {port}") from None
    await server.start()
    try:
        yield port
    finally:
        await server.stop(CLOSING)


def _credentials(settings: Settings) -> Any:
    assert settings.cert is not None
    assert settings.cert_key is not None
    pair = (_read(settings.cert_key), _read(settings.cert))
    if settings.client_ca is None:
        return grpc.ssl_server_credentials([pair])
    return grpc.ssl_server_credentials([pair], _read(settings.client_ca), True)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None


class _Service:
    """The methods. A call that the caller cancels, or whose connection ends, is cancelled here."""

    def __init__(self, agents: Agents) -> None:
        self._agents = agents

    async def act(self, request: Any, context: Any) -> Any:
        view, key = await self._request(request, context)
        try:
            return reply_message(await self._agents.act(request.agent, view, key))
        except RefusedError as error:
            await _refuse(context, error)

    async def act_stream(self, request: Any, context: Any) -> AsyncIterator[Any]:
        """Answer one request, and say what the agent says on the way."""
        view, key = await self._request(request, context)
        events = self._agents.stream(request.agent, view, key)
        try:
            async for event in events:
                if isinstance(event, Reply):
                    yield pb.ActEvent(response=reply_message(event))
                else:
                    yield pb.ActEvent(piece=pb.Piece(agent=event.agent, text=event.text))
        except RefusedError as error:
            await _refuse(context, error)
        finally:
            await events.aclose()

    async def check(self, request: bytes, context: Any) -> bytes:
        return NOT_SERVING if self._agents.stopping else SERVING

    async def _request(self, request: Any, context: Any) -> tuple[View, Key]:
        authorization = dict(context.invocation_metadata() or ()).get("authorization")
        if not self._agents.permits(authorization):
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "the key is missing or wrong")
        try:
            return view_and_key(request_from(request))
        except (UsageError, ValueError) as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
            raise AssertionError from error  # abort has raised


async def _refuse(context: Any, error: RefusedError) -> NoReturn:
    again = (("retry-after", str(AGAIN)),) if error.kind in ("busy", "stopping") else ()
    await context.abort(_CODES[error.kind], str(error), again)
    raise AssertionError  # abort has raised
