"""Anthropic's own client gets answers, streams, models and errors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import anthropic
import pytest
from orchestrion_serve import Settings

from tests.plugins.serve.support import ANN, BEN, GATE, WAIT, Server, config, keys_of, served

ASK: Any = [{"role": "user", "content": "Why?"}]
IN_ORDER = {"use": "sequence", "steps": ["first", "second"]}
THINKING: Any = {"type": "enabled", "budget_tokens": 1024}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("teams")
    teams = [
        config(folder, "echo", {"first": "Says", "second": "Says"}),
        config(folder, "broken", {"only": "Fails"}),
        config(folder, "silent", {"first": "Quiet", "second": "Fails"}, policy=IN_ORDER),
        config(folder, "short", {"only": "Says", "rest": "Says"}, limits={"turns": 1}),
        config(folder, "slow", {"quick": "Says", "slow": "Waits"}),
    ]
    with served(*teams, keys=keys_of(ann=None), settings=Settings(timeout=0.5)) as running:
        yield running


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=server.address, api_key=ANN, timeout=WAIT) as made:
        yield made


def test_a_message_has_the_system_prompt_the_turns_and_the_usage(
    server: Server, client: anthropic.Anthropic
) -> None:
    reply = client.messages.create(model="echo", max_tokens=9, system="Be brief.", messages=ASK)
    [block] = reply.content
    assert block.type == "text"
    assert block.text == "system: Be brief.\n\nWhy?"
    assert reply.stop_reason == "end_turn"
    assert (reply.usage.input_tokens, reply.usage.output_tokens) == (6, 4)
    record = server.record()
    assert (record["id"], record["key"], record["tokens"]) == (reply._request_id, "ann", 10)
    # The next request has the answer, and its thinking, among its messages.
    shown = client.messages.create(model="echo", max_tokens=9, messages=ASK, thinking=THINKING)
    assert [block.type for block in shown.content] == ["thinking", "thinking", "text"]
    type(shown).model_validate(shown.to_dict())  # strictly, unlike the client
    conversation: Any = [*ASK, {"role": "assistant", "content": shown.content}]
    conversation.append({"role": "user", "content": [{"type": "text", "text": "And now?"}]})
    reply = client.messages.create(model="echo", max_tokens=9, messages=conversation)
    assert [b.text for b in reply.content if b.type == "text"] == [
        "user: Why?\nassistant: Why?\n\nAnd now?"
    ]
    short = client.messages.create(model="short", max_tokens=9, messages=ASK)
    assert short.stop_reason == "max_tokens"


def test_a_stream_has_the_turns_as_thinking(client: anthropic.Anthropic) -> None:
    steps = {"orchestrion": {"steps": True}}
    with client.messages.stream(
        model="echo", max_tokens=9, messages=ASK, extra_body=steps
    ) as stream:
        events = list(stream)
        final = stream.get_final_message()
    thoughts = [event.thinking for event in events if event.type == "thinking"]
    for event in events:
        type(event).model_validate(event.to_dict())
    assert thoughts == ["first: Why?\n", "second: Why?\n"]
    assert [block.type for block in final.content] == ["thinking", "thinking", "text"]
    assert stream.get_final_text() == "Why?"
    assert (final.usage.input_tokens, final.usage.output_tokens) == (6, 4)
    assert final.stop_reason == "end_turn"


def test_the_models_are_the_configs(client: anthropic.Anthropic) -> None:
    names = ["echo", "broken", "silent", "short", "slow"]
    assert [model.id for model in client.models.list()] == names
    assert client.models.retrieve("echo").display_name == "echo"


def test_errors_have_the_classes_and_the_shape_of_the_client(
    server: Server, client: anthropic.Anthropic
) -> None:
    with pytest.raises(anthropic.NotFoundError) as missing:
        client.messages.create(model="other", max_tokens=9, messages=ASK)
    assert (missing.value.type, missing.value.error_code) == ("not_found_error", "model_not_found")
    before = len(server.log)
    with pytest.raises(anthropic.InternalServerError, match="the team gave no answer") as broken:
        client.messages.create(model="broken", max_tokens=9, messages=ASK)
    assert (broken.value.type, broken.value.status_code) == ("api_error", 502)
    assert len(server.log) == before + 1, "the client does not try again"
    with pytest.raises(anthropic.InternalServerError, match="the team gave no answer"):
        client.messages.create(model="silent", max_tokens=9, messages=ASK)
    assert "the agent is broken" in server.log[-1]["reason"], "one completed a turn without a text"
    with pytest.raises(anthropic.AuthenticationError) as unknown:
        client.with_options(api_key=BEN).messages.create(model="echo", max_tokens=9, messages=ASK)
    assert unknown.value.type == "authentication_error"
    with pytest.raises(anthropic.NotFoundError) as unserved:
        client.messages.count_tokens(model="echo", messages=ASK)
    assert unserved.value.type == "not_found_error"


def test_an_error_after_the_first_event_ends_the_stream(client: anthropic.Anthropic) -> None:
    GATE.reset()
    with (
        pytest.raises(anthropic.APIStatusError, match="longer than") as late,
        client.messages.stream(
            model="slow", max_tokens=9, messages=ASK, thinking=THINKING
        ) as stream,
    ):
        list(stream)
    assert late.value.type == "timeout_error"
    assert GATE.cancelled.wait(WAIT)
