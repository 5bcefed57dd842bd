"""What every response carries, and who is let in: the application's outermost layer.

Contents are untrusted: an agent may print a script. Templates escape everything, and this layer
tells the browser to run, load and send nothing but the studio's own files.
"""

from __future__ import annotations

import hmac
from urllib.parse import parse_qsl, urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from orchestrion import is_local

COOKIE = "orchestrion_studio"
HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; font-src 'self'; form-action 'self'; base-uri 'none'; "
        "frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


class Secured:
    """Lets in who may, only to read, and adds the headers.

    Args:
        app: the application within.
        token: who has it is let in; None lets in whoever comes by a loopback address, which keeps
            out web sites whose name leads to this machine.
    """

    def __init__(self, app: ASGIApp, token: str | None) -> None:
        self._app, self._token = app, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or hand it on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault("cache-control", "no-store")
            await send(message)

        answer = self._refusal(scope)
        await (answer or self._app)(scope, receive, send_with_headers)

    def _refusal(self, scope: Scope) -> Response | None:
        """Return the answer to a request that gets nothing else; None lets it in."""
        if scope["method"] not in ("GET", "HEAD"):
            return PlainTextResponse("the studio only shows; it takes GET\n", 405)
        headers = Headers(scope=scope)
        if self._token is None:
            if is_local(_host_name(headers.get("host", ""))):
                return None
            return PlainTextResponse("without a token, only loopback addresses are served\n", 403)
        cookies = cookie_parser(headers.get("cookie", ""))
        if self._is_token(_bearer(headers)) or self._is_token(cookies.get(COOKIE, "")):
            return None
        pairs = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        if any(name == "token" and self._is_token(value) for name, value in pairs):
            return self._welcome(scope, [pair for pair in pairs if pair[0] != "token"])
        return PlainTextResponse(
            "open the address with ?token=TOKEN once, or send `Authorization: Bearer TOKEN`\n", 401
        )

    def _is_token(self, given: str) -> bool:
        return self._token is not None and hmac.compare_digest(
            given.encode(errors="replace"), self._token.encode()
        )

    def _welcome(self, scope: Scope, pairs: list[tuple[str, str]]) -> Response:
        """Keep the token in a cookie, and take it out of the address."""
        path = "/" + scope["path"].lstrip("/\\")  # "//host" would lead elsewhere
        answer = RedirectResponse(f"{path}?{urlencode(pairs)}" if pairs else path, 303)
        answer.set_cookie(COOKIE, self._token or "", httponly=True, samesite="strict")
        return answer


def _host_name(host: str) -> str:
    """Return the name in a Host header, without its port."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].lower()


def _bearer(headers: Headers) -> str:
    scheme, _, key = headers.get("authorization", "").partition(" ")
    return key.strip() if scheme.lower() == "bearer" else ""
