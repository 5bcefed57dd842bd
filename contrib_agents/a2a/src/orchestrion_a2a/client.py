"""Attempts at calls of an A2A agent, by the official SDK; imported when the agent is opened."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Any, Self

import httpx
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.client.errors import A2AClientError
from a2a.types import a2a_pb2 as pb
from a2a.utils.constants import TransportProtocol
from a2a.utils.errors import A2AError, InternalError
from google.protobuf.json_format import MessageToDict, ParseDict
from orchestrion_llm import Place, described, of_answer

from orchestrion import JSON, Answer, CallError, Usage, hidden
from orchestrion_a2a.agent import A2A, Attempt

_CONNECT = 15.0
_CANCEL = 5.0
LARGEST = 8 * 2**20
"""The maximum of bytes of an answer, which comes as it is: packed, it could unpack to any size."""
_BINDINGS: list[str] = [TransportProtocol.JSONRPC, TransportProtocol.HTTP_JSON]
_RUNNING = (
    pb.TaskState.TASK_STATE_UNSPECIFIED,
    pb.TaskState.TASK_STATE_SUBMITTED,
    pb.TaskState.TASK_STATE_WORKING,
)
_WAITING = (pb.TaskState.TASK_STATE_INPUT_REQUIRED, pb.TaskState.TASK_STATE_AUTH_REQUIRED)


class Client:
    """Asks one agent; its card is read before the first call."""

    def __init__(self, settings: A2A, key: str, http: httpx.AsyncClient) -> None:
        self._settings, self._key, self._http = settings, key, http
        self._client: Any = None
        self._opening = asyncio.Lock()

    @classmethod
    @asynccontextmanager
    async def opened(cls, settings: A2A, key: str) -> AsyncIterator[Self]:
        """Yield a client whose connections are closed at the end."""
        timeout = httpx.Timeout(settings.timeout, connect=_CONNECT)
        headers = {"Accept-Encoding": "identity"}
        if key:
            headers["Authorization"] = f"Bearer {key}"
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(
            timeout=timeout, headers=headers, limits=limits, event_hooks={"response": [_bound]}
        ) as http:
            yield cls(settings, key, http)

    def attempts(self, content: Mapping[str, JSON], name: str, usage: Usage) -> Attempt:
        """Return what makes the attempts at one call.

        Args:
            content: the text, and perhaps data.
            name: of the message, the same in each attempt.
            usage: of a call.
        """
        parts = [pb.Part(text=content["text"])]
        if "data" in content:
            parts.append(pb.Part(data=ParseDict(content["data"], pb.Part().data)))
        message = pb.Message(role=pb.Role.ROLE_USER, message_id=name, parts=parts)
        task = _Task()

        async def attempt(show: Callable[[str], None]) -> Answer:
            settings = self._settings
            spent = None  # reading the card costs nothing
            try:
                async with asyncio.timeout(settings.timeout):
                    client = await self._opened()
                    spent = usage
                    await self._ask(client, message, task, show)
                    return Answer(task.result(), usage)
            except CallError:
                raise
            except TimeoutError:
                text = f"{settings.url}: no end within {settings.timeout:g} s"
                raise CallError(text, spent=spent) from None
            # What is no A2A breaks the SDK in many ways: ParseError, RecursionError, TypeError, ...
            except Exception as error:
                task.ended = False  # the next attempt looks after the task again
                raise self._fault(error, spent) from None

        return attempt

    async def _ask(
        self, client: Any, message: pb.Message, task: _Task, show: Callable[[str], None]
    ) -> None:
        """Send the message, or look after the task that an earlier attempt began."""
        try:
            if not task.id:
                request = pb.SendMessageRequest(message=message)
                async with aclosing(client.send_message(request)) as events:
                    async for event in events:
                        for text in task.add(event):
                            show(text)
                        if task.ended:
                            break
            while not task.ended:
                if not task.id:
                    raise ValueError("the stream ended without a message or a task")
                task.take(await client.get_task(pb.GetTaskRequest(id=task.id)))
                if not task.ended:
                    await asyncio.sleep(self._settings.poll)
        except asyncio.CancelledError:
            await self._cancel(client, task)
            raise
        if task.state in _WAITING:
            await self._cancel(client, task)

    async def _cancel(self, client: Any, task: _Task) -> None:
        """Cancel a task that nobody waits for any more, if the agent can be told."""
        if task.id and (not task.ended or task.state in _WAITING):
            with suppress(Exception):
                async with asyncio.timeout(_CANCEL):
                    await client.cancel_task(pb.CancelTaskRequest(id=task.id))

    async def _opened(self) -> Any:
        """Return the SDK's client, made from the card.

        Raises:
            CallError: the card cannot be used, or would send the key elsewhere.
        """
        async with self._opening:
            if self._client is None:
                url = self._settings.url
                card = await A2ACardResolver(self._http, url).get_agent_card()
                hosts = {
                    _host(interface.url)
                    for interface in card.supported_interfaces
                    if interface.protocol_binding in _BINDINGS
                }
                if not all(re.match("https?://.", host) for host in hosts):
                    raise CallError(
                        f"{url}: the card names an address that is not like https://example.com: "
                        f"{', '.join(sorted(hosts))}",
                        "permanent",
                    )
                if self._key and hosts - {_host(url)}:
                    raise CallError(
                        f"{url}: the card names an address at another host, which must not get "
                        f"the key: {', '.join(sorted(hosts))}",
                        "permanent",
                    )
                config = ClientConfig(
                    # Without a stream the task's name comes at once, so that it can be cancelled,
                    # and looked up if the connection breaks.
                    polling=not card.capabilities.streaming,
                    httpx_client=self._http,
                    supported_protocol_bindings=_BINDINGS,
                )
                try:
                    self._client = ClientFactory(config).create(card)
                except ValueError as error:
                    raise CallError(f"{url}: {error}", "permanent") from None
            return self._client

    def _fault(self, error: Exception, spent: Usage | None) -> CallError:
        """Return the fault of a failed attempt, which took `spent` unless it was refused."""
        url = self._settings.url
        reason = " ".join(hidden(str(error)).split())[:300]
        text = f"{url}: {reason}"
        for cause in _causes(error):
            if isinstance(cause, httpx.HTTPStatusError):
                place = Place("", url, "", self._settings.key_env or "")
                response = cause.response
                fault = of_answer(place, response.status_code, response.headers, b"")
                return CallError(text, fault.fault, fault.retry_after)
            if isinstance(cause, httpx.DecodingError):
                return CallError(f"{url}: {cause}", "malformed", spent=spent)
            if isinstance(cause, (httpx.ConnectError, httpx.ConnectTimeout)):
                return CallError(f"{url}: {described(cause)}")
            if isinstance(cause, httpx.RequestError):
                return CallError(f"{url}: {described(cause)}", spent=spent)
        if isinstance(error, InternalError):
            return CallError(text, spent=spent)
        if isinstance(error, A2AError) and not isinstance(error, A2AClientError):
            return CallError(text, "permanent")
        return CallError(
            f"{url}: an answer that cannot be used: {reason}", "malformed", spent=spent
        )


def _host(url: str) -> str:
    """Return scheme, host and port of an address as the client reads them."""
    parts = httpx.URL(url)
    return f"{parts.scheme}://{parts.netloc.decode()}"


async def _bound(response: httpx.Response) -> None:
    """Let no more than `LARGEST` bytes of an answer be read, and only answers to this request."""
    packed = response.headers.pop("content-encoding", "identity")
    if packed != "identity" and response.is_success:
        raise httpx.DecodingError(f"the answer is packed ({packed:.20}), which was not asked for")
    is_rpc = response.is_success and response.request.method == "POST"
    asked = _read(response.request.content).get("id") if is_rpc else None
    has_events = "text/event-stream" in response.headers.get("content-type", "")
    response.stream = _Bounded(response.stream, asked, has_events)


class _Bounded(httpx.AsyncByteStream):
    """The bytes of an answer. `asked` is the JSON-RPC id of the request; None if it has none."""

    def __init__(self, stream: Any, asked: JSON, has_events: bool) -> None:
        self._stream, self._asked, self._has_events = stream, asked, has_events

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size, body = 0, b""
        async for piece in self._stream:
            size += len(piece)
            if size > LARGEST:
                raise httpx.DecodingError(f"the answer has more than {LARGEST} bytes")
            if self._asked is not None:
                body += piece
                if self._has_events:
                    *events, body = re.split(rb"\r?\n\r?\n", body)
                    for event in events:
                        self._check(b"\n".join(re.findall(rb"^data: ?(.*)", event, re.M)))
            yield piece
        if self._asked is not None:
            self._check(body)

    def _check(self, answer: bytes) -> None:
        """Raise DecodingError for an answer to another request; the SDK reads no ids."""
        read = _read(answer)
        named = read.get("id")
        if read and named != self._asked and not (named is None and "error" in read):
            raise httpx.DecodingError(
                f"an answer to another request: its JSON-RPC id is {named!r:.80} "
                f"and not {self._asked!r}"
            )

    async def aclose(self) -> None:
        await self._stream.aclose()


def _read(text: bytes) -> Mapping[str, JSON]:
    """Return the JSON-RPC object in a text; an empty one if there is none."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) and "jsonrpc" in value else {}


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__


class _Task:
    """What is known of an answer: a message, or a task with its state and artifacts."""

    def __init__(self) -> None:
        self.id = ""
        self.state: Any = pb.TaskState.TASK_STATE_UNSPECIFIED
        self.ended = False
        self._message: list[pb.Part] = []  # in a message, or with the latest state
        self._artifacts: dict[str, list[pb.Part]] = {}

    def add(self, event: pb.StreamResponse) -> list[str]:
        """Take in an event; return the new texts in it."""
        kind = event.WhichOneof("payload")
        if kind == "message":
            self._message, self.ended = list(event.message.parts), True
            self.state = pb.TaskState.TASK_STATE_COMPLETED
            return _texts(self._message)
        if kind == "task":
            self.take(event.task)
            return []
        if kind == "status_update":
            self._named(event.status_update.task_id)
            self._status(event.status_update.status)
            return []
        update = event.artifact_update
        self._named(update.task_id)
        new = list(update.artifact.parts)
        before = self._artifacts.get(update.artifact.artifact_id, []) if update.append else []
        self._artifacts[update.artifact.artifact_id] = [*before, *new]
        return _texts(new)

    def take(self, task: pb.Task) -> None:
        """Take in the whole of a task."""
        self._named(task.id)
        self._artifacts = {
            artifact.artifact_id: list(artifact.parts) for artifact in task.artifacts
        }
        self._status(task.status)

    def _named(self, name: str) -> None:
        """Note the task's name.

        Raises:
            ValueError: it is another task than before.
        """
        if self.id and name != self.id:
            raise ValueError(f"it tells of the task {name!r} and not of {self.id!r}")
        self.id = name

    def _status(self, status: pb.TaskStatus) -> None:
        self.state, self.ended = status.state, status.state not in _RUNNING
        self._message = list(status.message.parts)

    def result(self) -> dict[str, JSON]:
        """Return the content and the data, or why there is none, as the call's record."""
        artifacts = [part for artifact in self._artifacts.values() for part in artifact]
        parts = artifacts or self._message
        objects = [MessageToDict(part.data) for part in parts if part.HasField("data")]
        data = objects[0] if len(objects) == 1 else objects or None
        content = "\n".join(_texts(parts))
        if self.state == pb.TaskState.TASK_STATE_COMPLETED and (content or data is not None):
            return {"content": content, "data": data, "error": ""}
        word = pb.TaskState.Name(self.state).removeprefix("TASK_STATE_").lower().replace("_", " ")
        why = "\n".join(_texts(self._message)) or content or "it gave neither text nor data"
        return {"content": "", "data": None, "error": f"the task ended as {word}: {why}"}


def _texts(parts: list[pb.Part]) -> list[str]:
    return [part.text for part in parts if part.HasField("text")]
