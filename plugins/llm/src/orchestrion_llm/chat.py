"""The Chat Completions API on the wire, as OpenAI and many other servers speak it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from orchestrion import JSON, CallError
from orchestrion_llm import wire
from orchestrion_llm.content import ChatMessage, Part, ToolCall, data_url, images_in, messages

_STOPS: Mapping[str, wire.Stop] = {
    "stop": "end",
    "eos": "end",
    "eos_token": "end",
    "stop_sequence": "end",
    "end_turn": "end",
    "length": "length",
    "max_tokens": "length",
    "tool_calls": "tools",
    "tool_use": "tools",
    "function_call": "tools",
    "content_filter": "refused",
    "safety": "refused",
    "recitation": "refused",
}
_PLAIN = {
    "role", "content", "refusal", "tool_calls", "annotations", "audio", "function_call", "images",
}  # fmt: skip
_PLAIN_CALL = {"index", "id", "type", "function"}


class _Function(msgspec.Struct):
    name: str | None = None
    arguments: str | None = None


class _Call(msgspec.Struct):
    index: int = 0
    id: str | None = None
    function: _Function | None = None


class _Piece(msgspec.Struct):
    type: str = ""
    text: str | None = None
    image_url: Any = None


class _Message(msgspec.Struct):
    content: str | list[_Piece] | None = None
    refusal: str | None = None
    tool_calls: list[_Call] | None = None
    images: Any = None

    @property
    def pictures(self) -> list[str]:
        """The addresses of its images: parts of it, or, of other services, beside its text."""
        parts = self.content if isinstance(self.content, list) else ()
        places = [part.image_url for part in parts if part.type == "image_url"]
        for image in self.images if isinstance(self.images, list) else ():
            places.append(image.get("image_url") if isinstance(image, dict) else image)
        return [str(place.get("url") if isinstance(place, dict) else place) for place in places]

    @property
    def text(self) -> str | None:
        """Its text; None without content. Pieces of other types are thinking."""
        if self.content is None or isinstance(self.content, str):
            return self.content
        return "".join(part.text or "" for part in self.content if part.type == "text")


class _Choice(msgspec.Struct):
    index: int = 0
    message: _Message | None = None
    delta: _Message | None = None
    finish_reason: str | None = None


class _Completion(msgspec.Struct):
    choices: list[_Choice] = []
    model: str = ""
    usage: Any = None
    error: wire.ErrorBody | None = None


def _turns(conversation: Sequence[ChatMessage]) -> list[JSON]:
    """Return messages; images of tools follow their results, which must be texts here."""
    turns: list[JSON] = []
    shown: list[JSON] = []
    for message in conversation:
        if message.role != "tool" and shown:
            turns.append({"role": "user", "content": shown})
            shown = []
        turns.append(_turn(message))
        if message.role == "tool" and message.media:
            shown += [{"type": "text", "text": f"Shown by the tool call {message.tool_call_id}:"}]
            shown += map(_part, message.media)
    return [*turns, {"role": "user", "content": shown}] if shown else turns


def _turn(message: ChatMessage) -> JSON:
    if message.role == "tool":
        return {"role": "tool", "tool_call_id": message.tool_call_id, "content": message.text}
    if message.raw is not None:
        return message.raw
    content = list(map(_part, message.parts)) if message.media else message.text
    turn: dict[str, JSON] = {"role": message.role, "content": content}
    if message.tool_calls:
        turn["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in message.tool_calls
        ]
    return turn


def _part(part: Part) -> JSON:
    if part.kind == "text":
        return {"type": "text", "text": part.text}
    if part.kind == "image":
        return {"type": "image_url", "image_url": {"url": data_url(part)}}
    if part.url:
        raise CallError("Chat Completions takes files as base64 only, not by url", "permanent")
    return {"type": "file", "file": {"filename": part.name, "file_data": data_url(part)}}


def _kept_parts(message: Mapping[str, Any]) -> JSON:
    """Return a message that must be sent back unchanged; None for plain ones.

    Some services need their reasoning back, and sign calls (`extra_content`).
    """
    more = {name for name, value in message.items() if name not in _PLAIN and value}
    calls = message.get("tool_calls") or ()
    signed = any(set(call) - _PLAIN_CALL for call in calls)
    if not more and not signed and not isinstance(message.get("content"), list):
        return None
    kept = {name: message[name] for name in message if name in more}
    content = message.get("content")
    if isinstance(content, list):  # what it has drawn need not go back
        content = [part for part in content if part.get("type") != "image_url"]
    kept |= {"role": "assistant", "content": content}
    if calls:
        kept["tool_calls"] = [{k: v for k, v in call.items() if k != "index"} for call in calls]
    return kept


def _result(
    message: _Message, reason: str | None, model: str, usage: Any, raw: JSON
) -> wire.Result:
    if reason is None:
        raise wire.missing("finish reason")
    calls = [
        ToolCall(call.id or "", call.function.name or "", call.function.arguments or "{}")
        for call in message.tool_calls or ()
        if call.function is not None
    ]
    stop, unknown = wire.stop_of(reason, _STOPS)
    text = message.text
    if message.refusal:
        text, stop = text or message.refusal, "refused"
    text, images = images_in(text) if text is not None else (None, [])
    images += message.pictures
    if text is None and not calls and not images and stop == "end" and not unknown:
        raise wire.missing("content")
    text = text or ""
    stop = wire.settled(text, stop, calls, images)
    tokens = wire.counted(usage, "prompt_tokens", "completion_tokens")
    return wire.Result(text, stop, model, calls, tokens, unknown, raw, images=images)


class _Collector(wire.Collector):
    def __init__(self) -> None:
        super().__init__()
        self._message: dict[str, Any] = {}
        self._calls: dict[int, dict[str, Any]] = {}
        self._reason: str | None = None
        self._model = ""
        self._usage: Any = None

    def event(self, name: str, data: bytes) -> str:
        if data == b"[DONE]":
            self.whole = self.ended
            return ""
        part = wire.decoded(data, _Completion)
        if part.error is not None:
            raise part.error.raised()
        self._model = part.model or self._model
        self._usage = part.usage or self._usage
        text = ""
        written = wire.decoded(data, dict).get("choices", ())
        for choice, raw in zip(part.choices, written, strict=True):
            if choice.index == 0:
                self._reason = choice.finish_reason or self._reason
                self._add(raw.get("delta") or {})
                text += (choice.delta and choice.delta.text) or ""
        self.pieces.append(text)
        return text

    def _add(self, delta: dict[str, Any]) -> None:
        """Add a piece of the message."""
        calls = delta.pop("tool_calls", None) or ()
        _joined(self._message, delta)
        for piece in calls:
            call = self._calls.setdefault(piece.get("index", 0), {})
            function = piece.pop("function", None)
            # Some services repeat these in every piece; only arguments grow.
            call |= {k: v for k, v in piece.items() if v and not call.get(k)}
            if function is not None:
                known = call.setdefault("function", {"name": "", "arguments": ""})
                known["name"] = known["name"] or function.get("name") or ""
                known["arguments"] += function.get("arguments") or ""

    @property
    def ended(self) -> bool:
        return self._reason is not None

    def result(self) -> wire.Result:
        whole = dict(self._message)
        if self._calls:
            whole["tool_calls"] = [self._calls[i] for i in sorted(self._calls)]
        message = msgspec.convert(whole, _Message)
        return _result(message, self._reason, self._model, self._usage, _kept_parts(whole))


def _joined(whole: dict[str, Any], piece: Mapping[str, Any]) -> None:
    """Add a piece to a message: texts and lists grow, other values are replaced."""
    for name, value in piece.items():
        old = whole.get(name)
        if value is None or name == "role":
            continue
        if isinstance(value, str) and isinstance(old, list):
            value = [{"type": "text", "text": value}]
        if isinstance(value, list) and isinstance(old, str):
            old = [{"type": "text", "text": old}] if old else []
        grows = isinstance(value, str | list) and isinstance(old, type(value))
        whole[name] = old + value if grows else value


class ChatWire:
    path = "/chat/completions"
    embeddings: str | None = "/embeddings"
    collector: type[wire.Collector] = _Collector
    streaming: Mapping[str, JSON] = {"stream": True, "stream_options": {"include_usage": True}}

    def body(self, request: Mapping[str, JSON], settings: Any) -> dict[str, JSON]:
        chosen = wire.sampling(request, settings)
        wire.vendor_tools(request, {})
        system, conversation = messages(request)
        turns: list[JSON] = [{"role": "system", "content": system}] if system else []
        turns += _turns(conversation)
        body: dict[str, JSON] = {"model": settings.model, "messages": turns}
        body[settings.limit_name] = chosen.pop("max_tokens")
        body |= chosen
        if tools := request.get("tools"):
            body["tools"] = [{"type": "function", "function": wire.function(t)} for t in tools]
        if (choice := wire.tool_choice(request)) is not None:
            named = {"type": "function", "function": {"name": choice}}
            body["tool_choice"] = choice if choice in ("auto", "none", "required") else named
        if (schema := request.get("schema")) is not None:
            named_schema = wire.named_schema(schema)
            body["response_format"] = {"type": "json_schema", "json_schema": named_schema}
        return body | dict(settings.extra)

    def read(self, raw: bytes) -> wire.Result:
        whole = wire.decoded(raw, _Completion)
        if whole.error is not None:
            raise whole.error.raised()
        choice = next((choice for choice in whole.choices if choice.index == 0), None)
        if choice is None:
            raise wire.missing("choices")
        if choice.message is None:
            raise wire.missing("message")
        written = next(
            choice for choice in wire.decoded(raw, dict)["choices"] if not choice.get("index")
        )
        return _result(
            choice.message,
            choice.finish_reason,
            whole.model,
            whole.usage,
            _kept_parts(written["message"]),
        )
