"""What clients do wrong, or on purpose, is answered or cleaned up after."""

from __future__ import annotations

import resource
import socket
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import openai
import pytest
from orchestrion_serve import Settings

from orchestrion import UsageError
from orchestrion.cli import listener
from tests.plugins.serve.support import CHAT, GATE, HERE, WAIT, Server, chat, config, served

JSON = {"content-type": "application/json"}
RESPONSES, MESSAGES = "/v1/responses", "/v1/messages"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("teams")
    teams = [
        config(folder, "echo", {"only": "Says"}),
        config(folder, "slow", {"only": "Waits"}),
        config(folder, "picky", {"only": "Says"}, task={"use": f"{HERE}:Picky"}),
    ]
    with served(*teams) as running:
        yield running


@pytest.mark.parametrize("path", [CHAT, RESPONSES, MESSAGES])
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"no",
        b"\xff\xfe",
        b"[" * 400_000,
        b'{"x": ' + b'{"a":' * 100_000,
        b"[]",
        b'["\\ud800"]',
    ],
    ids=["empty", "text", "bytes", "lists", "mappings", "list", "surrogate"],
)
def test_what_is_no_json_object_is_refused(server: Server, path: str, body: bytes) -> None:
    status, data, _ = server.answer(path, body)
    assert status == 400
    assert data["error"]["message"]


def said(content: Any, role: str = "user") -> dict[str, Any]:
    """Return messages, of which there is one."""
    return {"messages": [{"role": role, "content": content}]}


IMAGE = [{"type": "image"}]
WRONG: dict[str, list[tuple[dict[str, Any], str]]] = {
    CHAT: [
        ({"messages": None}, "messages"),
        ({"messages": []}, "messages"),
        (said(5), "messages[0].content"),
        (said("hi", "boss"), "messages[0].role"),
        (said(" "), "messages[0].content"),
        (said("hi", "assistant"), "messages"),
        (said(IMAGE), "messages[0].content[0]"),
        ({"model": 7}, "model"),
        ({"stream": "yes"}, "stream"),
        ({"orchestrion": {"steps": 1}}, "orchestrion.steps"),
        ({"n": 2}, "n"),
        ({"tools": [{}]}, "tools"),
        ({"functions": [{}]}, "functions"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
    ],
    RESPONSES: [
        ({"input": 5}, "input"),
        ({"input": []}, "input"),
        ({"input": " "}, "input"),
        ({"input": [{"role": "boss", "content": "hi"}]}, "input[0].role"),
        ({"input": [{"type": "function_call", "name": "f"}]}, "input[0]"),
        ({"input": [{"role": "user", "content": IMAGE}]}, "input[0].content[0]"),
        ({"input": [{"role": "assistant", "content": "hi"}]}, "input"),
        ({"input": "hi", "tools": [{}]}, "tools"),
        ({"input": "hi", "store": True}, "store"),
        ({"input": "hi", "background": True}, "background"),
        ({"input": "hi", "previous_response_id": "resp_1"}, "previous_response_id"),
        ({"input": "hi", "conversation": "conv_1"}, "conversation"),
        ({"input": "hi", "prompt": {"id": "p"}}, "prompt"),
        ({"input": "hi", "text": {"format": {"type": "json_object"}}}, "text.format"),
    ],
    MESSAGES: [
        ({"messages": []}, "messages"),
        (said(5), "messages[0].content"),
        (said("hi", "assistant"), "messages"),
        (said(IMAGE), "messages[0].content[0]"),
        ({"system": IMAGE}, "system[0]"),
        ({"tools": [{}]}, "tools"),
        ({"mcp_servers": [{}]}, "mcp_servers"),
        ({"output_config": {"format": {"type": "json_schema"}}}, "output_config.format"),
    ],
}


@pytest.mark.parametrize(
    ("path", "fields", "place"),
    [(path, *row) for path, rows in WRONG.items() for row in rows],
    ids=repr,
)
def test_a_wrong_body_is_named_by_its_field(
    server: Server, path: str, fields: dict[str, Any], place: str
) -> None:
    status, data, _ = server.answer(path, chat(**fields))
    error = data["error"]
    assert (status, error["type"]) == (400, "invalid_request_error")
    if path == MESSAGES:
        assert error["message"].startswith(f"{place}: ")
    else:
        assert error["param"] == place


def test_a_text_that_the_task_cannot_use_is_told_apart_from_a_task_that_breaks(
    server: Server,
) -> None:
    status, data, _ = server.ask("picky", text="odd text")
    assert (status, data["error"]["message"]) == (400, "the task cannot use this text: it is odd")
    status, data, _ = server.ask("picky")
    assert (status, data["error"]["code"]) == (500, "internal_error")
    assert "/secret" not in str(data)
    assert server.log[-1]["reason"] == "RuntimeError: at /secret"
    assert server.code("echo") == (200, "")


def test_a_large_body_is_refused(server: Server) -> None:
    status, data, _ = server.answer(CHAT, b"x" * 10_000_000)
    assert (status, data["error"]["code"]) == (413, "body_too_large")


@pytest.mark.parametrize(
    ("headers", "path", "method", "status"),
    [
        ({"content-type": "text/plain"}, CHAT, "POST", 415),
        ({"host": "example.org"}, CHAT, "POST", 403),
        ({"idempotency-key": "x" * 256}, CHAT, "POST", 400),
        ({}, CHAT, "PUT", 405),
        ({}, "/mcp", "GET", 405),
        ({}, "/mcp/", "POST", 404),
        ({}, "/v2", "POST", 404),
    ],
)
def test_other_refusals_have_the_same_shape(
    server: Server, headers: dict[str, str], path: str, method: str, status: int
) -> None:
    got, data, _ = server.answer(path, chat(), headers, method)
    assert got == status
    assert data["error"]["message"]


def test_a_protocol_whose_package_is_missing_is_named_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("mcp_tools", "a2a_agents"):  # they cannot be imported
        monkeypatch.setitem(sys.modules, f"orchestrion_serve.{module}", None)
    with served(config(tmp_path, "echo", {"only": "Says"})) as server:
        for path, method, extra in (
            ("/mcp", "POST", "mcp"),
            ("/a2a/echo", "POST", "a2a"),
            ("/a2a/echo/.well-known/agent-card.json", "GET", "a2a"),
        ):
            status, data, _ = server.answer(path, chat(), method=method)
            assert (status, data["error"]["data"]["code"]) == (501, "not_installed")
            assert f"orchestrion-serve[{extra}]" in data["error"]["message"]
        assert server.ask()[0] == 200


def test_no_text_of_the_client_comes_back_in_headers_or_goes_into_the_log(server: Server) -> None:
    secret = "planted-4711"
    own = {"idempotency_key": secret, "x_request_id": secret}
    status, data, headers = server.ask(f"{secret}\r\nset-cookie: a=b", **own)
    assert status == 404
    assert "set-cookie" not in headers
    assert secret not in str(headers)
    assert secret not in str(server.log)
    assert secret in data["error"]["message"]


def test_a_header_split_over_lines_is_refused(server: Server) -> None:
    with raw(server) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nx: a\rb: c\x00\r\n\r\n")
        assert connection.recv(100).startswith(b"HTTP/1.1 400")


@pytest.mark.parametrize("path", [CHAT, "/v1/responses", "/v1/messages"])
@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_goes_away_cancels_its_episode(
    server: Server, stream: bool, path: str
) -> None:
    GATE.reset()
    before = len(server.log)
    connection = server.connect()
    connection.request("POST", path, chat("slow", stream=stream, input="hi"), JSON)
    assert GATE.came.acquire(timeout=WAIT)
    connection.close()
    assert GATE.cancelled.wait(WAIT)
    while len(server.log) == before:
        server.record()
    assert server.log[-1]["error"] == "client_gone"


def test_an_episode_that_takes_too_long_is_cancelled(
    tmp_path: Path,
) -> None:
    team = config(tmp_path, "slow", {"only": "Waits"})
    with (
        served(team, settings=Settings(timeout=0.2)) as own,
        own.client(max_retries=2) as client,
        pytest.raises(openai.InternalServerError, match="longer than"),
    ):
        client.chat.completions.create(model="slow", messages=[{"role": "user", "content": "wait"}])
    assert GATE.cancelled.wait(WAIT)
    assert len(own.log) == 1, "the client does not try again"


def raw(server: Server) -> socket.socket:
    place = urlsplit(server.address)
    return socket.create_connection((place.hostname or "", place.port or 0), WAIT)


def test_a_head_that_comes_too_slowly_ends_the_connection(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n"
    with raw(server) as used:
        used.sendall(head + b"\r\n")
        assert used.recv(1000).startswith(b"HTTP/1.1 200")
        monkeypatch.setattr("orchestrion._cli.web.HEAD_SECONDS", 0.05)
        used.sendall(head + b"\r\n" + head)
        while used.recv(1000):
            pass  # the answer; then it is closed
    with raw(server) as new:
        new.sendall(head)
        assert new.recv(100) == b""
    monkeypatch.undo()
    assert server.ask()[0] == 200


def test_an_answer_may_take_longer_than_the_head_of_its_request(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    GATE.reset()
    monkeypatch.setattr("orchestrion._cli.web.HEAD_SECONDS", 0.05)
    with closing(server.connect()) as connection:
        connection.request("POST", CHAT, chat("slow"), JSON)
        assert GATE.came.acquire(timeout=WAIT)
        with raw(server) as later:
            assert later.recv(100) == b"", "its time is up, and so would be that of the other one"
        server.open_gate()
        assert connection.getresponse().status == 200


def test_more_connections_than_file_descriptors_are_refused_and_told_of_once(
    server: Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with raw(server) as probe:
        most = probe.fileno() + 10
    monkeypatch.setattr("orchestrion._cli.web._descriptors", lambda: 4 * most // 3)
    refused, opened = 0, []
    while refused < 3:
        opened.append(raw(server))
        opened[-1].sendall(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
        with suppress(ConnectionError):
            if opened[-1].recv(100):
                continue
        refused += 1
    for one in opened:
        one.close()
    monkeypatch.undo()
    assert server.ask()[0] == 200
    assert capsys.readouterr().err.count("connections are refused") == 1


POST = (
    b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\n"
    b"content-type: application/json\r\ncontent-length: %s\r\n\r\n"
)


def test_a_body_that_comes_too_slowly_is_refused(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrion_serve.requests.BODY_SECONDS", 0.05)
    with raw(server) as connection:
        connection.sendall(POST % b"100" + b"{")
        assert connection.recv(100).startswith(b"HTTP/1.1 408")


def test_of_a_body_of_100_megabytes_only_a_part_is_read(server: Server) -> None:
    piece, sent = b"x" * 1_000_000, 0
    with raw(server) as connection, suppress(OSError):  # the server closes the connection
        connection.sendall(POST % b"100000000")
        while sent < 100:
            connection.sendall(piece)
            sent += 1
    assert sent < 100
    assert server.record()["error"] == "body_too_large"
    assert server.ask()[0] == 200


def test_a_server_whose_files_leave_no_descriptor_for_clients_does_not_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (4, 4))
    with pytest.raises(UsageError, match="no connection could be taken: nearly all of the 4 file"):
        listener("127.0.0.1", 0)
