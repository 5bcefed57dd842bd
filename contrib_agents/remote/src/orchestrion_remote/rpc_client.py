"""Attempts at gRPC calls; imported when the component is opened."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Self

import grpc

from orchestrion import JSON, Answer, CallError, Calls, Fault, Usage, UsageError, hidden
from orchestrion_remote import agent_pb2 as pb
from orchestrion_remote.balance import Balancer
from orchestrion_remote.rpc import Grpc, Tls
from orchestrion_remote.rpc_wire import (
    ACT,
    ACT_STREAM,
    HEALTH,
    NOT_SERVING,
    OPTIONS,
    SERVING,
    message_of,
    reply_from,
)

_CODE = grpc.StatusCode
_READY = grpc.ChannelConnectivity.READY
_BROKEN = (
    grpc.ChannelConnectivity.TRANSIENT_FAILURE,
    grpc.ChannelConnectivity.SHUTDOWN,
)
_HEALTH_SECONDS = 10.0
_CHANNEL = [
    *OPTIONS,
    ("grpc.enable_retries", 0),  # they are the call path's
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 10_000),
    ("grpc.use_local_subchannel_pool", 1),
]

_FAULTS: dict[Any, Fault] = {
    _CODE.RESOURCE_EXHAUSTED: "rate_limit",
    _CODE.UNAVAILABLE: "transient",
    _CODE.CANCELLED: "transient",
    _CODE.ABORTED: "transient",
    _CODE.INTERNAL: "transient",
    _CODE.UNKNOWN: "transient",
    _CODE.DATA_LOSS: "transient",
    _CODE.DEADLINE_EXCEEDED: "transient",
    # Somebody has to act before it makes sense to go on: the run pauses.
    _CODE.FAILED_PRECONDITION: "quota",
    _CODE.UNAUTHENTICATED: "quota",
    _CODE.PERMISSION_DENIED: "quota",
}
_UNSENT = (_CODE.RESOURCE_EXHAUSTED, _CODE.UNAUTHENTICATED, _CODE.PERMISSION_DENIED)


class GrpcClient:
    """See `Client`."""

    def __init__(self, settings: Grpc, agent: str, key: str, channels: Mapping[str, Any]) -> None:
        self._settings, self._agent = settings, agent
        self._metadata = (("authorization", f"Bearer {key}"),) if key else ()
        self.balancer = Balancer(channels, settings.timeout, self._check)

    @classmethod
    @asynccontextmanager
    async def opened(cls, settings: Grpc, path: str, agent: str, key: str) -> AsyncIterator[Self]:
        """Yield a client whose connections are closed at the end.

        Raises:
            UsageError: a certificate cannot be read.
        """
        credentials = None if settings.tls is None else _credentials(settings.tls, path)
        options = list(_CHANNEL)
        if settings.tls is not None and settings.tls.name is not None:
            options.append(("grpc.ssl_target_name_override", settings.tls.name))
        async with AsyncExitStack() as stack:
            channels = {}
            for address in settings.addresses:
                if credentials is None:
                    channel = grpc.aio.insecure_channel(address, options)
                else:
                    channel = grpc.aio.secure_channel(address, credentials, options)
                channels[address] = await stack.enter_async_context(channel)
            yield cls(settings, agent, key, channels)

    async def ask(self, content: JSON, name: str, reserve: Usage, calls: Calls) -> Answer:
        message = message_of(content, self._agent)
        return await self.balancer.call(
            partial(self._act, message=message, reserve=reserve, calls=calls), reserve
        )

    async def _act(
        self, address: str, channel: Any, message: Any, reserve: Usage, calls: Calls
    ) -> Answer:
        await _connected(address, channel)
        try:
            reply = reply_from(await self._response(channel, message, calls))
        except grpc.aio.AioRpcError as error:
            raise _fault(address, error, reserve) from None
        except ValueError as error:
            text = f"{address}: an answer that cannot be used: {error}"
            raise CallError(text, "malformed", spent=reserve) from None
        return self._settings.booked(reply, reserve)

    async def _response(self, channel: Any, message: Any, calls: Calls) -> Any:
        options = {"metadata": self._metadata, "timeout": self._settings.timeout}
        if not calls.watched:
            act = channel.unary_unary(
                ACT, pb.ActRequest.SerializeToString, pb.ActResponse.FromString
            )
            return await act(message, **options)
        stream = channel.unary_stream(
            ACT_STREAM, pb.ActRequest.SerializeToString, pb.ActEvent.FromString
        )
        async for event in stream(message, **options):
            if event.WhichOneof("event") == "response":
                return event.response
            calls.show(event.piece.text)
        raise ValueError("the stream ended without a response")

    async def _check(self, address: str, channel: Any) -> None:
        """Raise a `CallError` if an address is not healthy; one that cannot tell is."""
        check = channel.unary_unary(HEALTH)
        try:
            async with asyncio.timeout(_HEALTH_SECONDS):
                await _connected(address, channel)
                status = await check(b"", metadata=self._metadata)
        except TimeoutError:
            text = f"{address}: no answer within {_HEALTH_SECONDS:g} s"
            raise CallError(text, "overload") from None
        except grpc.aio.AioRpcError as error:
            if error.code() is _CODE.UNIMPLEMENTED:
                return
            raise CallError(_text(address, error), "overload") from None
        if status != SERVING:
            word = "not serving" if status == NOT_SERVING else "not healthy"
            raise CallError(f"{address}: {word}", "overload")


def _credentials(tls: Tls, path: str) -> Any:
    def read(file: Path | None) -> bytes | None:
        if file is None:
            return None
        try:
            return file.read_bytes()
        except OSError as error:
            raise UsageError(f"{path}.tls: {file} cannot be read: {error.strerror}") from None

    return grpc.ssl_channel_credentials(read(tls.ca), read(tls.key), read(tls.cert))


async def _connected(address: str, channel: Any) -> None:
    """Return when there is a connection.

    Raises:
        CallError: there is none, so that nothing was sent.
    """
    state = channel.get_state(try_to_connect=True)
    while state is not _READY:
        if state in _BROKEN:
            raise CallError(f"{address}: no connection")
        await channel.wait_for_state_change(state)
        state = channel.get_state(try_to_connect=True)


def _fault(address: str, error: grpc.aio.AioRpcError, reserve: Usage) -> CallError:
    """Return the fault of a call that was sent: unless it was refused, it may have cost money."""
    code, hint = error.code(), _hint(error)
    if code is _CODE.RESOURCE_EXHAUSTED and "larger than max" in (error.details() or ""):
        # The library says it so, of a request or an answer that is too long.
        return CallError(_text(address, error), "permanent", spent=reserve)
    fault = _FAULTS.get(code, "permanent")
    # A server that names a time to come back refused before it did anything.
    free = fault == "permanent" or code in _UNSENT or hint is not None
    if code is _CODE.UNAVAILABLE and hint is not None:
        fault = "overload"
    return CallError(_text(address, error), fault, hint, None if free else reserve)


def _hint(error: grpc.aio.AioRpcError) -> float | None:
    for name, value in error.trailing_metadata() or ():
        if name == "retry-after":
            try:
                return float(value)
            except ValueError:
                return None
    return None


def _text(address: str, error: grpc.aio.AioRpcError) -> str:
    details = " ".join(hidden(error.details() or "").split())[:300]
    return f"{address}: {error.code().name} {details}".rstrip()
