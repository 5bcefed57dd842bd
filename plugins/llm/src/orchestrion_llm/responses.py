"""The Responses API of OpenAI on the wire."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import msgspec

from orchestrion import JSON, CallError
from orchestrion_llm import wire
from orchestrion_llm.content import ChatMessage, Part, ToolCall, data_url, messages

_CUT: Mapping[str, wire.Stop] = {"max_output_tokens": "length", "content_filter": "refused"}


_OWN: Mapping[str, Mapping[str, JSON]] = {
    "web_search": {"type": "web_search"},
    "code_execution": {"type": "code_interpreter", "container": {"type": "auto"}},
    "image_generation": {"type": "image_generation"},
}
_DRAWN = "image_generation_call"
_USES = {
    "web_search_call": "web_search",
    "code_interpreter_call": "code_execution",
    _DRAWN: "image_generation",
}


class _Part(msgspec.Struct):
    type: str
    text: str = ""
    refusal: str = ""


class _Item(msgspec.Struct):
    type: str
    content: list[_Part] | None = None
    call_id: str = ""
    name: str = ""
    arguments: str = ""
    result: Any = None
    output_format: str | None = None


class _Incomplete(msgspec.Struct):
    reason: str | None = None


class _Response(msgspec.Struct):
    status: str | None = None
    output: list[_Item] | None = None
    model: str = ""
    usage: Any = None
    error: wire.ErrorBody | None = None
    incomplete_details: _Incomplete | None = None


class _Event(msgspec.Struct):
    type: str = ""
    delta: Any = None
    response: _Response | None = None
    error: wire.ErrorBody | None = None
    code: str | None = None
    message: str | None = None


def _items(message: ChatMessage) -> list[JSON]:
    if message.raw is not None:
        return list(message.raw)
    content = list(map(_part, message.parts)) if message.media else message.text
    if message.role == "tool":
        return [
            {"type": "function_call_output", "call_id": message.tool_call_id, "output": content}
        ]
    items: list[JSON] = []
    if content or not message.tool_calls:
        items.append({"role": message.role, "content": content})
    items += [
        {
            "type": "function_call",
            "call_id": call.id,
            "name": call.name,
            "arguments": call.arguments,
        }
        for call in message.tool_calls
    ]
    return items


def _part(part: Part) -> JSON:
    if part.kind == "text":
        return {"type": "input_text", "text": part.text}
    if part.kind == "image":
        return {"type": "input_image", "image_url": data_url(part)}
    if part.url:
        return {"type": "input_file", "file_url": part.url}
    return {"type": "input_file", "filename": part.name, "file_data": data_url(part)}


def _kept_parts(written: Mapping[str, Any]) -> JSON:
    """Return the items that must be sent back unchanged; None if all are plain.

    The service stores nothing: reasoning that it did not return encrypted is lost.
    """
    items = [
        item
        for item in written.get("output") or ()
        if item["type"] != _DRAWN and (item["type"] != "reasoning" or item.get("encrypted_content"))
    ]
    plain = all(item["type"] in ("message", "function_call") for item in items)
    return None if plain else items


def _result(response: _Response, written: Mapping[str, Any]) -> wire.Result:
    if response.error is not None:
        raise response.error.raised()
    if response.output is None:
        raise wire.missing("output")
    parts = [
        part for item in response.output if item.type == "message" for part in item.content or ()
    ]
    calls = [
        ToolCall(item.call_id, item.name, item.arguments or "{}")
        for item in response.output
        if item.type == "function_call"
    ]
    images = [
        f"data:image/{item.output_format or 'png'};base64,{item.result}"
        for item in response.output
        if item.type == _DRAWN and isinstance(item.result, str)
    ]
    text = "".join(part.text for part in parts if part.type == "output_text")
    refusal = "".join(part.refusal for part in parts if part.type == "refusal")
    stop: wire.Stop
    unknown = ""
    if response.status == "completed":
        stop = "refused" if refusal else "end"
        if not parts and not calls and not images:
            raise wire.missing("a message")
    elif response.status not in (None, "failed", "queued", "in_progress"):
        details = response.incomplete_details
        reason = (details and details.reason) or response.status
        stop = _CUT.get(reason, "length")
        unknown = "" if reason in _CUT else reason
    else:
        raise wire.MalformedError(f"an answer with the status {response.status!r}")
    text = text or refusal
    stop = wire.settled(text, stop, calls, images)
    usage = wire.counted(response.usage)
    uses = Counter(_USES[item.type] for item in response.output if item.type in _USES)
    kept = _kept_parts(written)
    return wire.Result(text, stop, response.model, calls, usage, unknown, kept, uses, images)


class _Collector(wire.Collector):
    """See `Collector`. The last event has the whole answer; earlier ones are only shown."""

    def __init__(self) -> None:
        super().__init__()
        self._response: _Response | None = None
        self._written: Mapping[str, Any] = {}

    def event(self, name: str, data: bytes) -> str:
        if data == b"[DONE]":
            return ""
        event = wire.decoded(data, _Event)
        if event.error is not None:
            raise event.error.raised()
        if event.type == "error":
            raise wire.ErrorBody(event.message, code=event.code).raised()
        if event.type in ("response.completed", "response.incomplete", "response.failed"):
            self._response, self.whole = event.response, event.response is not None
            self._written = wire.decoded(data, dict)["response"] or {}
        elif event.type == "response.output_text.delta" and isinstance(event.delta, str):
            self.pieces.append(event.delta)
            return event.delta
        return ""

    def result(self) -> wire.Result:
        if self._response is None:
            raise wire.missing("response")
        return _result(self._response, self._written)


class ResponsesWire:
    path = "/responses"
    embeddings: str | None = "/embeddings"
    collector: type[wire.Collector] = _Collector
    streaming: Mapping[str, JSON] = {"stream": True}

    def body(self, request: Mapping[str, JSON], settings: Any) -> dict[str, JSON]:
        chosen = wire.sampling(request, settings)
        if "stop" in chosen:
            raise CallError("the Responses API takes no stop sequences; use api: chat", "permanent")
        system, conversation = messages(request)
        body: dict[str, JSON] = {
            "model": settings.model,
            "input": [item for message in conversation for item in _items(message)],
            "max_output_tokens": chosen.pop("max_tokens"),
            # The service must not store the conversation.
            "store": False,
            **chosen,
        }
        if system:
            body["instructions"] = system
        if tools := request.get("tools"):
            body["tools"] = [
                {"type": "function", **wire.function(tool), "strict": False} for tool in tools
            ]
        if own := wire.vendor_tools(request, _OWN):
            body["tools"] = [*body.get("tools", []), *own]
            body["max_tool_calls"] = sum(request["vendor_tools"].values())
        if (choice := wire.tool_choice(request)) is not None:
            named = {"type": "function", "name": choice}
            body["tool_choice"] = choice if choice in ("auto", "none", "required") else named
        if (schema := request.get("schema")) is not None:
            # Merged with `extra`, e.g. the verbosity.
            text = {**settings.extra.get("text", {})}
            text["format"] = {"type": "json_schema", **wire.named_schema(schema)}
            return {**body, **settings.extra, "text": text}
        return body | dict(settings.extra)

    def read(self, raw: bytes) -> wire.Result:
        return _result(wire.decoded(raw, _Response), wire.decoded(raw, dict))
