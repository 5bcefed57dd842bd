"""The Chat Completions API on the wire, as OpenAI and many other servers speak it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from orchestrion import JSON
from orchestrion_llm import wire
from orchestrion_llm.prices import Tokens

__all__ = ["ChatWire"]

_STOPS: Mapping[str, wire.Stop] = {
    "stop": "end",
    "eos": "end",
    "eos_token": "end",
    "stop_sequence": "end",
    "length": "length",
    "max_tokens": "length",
    "tool_calls": "tools",
    "function_call": "tools",
    "content_filter": "refused",
}


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: wire.CacheDetails | None = None


class _Function(msgspec.Struct):
    name: str | None = None
    arguments: str | None = None


class _Call(msgspec.Struct):
    index: int = 0
    id: str | None = None
    function: _Function | None = None


class _Message(msgspec.Struct):
    content: str | None = None
    refusal: str | None = None
    tool_calls: list[_Call] | None = None


class _Choice(msgspec.Struct):
    index: int = 0
    message: _Message | None = None
    delta: _Message | None = None
    finish_reason: str | None = None


class _Completion(msgspec.Struct):
    choices: list[_Choice] = wire.no_field()
    model: str = ""
    usage: Any = None
    error: wire.ErrorBody | None = None


class ChatWire:
    """See `Wire`."""

    path = "/chat/completions"
    streaming: Mapping[str, JSON] = {"stream": True, "stream_options": {"include_usage": True}}

    def body(self, request: Mapping[str, JSON], settings: Any) -> dict[str, JSON]:
        """See `Wire.body`."""
        chosen = wire.sampling(request, settings)
        system, said = wire.messages(request)
        turns: list[JSON] = [{"role": "system", "content": system}] if system else []
        turns += map(_turn, said)
        body: dict[str, JSON] = {"model": settings.model, "messages": turns}
        body[settings.limit_name] = chosen.pop("max_tokens")
        body |= chosen
        if tools := request.get("tools"):
            body["tools"] = [
                {
                    "type": "function",
                    "function": {
                        "name": tool["name"],
                        "description": tool.get("description", ""),
                        "parameters": tool["schema"],
                    },
                }
                for tool in tools
            ]
        if (schema := request.get("schema")) is not None:
            shape = wire.closed(schema)
            body["response_format"] = {
                "type": "json_schema",
                "json_schema": {"name": "answer", "schema": shape, "strict": wire.is_strict(shape)},
            }
        return body | dict(settings.extra)

    def read(self, raw: bytes) -> wire.Result:
        """See `Wire.read`."""
        whole = wire.decoded(raw, _Completion)
        if whole.error is not None:
            raise whole.error.raised()
        choice = next((one for one in whole.choices if one.index == 0), None)
        if choice is None:
            raise wire.missing("choices")
        if choice.message is None:
            raise wire.missing("message")
        return _result(choice.message, choice.finish_reason, whole.model, whole.usage)

    def collector(self) -> _Collector:
        """See `Wire.collector`."""
        return _Collector()


def _turn(one: wire.Said) -> JSON:
    if one.role == "tool":
        return {"role": "tool", "tool_call_id": one.tool_call_id, "content": one.content}
    turn: dict[str, JSON] = {"role": one.role, "content": one.content}
    if one.tool_calls:
        turn["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in one.tool_calls
        ]
    return turn


def _result(message: _Message, reason: str | None, model: str, usage: Any) -> wire.Result:
    if reason is None:
        raise wire.missing("finish reason")
    if reason not in _STOPS:
        raise wire.MalformedError(f"an unknown finish reason {reason!r}")
    calls = [
        wire.ToolCall(one.id or "", one.function.name or "", one.function.arguments or "{}")
        for one in message.tool_calls or ()
        if one.function is not None
    ]
    stop = _STOPS[reason]
    text = message.content
    if message.refusal:
        text, stop = text or message.refusal, "refused"
    if text is None and not calls and stop == "end":
        raise wire.missing("content")
    return wire.Result(
        text or "", wire.settled(text or "", stop, calls), model, calls, _tokens(usage)
    )


def _tokens(told: Any) -> Tokens | None:
    usage = wire.stated(told, _Usage)
    if usage is None:
        return None
    return wire.counted(usage.prompt_tokens, usage.completion_tokens, usage.prompt_tokens_details)


class _Collector:
    """See `Collector`."""

    def __init__(self) -> None:
        self._text: list[str] = []
        self._refusal: list[str] = []
        self._said = False
        self._calls: dict[int, _Call] = {}
        self._arguments: dict[int, list[str]] = {}
        self._reason: str | None = None
        self._model = ""
        self._usage: Any = None
        self.whole = False

    def event(self, name: str, data: bytes) -> str:
        """See `Collector.event`."""
        if data == b"[DONE]":
            self.whole = self._reason is not None
            return ""
        part = wire.decoded(data, _Completion)
        if part.error is not None:
            raise part.error.raised()
        self._model = part.model or self._model
        self._usage = part.usage or self._usage
        return "".join(self._choice(choice) for choice in part.choices if choice.index == 0)

    def _choice(self, choice: _Choice) -> str:
        self._reason = choice.finish_reason or self._reason
        delta = choice.delta or _Message()
        if delta.refusal:
            self._refusal.append(delta.refusal)
        for piece in delta.tool_calls or ():
            call = self._calls.setdefault(piece.index, _Call(piece.index, "", _Function("")))
            self._arguments.setdefault(piece.index, [])
            call.id = call.id or piece.id
            if piece.function is not None and call.function is not None:
                call.function.name = call.function.name or piece.function.name
                self._arguments[piece.index].append(piece.function.arguments or "")
        if delta.content is None:
            return ""
        self._said = True
        self._text.append(delta.content)
        return delta.content

    @property
    def text(self) -> str:
        """See `Collector.text`."""
        return "".join(self._text)

    def result(self) -> wire.Result:
        """See `Collector.result`."""
        for i, call in self._calls.items():
            assert call.function is not None
            call.function.arguments = "".join(self._arguments[i])
        message = _Message(
            self.text if self._said else None,
            "".join(self._refusal) or None,
            [self._calls[i] for i in sorted(self._calls)],
        )
        return _result(message, self._reason, self._model, self._usage)
