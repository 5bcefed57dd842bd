"""What is sent, and what is read: one form of request and answer, three APIs."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from time import process_time
from typing import Any, Literal

import pytest
from orchestrion_llm.content import images_in, images_of
from orchestrion_llm.models import OpenAIModel
from orchestrion_llm.wire import closed, is_strict

from orchestrion import JSON, Answer, CallError, Key, OpenContext, Request
from tests.plugins.llm.apis import ASK, Api, ask
from tests.service import ModelService, reply, stream

_KEY = Key(2)
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
CLOSED = {**SCHEMA, "additionalProperties": False}
IMAGE = {"type": "image", "media_type": "image/png", "data": "iVBORw0KGgo="}
PDF = {"type": "file", "media_type": "application/pdf", "data": "JVBERi0=", "name": "a.pdf"}
TALK: dict[str, JSON] = {
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "1 + 2, and the weather?"},
        {
            "role": "assistant",
            "content": "I ask.",
            "tool_calls": [
                {"id": "c1", "name": "add", "arguments": '{"a": 1, "b": 2}'},
                {"id": "c2", "name": "look", "arguments": "not json"},
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "3"},
        {"role": "tool", "tool_call_id": "c2", "content": "rain"},
        {"role": "user", "content": "Go on."},
    ],
    "tools": [{"name": "add", "description": "adds", "schema": SCHEMA}],
    "max_tokens": 50,
    "temperature": 0.5,
    "top_p": 0.9,
}


def sent(api: Api, request: dict[str, JSON], **settings: Any) -> Any:
    with ModelService(reply(200, api.good())) as server:
        ask(api.settings(server.url, **settings), request)
    (seen,) = server.seen
    assert seen.path == api.path
    assert seen.headers["authorization"] == "Bearer sk-test-4f9a7c1e8b2d6035"
    return seen.data


def test_a_talk_with_tools_in_the_form_of_messages() -> None:
    body = sent(Api("anthropic"), TALK | {"stop": ["END"]})
    assert body["system"] == "Be brief."
    assert body["messages"] == [
        {"role": "user", "content": "1 + 2, and the weather?"},
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "I ask."},
                {"type": "tool_use", "id": "c1", "name": "add", "input": {"a": 1, "b": 2}},
                {
                    "type": "tool_use",
                    "id": "c2",
                    "name": "look",
                    "input": {"not_an_object": "not json"},
                },
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "c1", "content": "3"},
                {"type": "tool_result", "tool_use_id": "c2", "content": "rain"},
            ],
        },
        {"role": "user", "content": "Go on."},
    ]
    assert body["tools"] == [{"name": "add", "description": "adds", "input_schema": SCHEMA}]
    assert (body["max_tokens"], body["temperature"], body["top_p"]) == (50, 0.5, 0.9)
    assert body["stop_sequences"] == ["END"]


def test_a_talk_with_tools_in_the_form_of_chat() -> None:
    body = sent(Api("chat"), TALK | {"stop": "END"})
    assert [one["role"] for one in body["messages"]] == [
        "system", "user", "assistant", "tool", "tool", "user",
    ]  # fmt: skip
    call = body["messages"][2]["tool_calls"][1]
    assert call == {
        "id": "c2",
        "type": "function",
        "function": {"name": "look", "arguments": "not json"},
    }
    assert body["messages"][3] == {"role": "tool", "tool_call_id": "c1", "content": "3"}
    assert body["tools"][0]["function"]["parameters"] == SCHEMA
    assert (body["max_tokens"], body["temperature"], body["top_p"]) == (50, 0.5, 0.9)
    assert body["stop"] == ["END"]


def test_a_talk_with_tools_in_the_form_of_responses() -> None:
    body = sent(Api("responses"), TALK)
    assert body["instructions"] == "Be brief."
    assert [one.get("type", one.get("role")) for one in body["input"]] == [
        "user", "assistant", "function_call", "function_call",
        "function_call_output", "function_call_output", "user",
    ]  # fmt: skip
    assert body["tools"][0]["parameters"] == SCHEMA
    assert (body["max_output_tokens"], body["temperature"], body["top_p"]) == (50, 0.5, 0.9)
    assert body["store"] is False
    with pytest.raises(CallError, match="takes no stop sequences"):
        sent(Api("responses"), TALK | {"stop": ["END"]})


def test_images_and_files_stand_where_each_api_has_them(api: Api) -> None:
    far = {"type": "image", "url": "https://example.com/a.png"}
    parts = [{"type": "text", "text": "What is it?"}, IMAGE, far, PDF]
    result = [{"type": "text", "text": "3"}, IMAGE]
    calls = TALK["messages"][2]["tool_calls"][:1]
    request: dict[str, JSON] = {
        "messages": [
            {"role": "user", "content": parts},
            {"role": "assistant", "content": "I look.", "tool_calls": calls},
            {"role": "tool", "tool_call_id": "c1", "content": result},
            {"role": "user", "content": "Go on."},
        ]
    }
    body = sent(api, request)
    inline, encoded = "data:image/png;base64,iVBORw0KGgo=", "data:application/pdf;base64,JVBERi0="
    if api.name == "anthropic":
        here = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}
        pdf = {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="}
        assert body["messages"][0]["content"] == [
            {"type": "text", "text": "What is it?"},
            {"type": "image", "source": here},
            {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}},
            {"type": "document", "source": pdf},
        ]
        (result,) = body["messages"][2]["content"]
        shown = [{"type": "text", "text": "3"}, {"type": "image", "source": here}]
        assert result == {"type": "tool_result", "tool_use_id": "c1", "content": shown}
    elif api.name == "chat":
        picture = {"type": "image_url", "image_url": {"url": inline}}
        assert body["messages"][0]["content"] == [
            {"type": "text", "text": "What is it?"},
            picture,
            {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}},
            {"type": "file", "file": {"filename": "a.pdf", "file_data": encoded}},
        ]
        # A tool's message holds texts only there: the image follows in the user's name.
        assert [one["role"] for one in body["messages"]][2:] == ["tool", "user", "user"]
        assert body["messages"][2]["content"] == "3"
        assert body["messages"][3]["content"][1] == picture
    else:
        picture = {"type": "input_image", "image_url": inline}
        assert body["input"][0]["content"] == [
            {"type": "input_text", "text": "What is it?"},
            picture,
            {"type": "input_image", "image_url": "https://example.com/a.png"},
            {"type": "input_file", "filename": "a.pdf", "file_data": encoded},
        ]
        assert body["input"][3]["output"] == [{"type": "input_text", "text": "3"}, picture]


def test_a_tool_can_be_required_or_ruled_out(api: Api) -> None:
    def choice(wanted: str) -> Any:
        return sent(api, {**TALK, "tool_choice": wanted})["tool_choice"]

    if api.name == "anthropic":
        kinds = [choice(one)["type"] for one in ("auto", "none", "required")]
        assert kinds == ["auto", "none", "any"]
        assert choice("add") == {"type": "tool", "name": "add"}
    else:
        assert [choice(one) for one in ("auto", "none", "required")] == ["auto", "none", "required"]
        inner = {"name": "add"}
        named = {"function": inner} if api.name == "chat" else inner
        assert choice("add") == {"type": "function", **named}
    assert "tool_choice" not in sent(api, TALK)


THOUGHTS: dict[str, Any] = {
    "anthropic": [
        {"type": "thinking", "thinking": "Two and two.", "signature": "c2lnbmVk"},
        {"type": "redacted_thinking", "data": "b3BhcXVl"},
    ],
    "chat": {"reasoning_content": "Two and two.", "reasoning_details": [{"signature": "c2ln"}]},
    "responses": [
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "b3BhcXVl"}
    ],
}


def thinking(api: Api) -> dict[str, Any]:
    """An answer that thinks, says something, and calls a tool."""
    body = api.good("I look.", tools=[("c1", "add", '{"a":1}')])
    if api.name == "anthropic":
        body["content"] = [*THOUGHTS["anthropic"], *body["content"]]
    elif api.name == "chat":
        message = body["choices"][0]["message"]
        message |= THOUGHTS["chat"]
        message["tool_calls"][0]["extra_content"] = {"google": {"thought_signature": "c2ln"}}
    else:
        body["output"] = [*THOUGHTS["responses"], *body["output"][1:]]
    return body


def follow_up(data: Mapping[str, JSON], **more: JSON) -> dict[str, JSON]:
    """The request after an answer that calls a tool."""
    said = {"role": "assistant", "content": data["text"], "tool_calls": data["tool_calls"], **more}
    result = {"role": "tool", "tool_call_id": "c1", "content": "3"}
    return {"messages": [*ASK["messages"], said, result]}


@pytest.mark.parametrize("streamed", [False, True])
def test_thinking_goes_back_unchanged_to_its_service_only(api: Api, streamed: bool) -> None:
    """Services refuse a call's result (400) without the signed thinking that led to the call."""
    body = thinking(api)
    first = stream(api.events(body)) if streamed else reply(200, body)
    with ModelService(first, reply(200, api.good())) as server:
        settings = api.settings(server.url, service="one")
        data = ask(settings, shown=[] if streamed else None).data
        assert data["text"] == "I look."
        ask(settings, follow_up(data, raw=data["raw"]))
        ask(api.settings(server.url, service="two"), follow_up(data, raw=data["raw"]))
    back, elsewhere = server.seen[1].data, server.seen[2].data
    if api.name == "anthropic":
        assert back["messages"][1]["content"] == body["content"]
        assert [one["type"] for one in elsewhere["messages"][1]["content"]] == ["text", "tool_use"]
    elif api.name == "chat":
        assert back["messages"][1] == body["choices"][0]["message"]
        assert set(elsewhere["messages"][1]) == {"role", "content", "tool_calls"}
    else:
        assert back["input"][1:-1] == body["output"]
        assert "reasoning" not in [one.get("type") for one in elsewhere["input"]]


def test_reasoning_without_content_is_not_sent_back() -> None:
    api = Api("responses")
    with ModelService(reply(200, api.good(tools=[("c1", "add", "{}")]))) as server:
        assert "raw" not in ask(api.settings(server.url)).data


@pytest.mark.parametrize(
    ("reason", "stop"),
    [
        ("model_length", "length"),
        ("insufficient_system_resource", "length"),
        ("abort", "length"),
        ("error", "length"),
        ("a_word_of_next_year", "end"),
    ],
)
def test_an_unknown_reason_is_kept_and_not_retried(api: Api, reason: str, stop: str) -> None:
    body = api.good("Hello", reason)
    if api.name == "responses":
        body["incomplete_details"] = {"reason": reason}
        stop = "length"
    with ModelService(reply(200, body)) as server:
        data = ask(api.settings(server.url)).data
    assert (data["text"], data["stop"], data["reason"]) == ("Hello", stop, reason)
    assert len(server.seen) == 1


def test_content_in_pieces_is_read() -> None:
    """As some servers give it, with their thinking in it."""
    api = Api("chat")
    body = api.good()
    thought = {"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}
    body["choices"][0]["message"]["content"] = [thought, {"type": "text", "text": "Hello"}]
    with ModelService(reply(200, body)) as server:
        data = ask(api.settings(server.url)).data
    assert data["text"] == "Hello"
    assert data["raw"]["content"]["content"][0] == thought


_DRAWING = "aGVsbG8="
_ADDRESS = f"data:image/png;base64,{_DRAWING}"
_BESIDE = {"type": "image_url", "image_url": {"url": _ADDRESS}}
_DRAWN = {"type": "image_generation_call", "status": "completed", "result": _DRAWING}


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("responses", {"output": [_DRAWN]}),
        ("chat", {"content": "", "images": [_BESIDE]}),
        ("chat", {"content": [{"type": "text", "text": ""}, _BESIDE]}),
        ("chat", {"content": f"![it]({_ADDRESS})"}),
        ("chat", {"content": _ADDRESS}),
    ],
)
def test_an_image_in_an_answer_is_kept_once_and_in_the_form_of_requests(
    name: Literal["chat", "responses"], change: dict[str, Any], streamed: bool
) -> None:
    api = Api(name)
    body = api.good("")
    (body["choices"][0]["message"] if name == "chat" else body).update(change)
    streams = streamed and not isinstance(change.get("content"), list)
    pieces = stream(api.events(body)) if streams else None
    with ModelService(pieces or reply(200, body)) as server:
        data = ask(api.settings(server.url), shown=[] if pieces else None).data
    assert data["images"] == [{"type": "image", "media_type": "image/png", "data": _DRAWING}]
    assert data["stop"] == "end"
    assert str(data).count(_DRAWING) == 1
    ask_on = {"role": "user", "content": [{"type": "text", "text": "Why?"}, *data["images"]]}
    assert _DRAWING in str(sent(api, {"messages": [ask_on]}))


def test_images_that_are_too_many_too_large_or_none_are_left_out_and_counted() -> None:
    large = f"data:image/png;base64,{'A' * 4_000_001}"
    given = [_ADDRESS] * 5 + [large, "data:image/svg;base64,AAAA", "http://plain.example/x.png"]
    images, left_out = images_of(given)
    assert (len(images), left_out) == (4, 4)
    assert images_of(["data:image/png;base64,AAA"]) == ([], 1)  # no base64: services refuse it
    assert images_of([large, "https://a.example/x.png"])[0] == [
        {"type": "image", "url": "https://a.example/x.png"}
    ]


def test_a_text_of_beginnings_of_images_is_read_in_linear_time() -> None:
    text = "![a" * 100_000 + "data:image/"
    began = process_time()
    assert images_in(text) == (text, [])
    assert process_time() - began < 5  # minutes, if each beginning is followed to the end


def test_a_schema_becomes_the_apis_own_structured_output(api: Api) -> None:
    body = sent(api, {**ASK, "schema": SCHEMA})
    if api.name == "anthropic":
        assert body["output_config"] == {"format": {"type": "json_schema", "schema": CLOSED}}
    elif api.name == "chat":
        assert body["response_format"]["json_schema"] == {
            "name": "answer",
            "schema": CLOSED,
            "strict": True,
        }
    else:
        assert body["text"]["format"]["schema"] == CLOSED
        assert body["text"]["format"]["strict"] is True


def test_strict_is_asked_for_only_where_the_service_would_take_it() -> None:
    optional = {"type": "object", "properties": {"n": {}}, "additionalProperties": False}
    assert not is_strict(optional)
    assert not is_strict({"type": "array", "items": SCHEMA})
    assert is_strict(closed({"type": "array", "items": SCHEMA}))
    assert not is_strict({"type": "object"})


def test_settings_give_what_a_request_leaves_open(api: Api) -> None:
    stop = {} if api.name == "responses" else {"stop": ["A", "B"]}
    body = sent(api, dict(ASK), temperature=0.0, top_p=0.5, max_tokens=9, **stop)
    assert (body["temperature"], body["top_p"]) == (0.0, 0.5)
    name = {"anthropic": "max_tokens", "chat": "max_tokens", "responses": "max_output_tokens"}
    assert body[name[api.name]] == 9
    if stop:
        assert body["stop_sequences" if api.name == "anthropic" else "stop"] == ["A", "B"]
    plain = sent(api, dict(ASK))
    assert not {"temperature", "top_p", "stop", "stop_sequences"} & set(plain)


def test_extra_fields_and_headers_are_sent_as_they_are(api: Api) -> None:
    with ModelService(reply(200, api.good())) as server:
        settings = api.settings(
            server.url, extra={"service_tier": "auto"}, headers={"X-Team": "blue"}
        )
        ask(settings)
    (seen,) = server.seen
    assert seen.data["service_tier"] == "auto"
    assert seen.headers["x-team"] == "blue"


def test_the_limit_of_output_has_the_name_that_the_server_knows() -> None:
    api = Api("chat")
    assert "max_tokens" in sent(api, dict(ASK))
    assert "max_completion_tokens" in sent(api, dict(ASK), limit_field="max_completion_tokens")
    assert OpenAIModel(model="m").limit_name == "max_completion_tokens"


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        ({"messages": []}, "needs a message of the user"),
        ({"messages": [{"role": "robot", "content": ""}]}, "unknown role 'robot'"),
        ({"messages": [{"role": "user", "content": 1}]}, "content must be a text or a list"),
        ({"messages": [{"role": "user", "content": [1]}]}, "type is one of text, image, file"),
        ({"messages": [{"role": "user", "content": [{**IMAGE, "data": "?"}]}]}, "not base64"),
        ({"messages": [{"role": "user", "content": [{"type": "image"}]}]}, "give the image as"),
        (
            {"messages": [{"role": "user", "content": [{**IMAGE, "media_type": "image/bmp"}]}]},
            "one of image/png",
        ),
        ({"messages": [{"role": "assistant", "content": [IMAGE]}]}, "assistant takes no images"),
        ({**ASK, "tool_choice": "required"}, "has no tools"),
        ({**TALK, "tool_choice": "ad"}, "auto, none, required, add"),
        ({**ASK, "max_tokens": 10_000}, "max_tokens: 10000, but the model's max_tokens is"),
        ({**ASK, "seed": 3}, "unknown request fields: seed"),
    ],
)
def test_an_unsupported_request_is_refused_before_it_is_sent(
    api: Api, request_: dict[str, JSON], words: str
) -> None:
    with ModelService(reply()) as server, pytest.raises(CallError, match=words) as caught:
        ask(api.settings(server.url), request_)
    assert caught.value.fault == "permanent"
    assert server.seen == []


def test_an_answer_has_the_form_that_core_promises(api: Api) -> None:
    body = api.good("I look.", tools=[("c1", "add", '{"a":1}')])
    with ModelService(reply(200, body)) as server:
        answer = ask(api.settings(server.url))
    assert answer.data == {
        "text": "I look.",
        "stop": "tools",
        "tool_calls": [{"id": "c1", "name": "add", "arguments": '{"a":1}'}],
        "model": "m-1-snapshot",
        "billed": {"cache_read_tokens": 6, "cache_write_tokens": 2},
    }


class Noting:
    """Calls that note requests and reservations, and answer themselves."""

    watched = False

    def __init__(self) -> None:
        self.asked: list[tuple[Request, Any]] = []

    async def run(self, request: Request, do: Any, reserve: Any) -> Answer:
        self.asked.append((request, reserve))
        return Answer({"text": "x", "stop": "end"})


def noted(settings: Any, request: Mapping[str, JSON] = ASK, key: Key = _KEY) -> Any:
    calls = Noting()

    async def asking() -> None:
        ctx = OpenContext("models.m", Key(1), live=False, environment={})
        async with settings.open(ctx) as model:
            await model.complete(request, key, calls)

    asyncio.run(asking())
    return calls.asked[0]


def test_the_canonical_request_holds_everything_that_matters(api: Api) -> None:
    settings = api.settings("http://h:1", service="pool", cache=True, timeout=7.0)
    request, _ = noted(settings)
    assert (request.service, request.cache, request.timeout) == ("pool", True, 7.0)
    assert request.sample == Key(2).hex()
    assert request.content["model"] == "m-1"
    contents = [noted(settings, {**ASK, **more})[0].content for more in ({}, {"temperature": 1.0})]
    assert contents[0] != contents[1]
    assert noted(settings, key=Key(3))[0].sample != request.sample


def test_services_are_told_apart_by_vendor_model_address_and_key() -> None:
    def service(**more: Any) -> str:
        return str(noted(OpenAIModel(model="m", **more))[0].service)

    assert service() == "openai:m"
    assert service(base_url="http://h:1/v1") == "openai:m@h:1"
    assert service(key_env="OTHER") == "openai:m#OTHER"


def test_a_model_is_opened_without_key_and_network_where_nothing_is_live(api: Api) -> None:
    request, reserve = noted(api.settings("http://nowhere.invalid", preflight=True))
    assert reserve.calls == 1
    assert request.service.endswith(":m-1@nowhere.invalid#TEST_KEY")


def test_a_base_url_may_end_in_v1_for_anthropic_too() -> None:
    api = Api("anthropic")
    with ModelService(reply(200, api.good())) as server:
        ask(api.settings(f"{server.url}/v1/"))
    assert server.seen[0].path == "/v1/messages"


@pytest.mark.parametrize("url", ["ftp://x", "example.com", "http://u:p@h/v1", "https://h/?key=1"])
def test_an_invalid_address_or_one_with_a_password_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="base_url"):
        OpenAIModel(model="m", base_url=url)


def test_no_key_goes_to_another_address_unless_it_is_named(api: Api) -> None:
    with ModelService(reply(200, api.good())) as server:
        ask(api.settings(server.url, key_env=None))
    assert "sk-test" not in str(server.seen[0].headers)
