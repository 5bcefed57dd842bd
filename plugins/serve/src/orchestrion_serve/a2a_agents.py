"""The teams as A2A agents: a card and a JSON-RPC address for each model.

Specification: https://a2a-protocol.org. Nothing is kept between requests: a message is answered by
a message; a stream is a task that ends with it, whose id nobody can ask for afterwards.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from importlib.metadata import version
from typing import Any, NoReturn
from urllib.parse import quote
from uuid import uuid4

from a2a.server.context import ServerCallContext
from a2a.server.request_handlers.request_handler import RequestHandler
from a2a.server.request_handlers.response_helpers import agent_card_to_dict
from a2a.server.routes.common import DefaultServerCallContextBuilder
from a2a.server.routes.jsonrpc_dispatcher import JsonRpcDispatcher
from a2a.types import a2a_pb2 as a2a
from a2a.utils.errors import (
    A2AError,
    ContentTypeNotSupportedError,
    InternalError,
    InvalidParamsError,
    PushNotificationNotSupportedError,
    TaskNotFoundError,
    UnsupportedOperationError,
)
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from orchestrion import Turn
from orchestrion.runs import TeamAnswer
from orchestrion_serve.episodes import answer_of, line_of
from orchestrion_serve.exchange import Service, as_json, refused
from orchestrion_serve.hosted import KEY, Exchange, exchange_of, logged, rpc_error
from orchestrion_serve.refusals import Refusal, wrong

CARD = "/.well-known/agent-card.json"
Event = a2a.Task | a2a.TaskStatusUpdateEvent | a2a.TaskArtifactUpdateEvent


def agent_app(service: Service) -> ASGIApp:
    """Return the application that answers at `/a2a/MODEL`."""
    dispatcher = JsonRpcDispatcher(_Handler(), _Context(), enable_v0_3_compat=True)

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        exchange = exchange_of(scope)
        try:
            exchange.episodes.choose(exchange.call, scope["path_params"]["model"])
            response = await dispatcher.handle_requests(Request(scope, receive))
        except Refusal as refusal:
            response = refused(exchange.call, refusal, rpc_error)
        await response(scope, receive, send)

    return answer


def card_app(service: Service) -> ASGIApp:
    """Return the application that answers with an agent's card; without a model, the only one's."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        exchange = exchange_of(scope)
        models = list(exchange.episodes.names.of(exchange.call.tenant))
        model = scope["path_params"].get("model", models[0] if len(models) == 1 else "")
        try:
            exchange.episodes.choose(exchange.call, model)
            card = _card(model, _address(Request(scope), model), service.admission.keys is not None)
            response = as_json(agent_card_to_dict(card))
        except Refusal:
            message = f"the cards are at /a2a/MODEL{CARD}, with one of: {', '.join(models)}"
            refusal = Refusal(404, "model_not_found", message)
            response = refused(exchange.call, refusal, rpc_error)
        await response(scope, receive, send)

    return answer


def _address(request: Request, model: str) -> str:
    """Return where an agent is, by the address that the client itself used."""
    url = request.base_url
    scheme = request.headers.get("x-forwarded-proto", url.scheme)  # a proxy may speak TLS
    return f"{'https' if scheme == 'https' else 'http'}://{url.netloc}/a2a/{quote(model, safe='')}"


def _card(model: str, address: str, keyed: bool) -> a2a.AgentCard:
    description = f"Asks the team of agents `{model}`, and gives its answer."
    card = a2a.AgentCard(
        name=model,
        description=description,
        version=version("orchestrion-serve"),
        supported_interfaces=[
            a2a.AgentInterface(url=address, protocol_binding="JSONRPC", protocol_version=number)
            for number in ("1.0", "0.3")
        ],
        capabilities=a2a.AgentCapabilities(streaming=True, push_notifications=False),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[a2a.AgentSkill(id="ask", name="Ask", description=description, tags=["team"])],
    )
    if keyed:
        bearer = a2a.HTTPAuthSecurityScheme(scheme="bearer")
        card.security_schemes["key"].CopyFrom(a2a.SecurityScheme(http_auth_security_scheme=bearer))
        card.security_requirements.add().schemes["key"].SetInParent()
    return card


class _Context(DefaultServerCallContextBuilder):
    def build(self, request: Request) -> ServerCallContext:
        """Return the SDK's context, with the admitted request in its state."""
        context = super().build(request)
        context.state[KEY] = exchange_of(request.scope)
        return context


class _Handler(RequestHandler):
    """Answers messages; every other method needs tasks, which are not kept."""

    async def on_message_send(
        self, params: a2a.SendMessageRequest, context: ServerCallContext
    ) -> a2a.Message:
        """Return the team's answer as a message."""
        exchange: Exchange = context.state[KEY]
        try:
            with logged(exchange.call):
                text, category = _text(params), _category(params)
                async with aclosing(exchange.run(text, steps=False, category=category)) as events:
                    async for item in events:
                        if isinstance(item, TeamAnswer):
                            message = _message(answer_of(item))
                            message.metadata.update({"orchestrion": exchange.facts(item)})
                return message
        except Refusal as refusal:
            raise _error(refusal) from None

    async def on_message_send_stream(
        self, params: a2a.SendMessageRequest, context: ServerCallContext
    ) -> AsyncGenerator[Event, None]:
        """Yield a task, its turns if they were asked for, its answer, and how it ended."""
        exchange: Exchange = context.state[KEY]
        begun = False
        try:
            with logged(exchange.call):
                text, steps, category = _text(params), _steps(params), _category(params)
                async with aclosing(exchange.run(text, steps=steps, category=category)) as events:
                    async for item in events:
                        answer = None if isinstance(item, Turn) else answer_of(item)
                        if not begun:
                            yield _task(exchange)
                            begun = True
                        if isinstance(item, Turn):
                            yield _status(exchange, "TASK_STATE_WORKING", line_of(item))
                        elif answer is not None:
                            yield _artifact(exchange, answer)
                            ended = _status(exchange, "TASK_STATE_COMPLETED")
                            ended.metadata.update({"orchestrion": exchange.facts(item)})
                            yield ended
        except Refusal as refusal:
            if not begun:
                raise _error(refusal) from None
            yield _status(exchange, "TASK_STATE_FAILED", f"{refusal.code}: {refusal}")

    async def on_subscribe_to_task(
        self, params: Any, context: ServerCallContext
    ) -> AsyncGenerator[Event, None]:
        """Raise: no task is kept."""
        no_events: tuple[Event, ...] = ()
        for event in no_events:
            yield event
        raise TaskNotFoundError

    async def _no_task(self, params: Any, context: ServerCallContext) -> NoReturn:
        raise TaskNotFoundError

    async def _unsupported(self, params: Any, context: ServerCallContext) -> NoReturn:
        raise UnsupportedOperationError

    async def _no_push(self, params: Any, context: ServerCallContext) -> NoReturn:
        raise PushNotificationNotSupportedError

    on_get_task = on_cancel_task = _no_task  # closing the connection cancels it
    on_list_tasks = on_get_extended_agent_card = _unsupported
    on_create_task_push_notification_config = _no_push
    on_get_task_push_notification_config = _no_push
    on_list_task_push_notification_configs = _no_push
    on_delete_task_push_notification_config = _no_push


class _Unsuitable(Refusal):
    """A message for which the protocol has a specific error."""

    def __init__(self, error: A2AError) -> None:
        super().__init__(400, "invalid_request", str(error))
        self.error = error


def _text(params: a2a.SendMessageRequest) -> str:
    """Return the problem.

    Raises:
        Refusal: the message is not one of text that stands for itself.
    """
    message, configuration = params.message, params.configuration
    if message.task_id or message.reference_task_ids:
        raise _Unsuitable(TaskNotFoundError("no task is kept: leave its id out"))
    if message.context_id:
        raise wrong("no conversation is kept: leave it out, and send what was said", "contextId")
    if configuration.return_immediately:
        text = "no task is kept: wait for the answer, or stream it"
        raise _Unsuitable(UnsupportedOperationError(text))
    if configuration.HasField("task_push_notification_config"):
        raise _Unsuitable(PushNotificationNotSupportedError())
    if message.role != a2a.ROLE_USER:
        raise wrong("the message must have the role ROLE_USER", "role")
    if any(part.WhichOneof("content") != "text" for part in message.parts):
        raise _Unsuitable(ContentTypeNotSupportedError("only parts of text are supported"))
    text = "\n".join(part.text for part in message.parts)
    if not text.strip():
        raise wrong("the message is empty", "parts")
    return text


def _steps(params: a2a.SendMessageRequest) -> bool:
    """Return whether turns were asked for, by `{"orchestrion": {"steps": true}}`."""
    own = params.metadata.fields["orchestrion"].struct_value
    return bool(own.fields["steps"].bool_value)


def _category(params: a2a.SendMessageRequest) -> str:
    """Return the problem's category, from `{"orchestrion": {"category": "..."}}`."""
    own = params.metadata.fields["orchestrion"].struct_value
    return str(own.fields["category"].string_value)


def _message(text: str) -> a2a.Message:
    return a2a.Message(
        message_id=uuid4().hex,
        role=a2a.ROLE_AGENT,
        parts=_parts(text),
    )


def _parts(text: str) -> list[a2a.Part]:
    return [a2a.Part(text=text, media_type="text/plain")]


def _task(exchange: Exchange) -> a2a.Task:
    status = a2a.TaskStatus(state=a2a.TASK_STATE_WORKING)
    return a2a.Task(id=exchange.call.id, context_id=exchange.call.id, status=status)


def _status(exchange: Exchange, state: str, text: str = "") -> a2a.TaskStatusUpdateEvent:
    number = exchange.call.id
    status = a2a.TaskStatus(state=a2a.TaskState.Value(state))
    if text:
        status.message.CopyFrom(_message(text.rstrip()))
    return a2a.TaskStatusUpdateEvent(task_id=number, context_id=number, status=status)


def _artifact(exchange: Exchange, text: str) -> a2a.TaskArtifactUpdateEvent:
    number = exchange.call.id
    artifact = a2a.Artifact(artifact_id=f"{number}-answer", name="answer", parts=_parts(text))
    return a2a.TaskArtifactUpdateEvent(
        task_id=number, context_id=number, artifact=artifact, last_chunk=True
    )


def _error(refusal: Refusal) -> A2AError:
    if isinstance(refusal, _Unsuitable):
        return refusal.error
    place = f"{refusal.param}: " if refusal.param else ""
    if refusal.status == 400:
        return InvalidParamsError(f"{place}{refusal}")
    return InternalError(f"{refusal.code}: {refusal}")
