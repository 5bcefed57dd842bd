"""The three wire formats of the stub server, asked by the real SDKs of OpenAI and Anthropic."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import anthropic
import openai
import pytest
from attrs import frozen
from orchestrion_offline.interfaces import Answer, Speaker
from orchestrion_offline.server import StubServer, serving
from orchestrion_offline.settings import Serving
from orchestrion_offline.speakers.plain import Echo, Line, Scripted
from orchestrion_offline.speakers.steps import Solver
from orchestrion_offline.steps import draw_sheet
from orchestrion_offline.wire import count

from orchestrion import Key
from tests.contrib_agents.offline.asks import Asks, given_asks, raw, with_asks
from tests.coroutines import sync

SHEET = draw_sheet("mixed", 6, 418, Key(2))
TOOL = {"name": "add", "description": "adds", "schema": {"type": "object", "properties": {}}}


# ---------------------------------------------------------------- the three wires


@given_asks(Solver(skills={}, skill=0.5))
async def test_every_wire_gives_the_same_answer_and_token_counts(asks: Asks) -> None:
    result = [await ask("m", SHEET.text, "key-1") for ask in asks.wires.values()]
    assert result[0] == result[1] == result[2]
    text, stop, calls, read, wrote = result[0]
    assert text.startswith("Line 1: ")
    assert (stop, calls) == ("stop", [])
    assert (read, wrote) == (count(SHEET.text) + count("s"), count(text))


@given_asks(Scripted((Line("I add.", "add", {"a": 1}), Line("It is 3."))))
async def test_tools_are_called_and_their_results_come_back(asks: Asks) -> None:
    for ask in asks.wires.values():
        text, stop, calls, _, _ = await ask("m", "1 + 2?", tools=[TOOL])
        assert (text, stop, calls) == ("I add.", "tool_calls", [("add", '{"a":1}')])
    called = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": "{}"}}
    chat = await asks.openai.chat.completions.create(
        model="m",
        messages=[
            {"role": "user", "content": "1 + 2?"},
            {"role": "assistant", "content": None, "tool_calls": [called]},  # type: ignore[list-item]
            {"role": "tool", "tool_call_id": "c1", "content": "3"},
        ],
    )
    assert chat.choices[0].message.content == "It is 3."
    responses = await asks.openai.responses.create(
        model="m",
        input=[
            {"role": "user", "content": "1 + 2?"},
            {"type": "function_call", "call_id": "c1", "name": "add", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c1", "output": "3"},
        ],
    )
    assert responses.output_text == "It is 3."
    messages = await asks.anthropic.messages.create(
        model="m",
        max_tokens=50,
        messages=[
            {"role": "user", "content": "1 + 2?"},
            {
                "role": "assistant",
                "content": [{"type": "tool_use", "id": "c1", "name": "add", "input": {}}],
            },
            {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "3"}],
            },
        ],
    )
    assert messages.content[0].text == "It is 3."  # type: ignore[union-attr]


def test_a_stream_has_the_same_content_as_the_whole_answer() -> None:
    long = "word " * 60
    script = {"t": Scripted((Line(long),)), "c": Scripted((Line("so", "add", {"a": long}),))}
    user: Any = [{"role": "user", "content": "hi"}]

    async def chat(asks: Asks, model: str) -> tuple[str, str, int]:
        text, arguments, wrote, pieces = "", "", 0, 0
        stream = await asks.openai.chat.completions.create(
            model=model, messages=user, stream=True, stream_options={"include_usage": True}
        )
        async for chunk in stream:
            if chunk.usage:
                wrote = chunk.usage.completion_tokens
            for choice in chunk.choices:
                pieces += 1
                text += choice.delta.content or ""
                for call in choice.delta.tool_calls or ():
                    assert call.function is not None
                    arguments += call.function.arguments or ""
        assert pieces > 4
        return text, arguments, wrote

    async def responses(asks: Asks, model: str) -> tuple[str, str, int]:
        async with asks.openai.responses.stream(model=model, input="hi") as stream:
            numbers = [event.sequence_number async for event in stream]
            result = await stream.get_final_response()
        assert numbers == list(range(len(numbers)))
        calls = [item.arguments for item in result.output if item.type == "function_call"]
        assert result.usage is not None
        return result.output_text, "".join(calls), result.usage.output_tokens

    async def messages(asks: Asks, model: str) -> tuple[str, str, int]:
        async with asks.anthropic.messages.stream(
            model=model, max_tokens=500, messages=user
        ) as stream:
            result = await stream.get_final_message()
        text = "".join(part.text for part in result.content if part.type == "text")
        calls = [
            json.dumps(p.input, separators=(",", ":"))
            for p in result.content
            if p.type == "tool_use"
        ]
        return text, "".join(calls), result.usage.output_tokens

    async def work(asks: Asks) -> None:
        given = json.dumps({"a": long}, separators=(",", ":"))
        for stream in (chat, responses, messages):
            assert await stream(asks, "t") == (long, "", count(long))
            assert await stream(asks, "c") == ("so", given, count("so") + count("add" + given))

    with_asks(work, script)


@frozen
class ShowsSchema(Speaker):
    def say(self, request: Mapping[str, Any], draw: Key) -> Answer:
        return Answer(json.dumps(request["schema"]))


@given_asks(ShowsSchema())
async def test_a_schema_reaches_the_speaker_on_every_wire(asks: Asks) -> None:
    schema = {
        "type": "object",
        "properties": {"next": {"type": "string"}},
        "required": ["next"],
        "additionalProperties": False,
    }
    form = {"type": "json_schema", "name": "n", "schema": schema, "strict": True}
    wrapped = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
    plain = {"format": {"type": "json_schema", "schema": schema}}
    for answer in (
        await asks.chat("m", "x", response_format=wrapped),
        await asks.responses("m", "x", text={"format": form}),
        await asks.messages("m", "x", output_config=plain),
    ):
        assert json.loads(answer[0]) == schema


@given_asks(Echo())
async def test_answers_are_cut_at_max_tokens_and_at_stop_sequences(asks: Asks) -> None:
    for ask in asks.wires.values():
        text, stop, _, _, wrote = await ask("m", "abcdefghijkl", max_tokens=2)
        assert (text, stop, wrote) == ("abcdefgh", "length", 2)
    assert (await asks.chat("m", "abcdef", stop=["de", "c"]))[:2] == ("ab", "stop")
    assert (await asks.messages("m", "abcdef", stop_sequences=["de"]))[:2] == ("abc", "stop")


@given_asks(Solver(skills={}, skill=0.0))
async def test_samples_of_one_request_are_independent(asks: Asks) -> None:
    result = await asks.openai.chat.completions.create(
        model="m", messages=[{"role": "user", "content": SHEET.text}], n=8
    )
    assert len({choice.message.content for choice in result.choices}) > 3


# ---------------------------------------------------------------- keys, models, mistakes


@given_asks({"small": Echo(), "large": Echo()})
async def test_models_are_listed_and_unknown_ones_refused(asks: Asks) -> None:
    assert [entry.id async for entry in asks.openai.models.list()] == ["small", "large"]
    assert [entry.id async for entry in asks.anthropic.models.list()] == ["small", "large"]
    assert (await asks.openai.models.retrieve("small")).id == "small"
    assert (await asks.anthropic.models.retrieve("large")).display_name == "large"
    for ask in asks.wires.values():
        with pytest.raises((openai.NotFoundError, anthropic.NotFoundError), match="'small'"):
            await ask("smal", "x")
    with pytest.raises(openai.NotFoundError):
        await asks.openai.models.retrieve("smal")
    with pytest.raises(anthropic.NotFoundError):
        await asks.anthropic.models.retrieve("smal")


@given_asks(Echo(), Serving(api_key="right"), key="wrong")
async def test_a_wrong_key_is_refused(asks: Asks) -> None:
    for ask in asks.wires.values():
        with pytest.raises((openai.AuthenticationError, anthropic.AuthenticationError)):
            await ask("m", "x")
    with pytest.raises(openai.AuthenticationError):
        await asks.openai.models.list()


@pytest.mark.parametrize("behaviour", [Serving(api_key="right"), Serving()], ids=["right", "any"])
def test_a_right_key_is_taken(behaviour: Serving) -> None:
    async def work(asks: Asks) -> None:
        for ask in asks.wires.values():
            assert (await ask("m", "x"))[0] == "x"

    with_asks(work, Echo(), behaviour, key="right")


@pytest.mark.parametrize(
    ("path", "body", "expected"),
    [
        ("/v1/chat/completions", b"{", "JSON"),
        ("/v1/chat/completions", b"[]", "no JSON object"),
        ("/v1/chat/completions", b'{"model": "m"}', "messages: expected a list"),
        ("/v1/chat/completions", b'{"model": "m", "messages": [{"role": "x"}]}', "role"),
        ("/v1/chat/completions", b'{"model": "m", "messages": [7]}', "expected an object"),
        (
            "/v1/messages",
            b'{"model": "m", "messages": [{"role": "user", "content": "x"}]}',
            "max_tokens: expected a whole number of 1 or more, got None",
        ),
        ("/v1/responses", b'{"model": "m", "input": [{"type": "image"}]}', "does not read 'image'"),
        ("/v1/responses", b'{"model": "m", "input": "x", "tools": 3}', ""),
    ],
)
def test_an_invalid_request_gets_400_and_a_reason(path: str, body: bytes, expected: str) -> None:
    async def work() -> bytes:
        async with serving({"m": Echo()}) as server:
            head, _ = await raw(server, path, body)
            # The server still works.
            fine = (
                b'{"model": "m", "max_tokens": 5, "input": "x", "messages": [{"role": "user", '
                b'"content": "x"}]}'
            )
            again, _ = await raw(server, path, fine)
            assert again.startswith(b"HTTP/1.1 200")
            assert head.startswith(b"HTTP/1.1 400")
            return _

    asyncio.run(work())
    server = StubServer({"m": Echo()})
    reply = server.handle("POST", path, {"x-api-key": "k"}, body)
    assert reply.status == 400
    assert expected in json.loads(reply.parts[0][1])["error"]["message"]


@frozen
class Broken(Speaker):
    def say(self, request: Mapping[str, Any], draw: Key) -> Answer:
        raise ZeroDivisionError("oh")


@given_asks({"m": Broken(), "s": Solver()})
async def test_errors_of_a_speaker_are_reported(asks: Asks) -> None:
    with pytest.raises(openai.InternalServerError, match="'m' broke: ZeroDivisionError: oh"):
        await asks.chat("m", "x")
    with pytest.raises(anthropic.BadRequestError, match=r"works on worksheets.* is coder"):
        await asks.messages("s", "x")


@sync
async def test_requests_may_arrive_in_pieces_or_together() -> None:
    body = b'{"model": "m", "messages": [{"role": "user", "content": "hi"}]}'
    head = b"POST /v1/chat/completions HTTP/1.1\r\nAuthorization: Bearer k\r\n"
    request = head + b"Content-Length: %d\r\n\r\n" % len(body) + body
    async with serving({"m": Echo()}, Serving(latency=0.01)) as server:
        port = int(server.url.rpartition(":")[2])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for i in range(0, len(request), 7):
            writer.write(request[i : i + 7])
            await asyncio.sleep(0)
        writer.write(request + request)  # the next two do not wait for the first
        for _ in range(3):
            result = await reader.readuntil(b"\r\n\r\n")
            assert result.startswith(b"HTTP/1.1 200 OK")
            length = int(result.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            assert b'"hi"' in await reader.readexactly(length)
        writer.write(b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 411")
        writer.close()
        await writer.wait_closed()
