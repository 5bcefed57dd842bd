"""The HTTP interface of opened teams: every route, and the parts that they share."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from orchestrion.runs import Trained
from orchestrion_serve.chat import Chat
from orchestrion_serve.conversation import Question, error_of
from orchestrion_serve.episodes import Episodes
from orchestrion_serve.exchange import Endpoint, Service, as_json, refused
from orchestrion_serve.feedback import PATH as FEEDBACK
from orchestrion_serve.feedback import feedback_endpoint
from orchestrion_serve.hosted import Hosted, rpc_error
from orchestrion_serve.in_use import InUse
from orchestrion_serve.keys import Keys
from orchestrion_serve.messages import Messages
from orchestrion_serve.metrics import CONTENT_TYPE, Metrics
from orchestrion_serve.refusals import Refusal
from orchestrion_serve.requests import Admission, Call, Log, Settings
from orchestrion_serve.responses import Responses

PROTOCOLS: tuple[type[Question], ...] = (Chat, Responses, Messages)
"""The protocols in which a request is one question and gets one answer."""


class Gateway:
    """Serves opened teams; see `serving` for its arguments."""

    def __init__(
        self,
        teams: Mapping[str, Trained],
        settings: Settings,
        keys: Keys | None,
        log: Log,
        uses: Mapping[str, InUse] | None = None,
    ) -> None:
        self._opened = datetime.now(UTC).replace(microsecond=0)
        self._uses = uses or {}
        self._episodes = Episodes(teams, settings, self._uses, keys)
        self._metrics = Metrics(log, self._episodes.running)
        self._admission = Admission(settings, keys, self._episodes.room)
        self._service = service = Service(self._admission, self._episodes, self._metrics)
        self._tools = Hosted("mcp", "orchestrion_serve.mcp_tools:http_app", service)
        self._agents = Hosted("a2a", "orchestrion_serve.a2a_agents:agent_app", service)
        self._cards = Hosted("a2a", "orchestrion_serve.a2a_agents:card_app", service)

    def app(self) -> ASGIApp:
        """Return the ASGI application."""
        questions = {p.path: Endpoint(p, self._service) for p in PROTOCOLS}
        routes = [Route(path, point, methods=["POST"]) for path, point in questions.items()]
        others = Starlette(
            routes=[*routes, *self._others()], exception_handlers={HTTPException: _http_error}
        )
        # Nothing is said of a path, not even that it has another end, before the key is checked.
        others.router.redirect_slashes = False

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            # Questions are not searched for among the routes, which takes as long as parsing them.
            question = scope["method"] == "POST" and questions.get(scope["path"])
            await (question or others)(scope, receive, send)

        return app

    async def prepare(self) -> None:
        """Import the SDKs that are installed, so that no client has to wait for that."""
        for hosted in (self._tools, self._agents, self._cards):
            with suppress(Refusal):
                await hosted.load()

    async def drain(self) -> None:
        """Admit no more requests, and wait for those in flight; cancel what takes too long."""
        await self._episodes.drain()
        if self._admission.keys is not None:
            self._admission.keys.accounts.close()

    def _others(self) -> list[BaseRoute]:
        """Return the routes of everything but the PROTOCOLS."""
        feedback = feedback_endpoint(self._service, self._uses)
        return [
            *([Route(FEEDBACK, feedback, methods=["POST"])] if self._uses else []),
            Route("/mcp", self._tools, methods=["POST"]),
            Route("/a2a/{model}", self._agents, methods=["POST"]),
            Route("/a2a/{model}/.well-known/agent-card.json", self._cards, methods=["GET"]),
            Route("/.well-known/agent-card.json", self._cards, methods=["GET"]),
            Route("/v1/models", self._models),
            Route("/v1/models/{name:path}", self._models),
            Route("/healthz", self._healthz),
            Route("/readyz", self._readyz),
            Route("/metrics", self._show_metrics),
        ]

    async def _healthz(self, request: Request) -> Response:
        return as_json({"status": "ok"})

    async def _readyz(self, request: Request) -> Response:
        if self._episodes.room.closed:
            return as_json({"status": "draining"}, 503)
        return as_json({"status": "ready"})

    async def _show_metrics(self, request: Request) -> Response:
        call = Call(self._metrics, request.scope)
        try:
            self._admission.authenticate(call)
        except Refusal as refusal:
            return refused(call, refusal, error_of)
        models = self._episodes.names.of(call.tenant).values()
        return Response(self._metrics.text(models), media_type=CONTENT_TYPE)

    async def _models(self, request: Request) -> Response:
        call = Call(self._metrics, request.scope)
        try:
            self._admission.authenticate(call)
            name = request.path_params.get("name")
            if name is not None:
                self._episodes.choose(call, name)
                return as_json(self._model(name), 200, call.headers)
            names = self._episodes.names.versions(call.tenant)
            models = [self._model(name) for name in names]
            ends = (names[0], names[-1]) if names else (None, None)
            pages = {"has_more": False, "first_id": ends[0], "last_id": ends[1]}
            return as_json({"object": "list", "data": models, **pages}, 200, call.headers)
        except Refusal as refusal:
            return refused(call, refusal, error_of)

    def _model(self, name: str) -> dict[str, object]:
        """Return a model, with OpenAI's fields and Anthropic's."""
        return {
            "id": name,
            "object": "model",
            "created": int(self._opened.timestamp()),
            "owned_by": "orchestrion",
            "type": "model",
            "display_name": name,
            "created_at": self._opened.isoformat(),
        }


async def _http_error(request: Request, error: Exception) -> Response:
    """Return routing errors (404, 405) in the format of the protocol with the closest path."""
    assert isinstance(error, HTTPException)
    refusal = Refusal(error.status_code, "invalid_url", f"{request.method} is not served here")
    path = request.url.path
    shape = rpc_error if path.startswith(("/mcp", "/a2a")) else error_of
    for protocol in PROTOCOLS:
        if path.startswith(protocol.path):
            shape = protocol.error
    return as_json(shape(refusal), error.status_code, error.headers)
