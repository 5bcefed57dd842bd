"""The Messages API of Anthropic on the wire."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from orchestrion import JSON
from orchestrion_llm import wire
from orchestrion_llm.prices import Tokens

__all__ = ["MessagesWire"]

_STOPS: Mapping[str, wire.Stop] = {
    "end_turn": "end",
    "stop_sequence": "end",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "pause_turn": "length",
    "tool_use": "tools",
    "refusal": "refused",
}


class _Usage(msgspec.Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
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
    partial_json: str = ""
    stop_reason: str | None = None


class _Event(msgspec.Struct):
    type: str
    message: _Message | None = None
    index: int = -1
    content_block: _Block | None = None
    delta: _Delta | None = None
    usage: Any = None
    error: wire.ErrorBody | None = None


class MessagesWire:
    """See `Wire`."""

    path = "/v1/messages"
    streaming: Mapping[str, JSON] = {"stream": True}

    def body(self, request: Mapping[str, JSON], settings: Any) -> dict[str, JSON]:
        """See `Wire.body`."""
        chosen = wire.sampling(request, settings)
        system, said = wire.messages(request)
        body: dict[str, JSON] = {"model": settings.model, "messages": _turns(said)}
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
        if (schema := request.get("schema")) is not None:
            # Beside what `extra` says of the output, e.g. the effort.
            config = {**settings.extra.get("output_config", {})}
            config["format"] = {"type": "json_schema", "schema": wire.closed(schema)}
            return {**body, **settings.extra, "output_config": config}
        return body | dict(settings.extra)

    def read(self, raw: bytes) -> wire.Result:
        """See `Wire.read`."""
        return _result(wire.decoded(raw, _Message))

    def collector(self) -> _Collector:
        """See `Wire.collector`."""
        return _Collector()


def _turns(said: Sequence[wire.Said]) -> list[JSON]:
    """Messages in blocks; the results of one turn's tools go into one message."""
    turns: list[dict[str, Any]] = []
    results: list[JSON] = []
    for one in said:
        if one.role == "tool":
            if not results:
                turns.append({"role": "user", "content": results})
            results.append(
                {"type": "tool_result", "tool_use_id": one.tool_call_id, "content": one.content}
            )
            continue
        results = []
        if not one.tool_calls:
            turns.append({"role": one.role, "content": one.content})
            continue
        blocks: list[JSON] = [{"type": "text", "text": one.content}] if one.content else []
        blocks += [
            {"type": "tool_use", "id": call.id, "name": call.name, "input": _input(call.arguments)}
            for call in one.tool_calls
        ]
        turns.append({"role": one.role, "content": blocks})
    return turns


def _input(arguments: str) -> JSON:
    """Arguments as the object that this API wants; what is none is shown to the model as it was."""
    try:
        value = msgspec.json.decode(arguments or "{}")
    except (msgspec.DecodeError, RecursionError):
        value = None
    return value if isinstance(value, dict) else {"not_an_object": arguments}


def _result(message: _Message) -> wire.Result:
    if message.error is not None:
        raise message.error.raised()
    if message.content is None:
        raise wire.missing("content")
    text = "".join(block.text for block in message.content if block.type == "text")
    calls = [
        wire.ToolCall(block.id, block.name, msgspec.json.encode(block.input or {}).decode())
        for block in message.content
        if block.type == "tool_use"
    ]
    return _ended(message, text, calls)


def _ended(message: _Message, text: str, calls: Sequence[wire.ToolCall]) -> wire.Result:
    if message.stop_reason is None:
        raise wire.missing("stop reason")
    if message.stop_reason not in _STOPS:
        raise wire.MalformedError(f"an unknown stop reason {message.stop_reason!r}")
    stop = wire.settled(text, _STOPS[message.stop_reason], calls)
    return wire.Result(text, stop, message.model, calls, _tokens(message.usage))


def _tokens(told: Any) -> Tokens | None:
    usage = wire.stated(told, _Usage)
    if usage is None or usage.input_tokens is None or usage.output_tokens is None:
        return None
    cached = usage.cache_read_input_tokens or 0
    written = usage.cache_creation_input_tokens or 0
    return wire.credible(
        usage.input_tokens + cached + written, usage.output_tokens, cached, written
    )


class _Collector:
    """See `Collector`."""

    def __init__(self) -> None:
        self._message = _Message()
        self._blocks: dict[int, _Block] = {}
        self._pieces: dict[int, list[str]] = {}
        self.whole = False

    def event(self, name: str, data: bytes) -> str:
        """See `Collector.event`."""
        event = wire.decoded(data, _Event)
        if event.error is not None:
            raise event.error.raised()
        if event.type == "message_start" and event.message is not None:
            self._message = event.message
        elif event.type == "content_block_start" and event.content_block is not None:
            self._blocks[event.index] = event.content_block
            self._pieces[event.index] = [event.content_block.text]
            return event.content_block.text
        elif event.type == "content_block_delta" and event.delta is not None:
            if event.index not in self._pieces:
                raise wire.MalformedError("a piece of a block that never began")
            self._pieces[event.index].append(event.delta.text or event.delta.partial_json)
            return event.delta.text
        elif event.type == "message_delta":
            self._ending(event)
        elif event.type == "message_stop":
            self.whole = self._message.stop_reason is not None
        return ""

    def _ending(self, event: _Event) -> None:
        if event.delta is not None:
            self._message.stop_reason = event.delta.stop_reason
        # What came at the start is not yet all of it.
        begun, self._message.usage = self._message.usage, event.usage
        if isinstance(begun, Mapping) and isinstance(event.usage, Mapping):
            # What comes at the end is the sum, and may leave out what has not changed.
            last = {name: value for name, value in event.usage.items() if value is not None}
            self._message.usage = {**begun, **last}

    @property
    def text(self) -> str:
        """See `Collector.text`."""
        return "".join(
            "".join(self._pieces[i]) for i, block in self._blocks.items() if block.type == "text"
        )

    def result(self) -> wire.Result:
        """See `Collector.result`."""
        calls = [
            wire.ToolCall(block.id, block.name, wire.canonical("".join(self._pieces[i])))
            for i, block in self._blocks.items()
            if block.type == "tool_use"
        ]
        return _ended(self._message, self.text, calls)
