"""MCP's own client calls teams as tools, and A2A's calls them as agents."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import httpx2
import pytest
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.helpers import get_message_text, get_stream_response_text
from a2a.types import a2a_pb2 as a2a
from a2a.utils.errors import (
    A2AError,
    ContentTypeNotSupportedError,
    InvalidParamsError,
    TaskNotFoundError,
)
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from orchestrion_serve import Settings

from tests import warm
from tests.plugins.serve.support import (
    ANN,
    CHAT,
    GATE,
    WAIT,
    Server,
    chat,
    config,
    keys_of,
    reviewed,
    served,
)
from tests.workspace import ROOT

BEARER = {"authorization": f"Bearer {ANN}"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("teams")
    teams = [
        config(folder, "echo", {"first": "Says", "second": "Says"}),
        config(folder, "broken", {"only": "Fails"}),
        config(folder, "slow team", {"only": "Waits"}),
        config(folder, "paints", {"only": "Paints"}),
        reviewed(folder, "Says"),
    ]
    with served(*teams, keys=keys_of(ann=None), settings=Settings(concurrency=1)) as running:
        yield running


def raw(
    server: Server, path: str, body: bytes, headers: dict[str, str] | None = None
) -> http.client.HTTPConnection:
    """Send a request by hand."""
    connection = server.connect()
    accepted = {"accept": "application/json, text/event-stream", "a2a-version": "1.0"}
    own = {"content-type": "application/json", **accepted, **BEARER, **(headers or {})}
    connection.request("POST", path, body, own)
    return connection


def tool_call(name: str, **arguments: Any) -> bytes:
    call = {"name": name, "arguments": arguments}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
    return json.dumps(message).encode()


def task(text: str) -> bytes:
    said = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": text}]}
    message = {"jsonrpc": "2.0", "id": 1, "method": "SendStreamingMessage"}
    return json.dumps({**message, "params": {"message": said}}).encode()


MESSAGES = {"model": "reviewed", "max_tokens": 9, "messages": [{"role": "user", "content": "Why?"}]}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (CHAT, chat("reviewed", "Why?")),
        (CHAT, chat("reviewed", "Why?", stream=True)),
        ("/v1/responses", json.dumps({"model": "reviewed", "input": "Why?"}).encode()),
        ("/v1/messages", json.dumps(MESSAGES).encode()),
        ("/mcp", tool_call("reviewed", message="Why?")),
        ("/a2a/reviewed", task("Why?")),
    ],
)
def test_every_protocol_answers_with_the_turn_that_the_task_judges(
    server: Server, path: str, body: bytes
) -> None:
    connection = raw(server, path, body)
    text = connection.getresponse().read().decode()
    connection.close()
    assert '"Why?"' in text
    assert "PASS" not in text


# ---------------------------------------------------------------------------- MCP


async def use(client: Client, name: str, **arguments: Any) -> tuple[Any, list[str | None]]:
    """Return a tool's result, and the messages of its progress."""
    messages: list[str | None] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        messages.append(message)
        assert progress == len(messages)

    return await client.call_tool(name, arguments, progress_callback=note), messages


async def check_echo(client: Client) -> Any:
    """Check a team's answer, and its turns as progress."""
    result, progress = await use(client, "echo", message="Why?")
    assert not result.is_error
    assert [block.text for block in result.content] == ["Why?"]
    output = result.structured_content
    assert (output["answer"], output["finish_reason"]) == ("Why?", "stop")
    assert output["usage"] == {"input_tokens": 6, "output_tokens": 4, "usd": 0.5, "cost": 3.0}
    assert progress == ["first: Why?", "second: Why?"]
    return output


@pytest.mark.parametrize("era", ["auto", "legacy"])
def test_each_team_is_a_tool_over_http(server: Server, era: str) -> None:
    before = len(server.log)

    async def main() -> None:
        async with (
            httpx2.AsyncClient(headers=BEARER) as web,
            Client(
                streamable_http_client(f"{server.address}/mcp", http_client=web), mode=era
            ) as client,
        ):
            tools = (await client.list_tools()).tools
            assert [tool.name for tool in tools] == [
                "echo",
                "broken",
                "slow_team",
                "paints",
                "reviewed",
            ]
            assert tools[0].output_schema is not None  # which the client holds the output against
            output = await check_echo(client)
            result, _ = await use(client, "broken", message="Why?")
            assert result.is_error
            assert "the team gave no answer" in result.content[0].text
            result, _ = await use(client, "echo", text="Why?")
            assert result.is_error
            result, _ = await use(client, "paints", message="Why?")
            assert result.content[1].data == "aGVsbG8="
            with pytest.raises(MCPError, match="no tool 'other'"):
                await use(client, "other", message="Why?")
        lines = server.log[before:]
        assert [(line["model"], line["status"]) for line in lines] == [
            ("echo", 200),
            ("broken", 502),
            ("echo", 400),
            ("paints", 200),
            (None, 404),
        ]
        assert {line["key"] for line in lines} == {"ann"}
        assert (lines[0]["episode"], lines[0]["tokens"]) == (output["episode"], 10)

    asyncio.run(main())


def test_each_team_is_a_tool_over_standard_input_and_output(tmp_path: Path) -> None:
    config(tmp_path, "echo", {"first": "Says", "second": "Says"})
    warm.put_on_path(tmp_path / "bin")
    command = StdioServerParameters(
        command=str(tmp_path / "bin" / "orchestrion"),
        args=["serve", "echo.yaml", "--mcp"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )

    async def main() -> None:
        async with Client(command) as client:
            await check_echo(client)

    asyncio.run(main())


# ---------------------------------------------------------------------------- A2A


def request(
    text: str, role: a2a.Role = a2a.ROLE_USER, settings: Any = None, **more: Any
) -> a2a.SendMessageRequest:
    parts = [a2a.Part(text=text)] if text else [a2a.Part(url="http://a.example/b.png")]
    message = a2a.Message(message_id="m", role=role, parts=parts, **more)
    return a2a.SendMessageRequest(message=message, configuration=settings)


def told(server: Server, model: str, asked: a2a.SendMessageRequest, **settings: Any) -> list[Any]:
    """Return what A2A's client gets for a message to a team."""

    async def main() -> list[Any]:
        async with httpx.AsyncClient(headers=BEARER, timeout=WAIT) as web:
            address = f"{server.address}/a2a/{model}"
            card = await A2ACardResolver(web, address).get_agent_card()
            assert card.security_schemes["key"].http_auth_security_scheme.scheme == "bearer"
            client = ClientFactory(ClientConfig(httpx_client=web, **settings)).create(card)
            return [event async for event in client.send_message(asked)]

    return asyncio.run(main())


def test_each_team_is_an_agent_that_answers_a_message(server: Server) -> None:
    [answer] = told(server, "echo", request("Why?"), streaming=False)
    assert get_message_text(answer.message) == "Why?"
    own = answer.message.metadata["orchestrion"]
    assert (own["usage"]["input_tokens"], own["finish_reason"]) == (6, "stop")
    record = server.record()
    while server.logged.acquire(blocking=False):  # of other tests
        record = server.log[-1]
    assert (record["episode"], record["key"], record["tokens"]) == (own["episode"], "ann", 10)


def test_a_streamed_task_has_the_turns_and_the_answer(server: Server) -> None:
    asked = request("Why?")
    asked.metadata.update({"orchestrion": {"steps": True}})
    events = told(server, "echo", asked)
    kinds = ["task", "status_update", "status_update", "artifact_update", "status_update"]
    assert [event.WhichOneof("payload") for event in events] == kinds
    texts = [get_stream_response_text(event) for event in events]
    assert texts == ["", "first: Why?", "second: Why?", "Why?", ""]
    assert events[-1].status_update.status.state == a2a.TASK_STATE_COMPLETED
    *_, failed = told(server, "broken", asked)
    assert failed.status_update.status.state == a2a.TASK_STATE_FAILED
    assert "the team gave no answer" in get_stream_response_text(failed)


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize(
    ("model", "asked", "error"),
    [
        ("echo", request(" "), InvalidParamsError),
        ("echo", request("And now?", context_id="c"), InvalidParamsError),
        ("echo", request("Why?", a2a.ROLE_AGENT), InvalidParamsError),
        ("echo", request("And now?", task_id="t"), TaskNotFoundError),
        ("echo", request("And now?", reference_task_ids=["t"]), TaskNotFoundError),
        ("echo", request(""), ContentTypeNotSupportedError),
        ("broken", request("Why?"), A2AError),
    ],
)
def test_what_a_team_cannot_answer_is_an_error_of_the_protocol(
    server: Server, model: str, asked: Any, error: type[A2AError], streaming: bool
) -> None:
    with pytest.raises(error):
        told(server, model, asked, streaming=streaming)


TASK, PUSH = {"id": "t"}, {"taskId": "t", "id": "p", "url": "http://a.example"}


@pytest.mark.parametrize(
    ("method", "params", "code"),
    [
        ("GetTask", TASK, -32001),
        ("CancelTask", TASK, -32001),
        ("SubscribeToTask", TASK, -32001),
        ("ListTasks", {}, -32004),
        ("GetExtendedAgentCard", {}, -32004),
        ("CreateTaskPushNotificationConfig", PUSH, -32003),
        ("SendMessage", {"configuration": {"returnImmediately": True}}, -32004),
        ("SendMessage", {"configuration": {"taskPushNotificationConfig": PUSH}}, -32003),
    ],
)
def test_what_would_need_a_task_that_is_kept_is_refused(
    server: Server, method: str, params: dict[str, Any], code: int
) -> None:
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "Why?"}]}
    own = {"message": message, **params} if method == "SendMessage" else params
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": own})
    connection = raw(server, "/a2a/echo", body.encode())
    text = connection.getresponse().read().decode()
    connection.close()
    assert json.loads(text.removeprefix("data: "))["error"]["code"] == code


def test_an_unknown_card_says_where_the_cards_are(server: Server) -> None:
    for path in ("/a2a/other", ""):
        status, data, _ = server.answer(f"{path}/.well-known/agent-card.json", headers=BEARER)
        assert status == 404
        assert "with one of: echo, broken, slow team, paints" in data["error"]["message"]


# ---------------------------------------------------------------------------- both


@pytest.mark.parametrize("path", ["/mcp", "/a2a/echo"])
@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"{}", {"authorization": f"Bearer {'b' * 32}"}, 401),
        (b"not json", {}, 400),
        (b'{"id": "\\ud800"}', {}, 400),
        (b"[" * 400_000, {}, 400),
        (b"[%s]" % tool_call("echo", message="Why?"), {}, 400),
        (b"x" * 2_000_000, {}, 413),
        (b"{}", {"content-type": "text/plain"}, 415),
    ],
    ids=["key", "json", "unicode", "deep", "batch", "large", "type"],
)
def test_a_refused_request_is_answered_in_json_rpc(
    server: Server, path: str, body: bytes, headers: dict[str, str], status: int
) -> None:
    connection = raw(server, path, body, headers)
    response = connection.getresponse()
    data = json.loads(response.read())
    connection.close()
    assert (response.status, data["jsonrpc"], data["id"]) == (status, "2.0", None)
    assert data["error"]["message"]


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/mcp", tool_call("echo", message="Why?"), 200),
        ("/a2a/echo", task("Why?"), 200),
        ("/a2a/other", task("Why?"), 404),
        ("/a2a/x%0d%0aset-cookie:%20a=b", task("Why?"), 404),
    ],
)
def test_headers_name_the_request_of_the_log(
    server: Server, path: str, body: bytes, status: int
) -> None:
    connection = raw(server, path, body)
    response = connection.getresponse()
    response.read()
    connection.close()
    assert response.status == status
    assert response.headers.get_all("x-request-id") == [server.log[-1]["id"]]
    assert "set-cookie" not in response.headers
    if path == "/a2a/echo":  # MCP's answer begins before the episode
        assert response.headers["x-orchestrion-episode"] == server.log[-1]["episode"]


@pytest.mark.parametrize(
    ("path", "body"),
    [("/mcp", tool_call("slow_team", message="wait")), ("/a2a/slow%20team", task("wait"))],
)
def test_a_client_that_goes_away_cancels_its_episode_and_makes_room(
    server: Server, path: str, body: bytes
) -> None:
    GATE.reset()
    before = len(server.log)
    connection = raw(server, path, body)
    assert GATE.came.acquire(timeout=WAIT)
    other = raw(server, path, body)
    response = other.getresponse()
    assert (response.status, response.headers["retry-after"]) == (429, "1")
    other.close()
    connection.close()
    assert GATE.cancelled.wait(WAIT)
    while len(server.log) < before + 2:
        server.record()
    assert server.log[-1]["error"] == "client_gone"
