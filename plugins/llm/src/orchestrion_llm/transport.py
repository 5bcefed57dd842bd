"""HTTP for many calls in flight: connections are found in constant time, bodies are bounded.

The usual pool scans all idle connections for every request, which dominates with hundreds of them.
Here every connection is a transport, and the one used last is used next. Imported when a model is
opened, never before.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from functools import cache
from typing import Any
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

import httpx2

from orchestrion import UsageError, is_loopback, register

LARGEST = 32 * 2**20
"""The maximum of bytes of an answer; today's longest have about 1 MB."""

_CONNECT = 15.0
_ONE = httpx2.Limits(max_connections=1, max_keepalive_connections=1, keepalive_expiry=30.0)


_OF_BODY = (b"content-encoding", b"content-length", b"transfer-encoding")


class TooLongError(Exception):
    """Raised for an answer with more bytes than any model writes."""


class EncodedError(Exception):
    """Raised for a compressed answer: it was not requested, and could grow without bound."""


def timeouts(read: float) -> httpx2.Timeout:
    """Return timeouts of single steps; the limiter is the only queue, so the pool has none."""
    return httpx2.Timeout(connect=_CONNECT, read=read, write=read, pool=None)


def http_client(base_url: str, timeout: float) -> httpx2.AsyncClient:
    """Return a client for one server: no redirects, no compression, unlimited connections."""
    return httpx2.AsyncClient(
        transport=_Lanes(_trust(base_url.startswith("https:")), _proxy(base_url)),
        follow_redirects=False,
        timeout=timeouts(timeout),
        headers={"Accept-Encoding": "identity"},
    )


@cache
def _trust(encrypted: bool) -> ssl.SSLContext:
    """Return the trusted certificates, read once (a third of a second); none for plain HTTP."""
    if encrypted:
        return httpx2.create_ssl_context()
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def _proxy(base_url: str) -> str | None:
    """Return the environment's proxy for an address, if any; its password is registered as a
    secret.
    """
    parts = urlsplit(base_url)
    if is_loopback(parts.hostname or "") or proxy_bypass(parts.netloc):
        return None
    proxies = getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    if not proxy:
        return None
    address = proxy if "://" in proxy else f"http://{proxy}"
    register("proxy", unquote(urlsplit(address).password or ""))
    return address


class _Lanes(httpx2.AsyncBaseTransport):
    """Connections to one server, each for one request at a time."""

    def __init__(self, trust: ssl.SSLContext, proxy: str | None) -> None:
        self._trust, self._proxy = trust, proxy
        self._free: list[httpx2.AsyncHTTPTransport] = []
        self._all: set[httpx2.AsyncHTTPTransport] = set()
        try:
            self._free.append(self._open())
        except (ValueError, ImportError) as error:
            failure = f"the proxy that the environment names cannot be used: {error}"
            raise UsageError(failure) from None

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request on a free connection or a new one."""
        lane = self._free.pop() if self._free else self._open()
        try:
            response = await lane.handle_async_request(request)
        except BaseException:
            # Its connection is closed; the next request opens another.
            self._free.append(lane)
            raise
        encoding = response.headers.get("content-encoding", "").strip()
        if encoding.lower() not in ("", "identity"):
            await response.stream.aclose()  # type: ignore[union-attr]
            self._free.append(lane)
            if response.status_code < 300:
                raise EncodedError(f"content-encoding {encoding}")
            # The status is enough; the compressed body is not read.
            headers = [
                header for header in response.headers.raw if header[0].lower() not in _OF_BODY
            ]
            return httpx2.Response(response.status_code, headers=headers)
        response.stream = _Body(response.stream, lane, self._free)
        return response

    def _open(self) -> httpx2.AsyncHTTPTransport:
        lane = httpx2.AsyncHTTPTransport(verify=self._trust, limits=_ONE, proxy=self._proxy)
        self._all.add(lane)
        return lane

    async def aclose(self) -> None:
        """Close every connection."""
        for lane in self._all:
            await lane.aclose()
        self._all.clear()
        self._free.clear()


class _Body(httpx2.AsyncByteStream):
    """A body that raises an error beyond `LARGEST` bytes, and frees its connection."""

    def __init__(
        self,
        inner: Any,
        lane: httpx2.AsyncHTTPTransport,
        free: list[httpx2.AsyncHTTPTransport],
    ) -> None:
        self._inner, self._lane, self._free = inner, lane, free
        self._closed = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for chunk in self._inner:
            size += len(chunk)
            if size > LARGEST:
                raise TooLongError(f"more than {LARGEST} bytes")
            yield chunk

    async def aclose(self) -> None:
        if self._closed:
            return
        self._closed = True
        try:
            await self._inner.aclose()
        finally:
            self._free.append(self._lane)
