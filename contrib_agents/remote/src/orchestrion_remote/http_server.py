"""Agents behind plain HTTP, `POST /agents/NAME` and `GET /health`; imported by a server."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from uvicorn.protocols.http.h11_impl import H11Protocol

from orchestrion import UsageError, is_local
from orchestrion.cli import UVICORN, Impatient, listener, running
from orchestrion_remote.body import LARGEST, view_and_key
from orchestrion_remote.server import AGAIN, Agents, RefusedError, Settings

BODY_SECONDS = 30.0
"""How long a caller may take to send its body."""
CLOSING = 5
"""Seconds that callers get to read the last answers."""

_STATUS = {"busy": 429, "stopping": 503, "unknown": 404, "invalid": 400, "budget": 402}


class _Protocol(Impatient, H11Protocol):
    pass


@asynccontextmanager
async def serving_http(
    agents: Agents, host: str, port: int, settings: Settings
) -> AsyncIterator[int]:
    """Serve agents until the block ends; yield the port.

    Raises:
        UsageError: the port or a certificate cannot be used.
    """
    service = _Service(agents, not settings.key and settings.client_ca is None)
    app = Starlette(
        routes=[
            Route("/agents/{name}", service.act, methods=["POST"]),
            Route("/health", service.health),
        ]
    )
    config = uvicorn.Config(
        app,
        http=_Protocol,
        timeout_graceful_shutdown=CLOSING,
        ssl_certfile=settings.cert,
        ssl_keyfile=settings.cert_key,
        ssl_ca_certs=None if settings.client_ca is None else str(settings.client_ca),
        ssl_cert_reqs=ssl.CERT_NONE if settings.client_ca is None else ssl.CERT_REQUIRED,
        **UVICORN,
    )
    try:
        config.load()
    except OSError as error:
        raise UsageError(f"the certificates cannot be used: {error}") from None
    with listener(host, port) as opened:
        async with running(uvicorn.Server(config), opened):
            yield opened.getsockname()[1]


class _Service:
    def __init__(self, agents: Agents, open_to_all: bool) -> None:
        self._agents, self._open = agents, open_to_all

    async def health(self, request: Request) -> Response:
        return Response(status_code=503 if self._agents.stopping else 200)

    async def act(self, request: Request) -> Response:
        """Answer one request; the agent's work is cancelled if the caller goes away."""
        if not self._agents.permits(request.headers.get("authorization")):
            return _error(401, "the key is missing or wrong")
        kind = request.headers.get("content-type", "").partition(";")[0].strip()
        # A web page in somebody's browser can send neither to this machine.
        local = is_local(request.url.hostname or "")
        if kind != "application/json" or (self._open and not local):
            return _error(
                415, "send the body as `content-type: application/json`, to this machine's own name"
            )
        try:
            async with asyncio.timeout(BODY_SECONDS):
                body = await _body(request)
            view, key = view_and_key(body)
        except TimeoutError:
            return _error(408, "the body did not come in time")
        except UsageError as error:
            return _error(400, str(error))
        except ClientDisconnect:
            return Response(status_code=499)
        work = asyncio.create_task(self._agents.act(request.path_params["name"], view, key))
        gone = asyncio.create_task(_gone(request))
        try:
            await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                return Response(status_code=499)
            return Response(msgspec.json.encode(work.result()), media_type="application/json")
        except RefusedError as error:
            again = {"retry-after": str(AGAIN)} if error.kind in ("busy", "stopping") else {}
            return _error(_STATUS[error.kind], str(error), again)
        finally:
            work.cancel()
            gone.cancel()
            await asyncio.wait({work, gone})


async def _body(request: Request) -> bytes:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > LARGEST:
            raise UsageError(f"a request has at most {LARGEST} bytes")
    return bytes(body)


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _error(status: int, message: str, headers: dict[str, str] | None = None) -> Response:
    body = msgspec.json.encode({"error": {"message": message}})
    return Response(body, status, headers, "application/json")
