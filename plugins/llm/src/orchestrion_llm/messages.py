"""The Messages API of Anthropic on the wire."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from orchestrion import JSON
from orchestrion_llm import wire
from orchestrion_llm.content import ChatMessage, Part, ToolCall, messages
from orchestrion_llm.prices import Tokens

_STOPS: Mapping[str, wire.Stop] = {
    "end_turn": "end",
    "stop_sequence": "end",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "pause_turn": "paused",
    "tool_use": "tools",
    "refusal": "refused",
}


_CHOICES = {"auto": "auto", "none": "none", "required": "any"}
_OWN: Mapping[str, Mapping[str, JSON]] = {
    "web_search": {"type": "web_search_20250305", "name": "web_search"},
    "code_execution": {"type": "code_execution_20250825", "name": "code_execution"},
}
_NO_OBJECT = "not_an_object"
_GROWING = ("text", "thinking", "signature")


class _Writes(msgspec.Struct):
    ephemeral_1h_input_tokens: int | None = None


class _Usage(msgspec.Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    cache_creation: _Writes | None = None
    cache_read_input_tokens: int | None = None


class _Block(msgspec.Struct):
    type: str
    text: str = ""
    id: str = ""
    name: str = ""
    input: Any = None


class _Message(msgspec.Struct):
    content: list[_Block] | None = None
    model: str = ""
    stop_reason: str | None = None
    usage: Any = None
    error: wire.ErrorBody | None = None


class _Delta(msgspec.Struct):
    text: str = ""
    thinking: str = ""
    signature: str = ""
    partial_json: str = ""
    citation: Any = None
    stop_reason: str | None = None


class _Event(msgspec.Struct):
    type: str
    message: _Message | None = None
    index: int = -1
    content_block: _Block | None = None
    delta: _Delta | None = None
    usage: Any = None
    error: wire.ErrorBody | None = None


def _turns(conversation: Sequence[ChatMessage]) -> list[JSON]:
    """Return messages as blocks; the results of one turn's tools are one message."""
    turns: list[dict[str, Any]] = []
    results: list[JSON] = []
    for message in conversation:
        content = list(map(_block, message.parts)) if message.media else message.text
        if message.role == "tool":
            if not results:
                turns.append({"role": "user", "content": results})
            results.append(
                {"type": "tool_result", "tool_use_id": message.tool_call_id, "content": content}
            )
            continue
        results = []
        if message.raw is not None:
            turns.append({"role": message.role, "content": message.raw})
            continue
        if not message.tool_calls:
            turns.append({"role": message.role, "content": content})
            continue
        blocks: list[JSON] = [{"type": "text", "text": message.text}] if message.text else []
        blocks += [
            {"type": "tool_use", "id": call.id, "name": call.name, "input": _input(call.arguments)}
            for call in message.tool_calls
        ]
        turns.append({"role": message.role, "content": blocks})
    return turns


def _block(part: Part) -> JSON:
    if part.kind == "text":
        return {"type": "text", "text": part.text}
    source = {"type": "base64", "media_type": part.media_type, "data": part.data}
    if part.url:
        source = {"type": "url", "url": part.url}
    return {"type": "image" if part.kind == "image" else "document", "source": source}


def _input(arguments: str) -> JSON:
    """Return arguments as an object, as the API needs it; other text is wrapped unchanged."""
    try:
        value = msgspec.json.decode(arguments or "{}")
    except (msgspec.DecodeError, RecursionError):
        value = None
    return value if isinstance(value, dict) else {_NO_OBJECT: arguments}


def _arguments(value: Any) -> str:
    """Return the inverse of `_input`."""
    if isinstance(value, dict) and set(value) == {_NO_OBJECT}:
        return str(value[_NO_OBJECT])
    return msgspec.json.encode(value or {}).decode()


def _result(message: _Message, written: list[Any]) -> wire.Result:
    """Return the result of a message, with the blocks that must be sent back unchanged."""
    if message.stop_reason is None:
        raise wire.missing("stop reason")
    text = "".join(block.text for block in message.content or () if block.type == "text")
    calls = [
        ToolCall(block.id, block.name, _arguments(block.input))
        for block in message.content or ()
        if block.type == "tool_use"
    ]
    stop, unknown = wire.stop_of(message.stop_reason, _STOPS)
    stop = wire.settled(text, stop, calls)
    plain = all(block["type"] in ("text", "tool_use") for block in written)
    raw = None if plain else written
    tokens, uses = _tokens(message.usage), Counter(map(_tool, _used(message)))
    return wire.Result(text, stop, message.model, calls, tokens, unknown, raw, uses)


def _used(message: _Message) -> list[str]:
    """Return the names of the server tools in a message."""
    return [block.name for block in message.content or () if block.type == "server_tool_use"]


def _tool(name: str) -> str:
    """Return the tool that a name belongs to: running code has several."""
    return "code_execution" if name.endswith("code_execution") else name


def _tokens(stated: Any) -> Tokens | None:
    usage = wire.stated(stated, _Usage)
    if usage is None or usage.input_tokens is None or usage.output_tokens is None:
        return None
    cached = usage.cache_read_input_tokens or 0
    hour = (usage.cache_creation and usage.cache_creation.ephemeral_1h_input_tokens) or 0
    written = usage.cache_creation_input_tokens or 0
    total = usage.input_tokens + cached + written
    if not total:
        return None  # every prompt has tokens
    return wire.credible(Tokens(total, usage.output_tokens, cached, written, hour))


class _Collector(wire.Collector):
    def __init__(self) -> None:
        super().__init__()
        self._message = _Message()
        self._blocks: dict[int, dict[str, Any]] = {}
        self._arguments: dict[int, str] = {}

    def event(self, name: str, data: bytes) -> str:
        event = wire.decoded(data, _Event)
        if event.error is not None:
            raise event.error.raised()
        if event.type == "message_start" and event.message is not None:
            self._message = event.message
        elif event.type == "content_block_start" and event.content_block is not None:
            self._blocks[event.index] = wire.decoded(data, dict)["content_block"]
            self.pieces.append(event.content_block.text)
            return event.content_block.text
        elif event.type == "content_block_delta" and event.delta is not None:
            if event.index not in self._blocks:
                raise wire.MalformedError("a piece of a block that never began")
            self._add(event.index, event.delta)
            self.pieces.append(event.delta.text)
            return event.delta.text
        elif event.type == "message_delta":
            self._ending(event)
        elif event.type == "message_stop":
            self.whole = self.ended
        return ""

    def _add(self, index: int, delta: _Delta) -> None:
        block = self._blocks[index]
        for name in _GROWING:
            if piece := getattr(delta, name):
                block[name] = (block.get(name) or "") + piece
        if delta.partial_json:
            self._arguments[index] = self._arguments.get(index, "") + delta.partial_json
        if delta.citation is not None:
            block["citations"] = [*(block.get("citations") or ()), delta.citation]

    def _ending(self, event: _Event) -> None:
        if event.delta is not None:
            self._message.stop_reason = event.delta.stop_reason
        begun, self._message.usage = self._message.usage, event.usage
        if isinstance(begun, Mapping) and isinstance(event.usage, Mapping):
            # The end states totals, and may omit unchanged ones.
            last = {name: value for name, value in event.usage.items() if value is not None}
            self._message.usage = {**begun, **last}

    @property
    def ended(self) -> bool:
        return self._message.stop_reason is not None

    def result(self) -> wire.Result:
        for index, text in self._arguments.items():
            # Truncated arguments are not JSON; they are kept as text.
            self._blocks[index]["input"] = _input(text)
        written = list(self._blocks.values())
        self._message.content = msgspec.convert(written, list[_Block])
        return _result(self._message, written)


class MessagesWire:
    path = "/v1/messages"
    embeddings: str | None = None
    collector: type[wire.Collector] = _Collector
    streaming: Mapping[str, JSON] = {"stream": True}

    def body(self, request: Mapping[str, JSON], settings: Any) -> dict[str, JSON]:
        chosen = wire.sampling(request, settings)
        system, conversation = messages(request)
        body: dict[str, JSON] = {"model": settings.model, "messages": _turns(conversation)}
        if "stop" in chosen:
            body["stop_sequences"] = chosen.pop("stop")
        body |= chosen
        if system:
            body["system"] = system
        if tools := request.get("tools"):
            body["tools"] = [
                {
                    "name": tool["name"],
                    "description": tool.get("description", ""),
                    "input_schema": tool["schema"],
                }
                for tool in tools
            ]
        for own in wire.vendor_tools(request, _OWN):
            if own["name"] == "web_search":
                own["max_uses"] = request["vendor_tools"]["web_search"]
            body.setdefault("tools", []).append(own)
        if (choice := wire.tool_choice(request)) is not None:
            named = {"type": "tool", "name": choice}
            body["tool_choice"] = {"type": _CHOICES[choice]} if choice in _CHOICES else named
        if (schema := request.get("schema")) is not None:
            # Merged with `extra`, e.g. the effort.
            config = {**settings.extra.get("output_config", {})}
            config["format"] = {"type": "json_schema", "schema": wire.closed(schema)}
            return {**body, **settings.extra, "output_config": config}
        return body | dict(settings.extra)

    def read(self, raw: bytes) -> wire.Result:
        message = wire.decoded(raw, _Message)
        if message.error is not None:
            raise message.error.raised()
        if message.content is None:
            raise wire.missing("content")
        return _result(message, wire.decoded(raw, dict)["content"])
