"""What clients do wrong, or on purpose, is answered or cleaned up after."""

from __future__ import annotations

import http.client
import json
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
from tests.plugins.serve.support import GATE, WAIT, Server, config, served

JSON = {"content-type": "application/json"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("teams")
    teams = [config(folder, "echo", {"only": "Says"}), config(folder, "slow", {"only": "Waits"})]
    with served(*teams) as running:
        yield running


def answer(
    server: Server,
    body: bytes,
    headers: dict[str, str] | None = None,
    path: str = "/v1/chat/completions",
    method: str = "POST",
) -> tuple[int, Any, http.client.HTTPMessage]:
    """Return status, JSON and headers of the answer to a raw request."""
    status, content, sent = server.answer(method, path, body, headers)
    return status, json.loads(content), sent


def chat(**fields: Any) -> bytes:
    return json.dumps(
        {"model": "echo", "messages": [{"role": "user", "content": "hi"}], **fields}
    ).encode()


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (b"", None),
        (b"not json", None),
        (b"\xff\xfe", None),
        (b"[" * 400_000, None),
        (b'{"x": ' + b'{"a":' * 100_000, None),
        (b"[]", None),
        (b'{"model": "echo"}', "messages"),
        (chat(messages=[]), "messages"),
        (chat(messages=[{"role": "user", "content": 5}]), "messages[0].content"),
        (chat(messages=[{"role": "boss", "content": "hi"}]), "messages[0].role"),
        (chat(messages=[{"role": "user", "content": " "}]), "messages[0].content"),
        (chat(messages=[{"role": "assistant", "content": "hi"}]), "messages"),
        (
            chat(messages=[{"role": "user", "content": [{"type": "image_url"}]}]),
            "messages[0].content[0]",
        ),
        (chat(model=7), "model"),
        (chat(stream="yes"), "stream"),
        (chat(orchestrion={"steps": 1}), "orchestrion.steps"),
        (chat(n=2), "n"),
        (chat(tools=[{}]), "tools"),
        (chat(response_format={"type": "json_object"}), "response_format"),
        (b'{"model": "echo", "messages": [{"role": "user", "content": "\\ud800"}]}', None),
    ],
    ids=repr,
)
def test_a_wrong_body_is_named_by_its_field(server: Server, body: bytes, param: str | None) -> None:
    status, data, _ = answer(server, body)
    assert status == 400
    assert data["error"]["param"] == param
    assert data["error"]["message"]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": 5}, "input"),
        ({"input": []}, "input"),
        ({"input": " "}, "input"),
        ({"input": [{"role": "boss", "content": "hi"}]}, "input[0].role"),
        ({"input": [{"type": "function_call", "name": "f"}]}, "input[0]"),
        (
            {"input": [{"role": "user", "content": [{"type": "input_image"}]}]},
            "input[0].content[0]",
        ),
        ({"input": [{"role": "assistant", "content": "hi"}]}, "input"),
        ({"input": "hi", "tools": [{}]}, "tools"),
        ({"input": "hi", "store": True}, "store"),
        ({"input": "hi", "background": True}, "background"),
        ({"input": "hi", "previous_response_id": "resp_1"}, "previous_response_id"),
        ({"input": "hi", "conversation": "conv_1"}, "conversation"),
        ({"input": "hi", "prompt": {"id": "p"}}, "prompt"),
        ({"input": "hi", "text": {"format": {"type": "json_object"}}}, "text.format"),
    ],
    ids=repr,
)
def test_what_a_response_cannot_be_made_of_is_named_by_its_field(
    server: Server, fields: dict[str, Any], param: str
) -> None:
    body = json.dumps({"model": "echo", **fields}).encode()
    status, data, _ = answer(server, body, path="/v1/responses")
    assert (status, data["error"]["param"]) == (400, param)


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
        ({"messages": [{"role": "assistant", "content": "hi"}]}, "messages"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image"}]}]},
            "messages[0].content[0]",
        ),
        ({"system": [{"type": "image"}]}, "system[0]"),
        ({"tools": [{}]}, "tools"),
        ({"output_config": {"format": {"type": "json_schema"}}}, "output_config.format"),
    ],
    ids=repr,
)
def test_what_a_message_cannot_be_made_of_is_named_by_its_field(
    server: Server, fields: dict[str, Any], place: str
) -> None:
    status, data, _ = answer(server, chat(**fields), path="/v1/messages")
    assert (status, data["error"]["type"]) == (400, "invalid_request_error")
    assert data["error"]["message"].startswith(f"{place}: ")


def test_a_large_body_is_refused(server: Server) -> None:
    status, data, _ = answer(server, b"x" * 10_000_000)
    assert (status, data["error"]["code"]) == (413, "body_too_large")


@pytest.mark.parametrize(
    ("headers", "path", "method", "status"),
    [
        ({"content-type": "text/plain"}, "/v1/chat/completions", "POST", 415),
        ({"host": "example.org"}, "/v1/chat/completions", "POST", 403),
        ({"idempotency-key": "x" * 256}, "/v1/chat/completions", "POST", 400),
        ({}, "/v1/chat/completions", "PUT", 405),
        ({}, "/mcp", "GET", 405),
        ({}, "/mcp/", "POST", 404),
        ({}, "/v2", "POST", 404),
    ],
)
def test_other_refusals_have_the_same_shape(
    server: Server, headers: dict[str, str], path: str, method: str, status: int
) -> None:
    found, data, _ = answer(server, chat(), headers, path, method)
    assert found == status
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
            status, data, _ = answer(server, chat(), path=path, method=method)
            assert (status, data["error"]["data"]["code"]) == (501, "not_installed")
            assert f"orchestrion-serve[{extra}]" in data["error"]["message"]
        assert answer(server, chat())[0] == 200


def test_no_text_of_the_client_comes_back_in_headers_or_goes_into_the_log(server: Server) -> None:
    secret = "planted-4711"
    own = {"idempotency-key": secret, "x-request-id": secret}
    status, data, headers = answer(server, chat(model=f"{secret}\r\nset-cookie: a=b"), own)
    assert status == 404
    assert "set-cookie" not in headers
    assert secret not in str(headers)
    assert secret not in str(server.log)
    assert secret in data["error"]["message"]


def test_a_header_split_over_lines_is_refused(server: Server) -> None:
    with raw(server) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nx: a\rb: c\x00\r\n\r\n")
        assert connection.recv(100).startswith(b"HTTP/1.1 400")


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses", "/v1/messages"])
@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_goes_away_cancels_its_episode(
    server: Server, stream: bool, path: str
) -> None:
    GATE.reset()
    before = len(server.log)
    connection = server.connect()
    connection.request("POST", path, chat(model="slow", stream=stream, input="hi"), JSON)
    assert GATE.came.acquire(timeout=WAIT)
    connection.close()
    assert GATE.cancelled.wait(WAIT)
    while len(server.log) == before:
        server.record()
    assert server.log[-1]["error"] == "client_gone"


def test_an_episode_that_takes_too_long_is_cancelled(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    team = config(tmp_path_factory.mktemp("late"), "slow", {"only": "Waits"})
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
    assert answer(server, chat())[0] == 200


def test_an_answer_may_take_longer_than_the_head_of_its_request(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    GATE.reset()
    monkeypatch.setattr("orchestrion._cli.web.HEAD_SECONDS", 0.05)
    with closing(server.connect()) as connection:
        connection.request("POST", "/v1/chat/completions", chat(model="slow"), JSON)
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
    assert answer(server, chat())[0] == 200
    assert capsys.readouterr().err.count("connections are refused") == 1


def test_a_body_that_comes_too_slowly_is_refused(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrion_serve.requests.BODY_SECONDS", 0.05)
    with raw(server) as connection:
        connection.sendall(
            b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\n"
            b"content-type: application/json\r\ncontent-length: 100\r\n\r\n{"
        )
        assert connection.recv(100).startswith(b"HTTP/1.1 408")


def test_of_a_body_of_100_megabytes_only_a_part_is_read(server: Server) -> None:
    piece, sent = b"x" * 1_000_000, 0
    with raw(server) as connection:
        connection.sendall(
            b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\n"
            b"content-type: application/json\r\ncontent-length: 100000000\r\n\r\n"
        )
        try:
            while sent < 100:
                connection.sendall(piece)
                sent += 1
        except OSError:
            pass  # the server has closed the connection
    assert sent < 100
    assert server.record()["error"] == "body_too_large"
    assert answer(server, chat())[0] == 200


def test_a_server_whose_files_leave_no_descriptor_for_clients_does_not_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (4, 4))
    with pytest.raises(UsageError, match="no connection could be taken: nearly all of the 4 file"):
        listener("127.0.0.1", 0)
