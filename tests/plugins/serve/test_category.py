"""A client may say of which category its question is, in each protocol."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from a2a.types import a2a_pb2 as a2a
from a2a.utils.errors import InternalError
from orchestrion_serve import Settings

from tests.end_to_end.test_category_in_use import trained
from tests.plugins.serve.support import CHAT, Server, config, keys_of, served
from tests.plugins.serve.test_hosted import BEARER, request, told, tool_call

ASK = [{"role": "user", "content": "Why?"}]
TABLE = {"use": "by-category", "steps": {"west": ["says"], "": ["fails"]}}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A team that answers questions of the category `west` only."""
    folder = tmp_path_factory.mktemp("teams")
    agents = {"says": "Says", "fails": "Fails"}
    with served(config(folder, "team", agents, policy=TABLE), keys=keys_of(ann=None)) as running:
        yield running


@pytest.mark.parametrize(
    ("own", "status"),
    [
        ({"category": "west"}, 200),
        ({"category": "east"}, 502),
        ({}, 502),
        ({"category": "a\nb"}, 400),
        ({"category": 7}, 400),
        ({"categroy": "west"}, 400),
    ],
)
@pytest.mark.parametrize(
    ("path", "body"),
    [
        (CHAT, {"messages": ASK}),
        ("/v1/responses", {"input": "Why?"}),
        ("/v1/messages", {"messages": ASK, "max_tokens": 9}),
    ],
)
def test_a_request_has_it_in_our_own_field(
    server: Server, path: str, body: dict[str, Any], own: dict[str, Any], status: int
) -> None:
    sent = json.dumps({"model": "team", **body, "orchestrion": own}).encode()
    assert server.answer(path, sent, BEARER)[0] == status


@pytest.mark.parametrize(
    ("own", "failed"), [({"category": "west"}, False), ({}, True), ({"category": 7}, True)]
)
def test_a_tool_has_it_as_an_argument(server: Server, own: dict[str, Any], failed: bool) -> None:
    accepted = {"accept": "application/json, text/event-stream", **BEARER}
    _, data, _ = server.answer("/mcp", tool_call("team", message="Why?", **own), accepted)
    assert ('"isError":true' in data.replace(" ", "")) == failed


def test_a_message_has_it_in_its_metadata(server: Server) -> None:
    asked = request("Why?")
    with pytest.raises(InternalError, match="the team gave no answer"):
        told(server, "team", asked)
    asked.metadata.update({"orchestrion": {"category": "west"}})
    *_, ended = told(server, "team", asked)
    assert ended.status_update.status.state == a2a.TASK_STATE_COMPLETED


def test_a_category_that_the_team_did_not_learn_from_is_told_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = trained(tmp_path, "bandit")
    with served(run) as server:
        for own in ({"category": "west"}, {"category": "north"}, {"category": "north"}, {}):
            assert server.answer(CHAT, sent("made", own))[0] == 200
    said = capsys.readouterr().err
    assert said.count("made: the category 'north' is none of those it learned from: east and") == 1
    assert said.count("made: the team learned from problems with a category") == 1
    assert said.count("warning: ") == 2
    with served(run, settings=Settings(known_categories=True)) as server:
        assert server.answer(CHAT, sent("made", {"category": "west"}))[0] == 200
        status, body, _ = server.answer(CHAT, sent("made", {"category": "north"}))
        assert status == 400
        assert "the category 'north' is none of those" in body["error"]["message"]
        assert server.answer(CHAT, sent("made", {}))[0] == 400


def sent(model: str, own: dict[str, Any]) -> bytes:
    """The body of a request."""
    return json.dumps({"model": model, "messages": ASK, "orchestrion": own}).encode()
