"""Speak OpenAI's Chat Completions and Responses."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from orchestrion_offline import wire
from orchestrion_offline.wire import WireAnswer, WireRequest

_STOPS = {"end": "stop", "length": "length", "tools": "tool_calls", "refused": "stop"}
_ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}
_CODES = {
    "authentication_error": "invalid_api_key",
    "not_found_error": "model_not_found",
    "rate_limit_error": "rate_limit_exceeded",
}


class _OpenAI:
    overloaded = 503

    def error(self, status: int, kind: str, message: str) -> bytes:
        shown = kind if status >= 429 else "invalid_request_error"
        error = {"message": message, "type": shown, "param": None, "code": _CODES.get(kind)}
        return wire.encode({"error": error})


def _message(message: Mapping[str, Any], where: str) -> dict[str, Any]:
    role = message.get("role")
    if role not in _ROLES:
        raise ValueError(f"{where}.role: got {role!r}, expected one of {', '.join(_ROLES)}")
    return {"role": _ROLES[role], "content": wire.plain_text(message.get("content"), where)}


# ---------------------------------------------------------------- Chat Completions


class Chat(_OpenAI):
    """`POST /v1/chat/completions`."""

    def decode(self, body: Mapping[str, Any]) -> WireRequest:
        received = wire.messages_of(body)
        messages = [_chat_message(entry, f"messages[{i}]") for i, entry in enumerate(received)]
        limit = wire.whole_number(body, "max_completion_tokens")
        limit = limit or wire.whole_number(body, "max_tokens")
        request = {"messages": messages, **wire.sampling(body, "stop", limit)}
        request |= wire.tools(body, inside="function")
        form = holder = wire.optional(body, "response_format")
        if form.get("type") == "json_schema":
            holder = wire.mapping(form.get("json_schema"), "json_schema")
        request |= wire.schema_in(form, holder)
        usage = bool(wire.optional(body, "stream_options").get("include_usage"))
        samples = wire.whole_number(body, "n") or 1
        if samples > 1 and body.get("stream"):
            raise ValueError("n: the stub streams one sample only")
        return WireRequest(request, bool(body.get("stream")), samples, usage)

    def encode(self, made: Sequence[WireAnswer]) -> bytes:
        choices = [_choice(i, answer) for i, answer in enumerate(made)]
        usage = _chat_usage(made[0].input_tokens, sum(answer.output_tokens for answer in made))
        head = _chat_head(made[0], "chat.completion")
        return wire.encode({**head, "choices": choices, "usage": usage})

    def stream(self, answer: WireAnswer, usage: bool) -> tuple[bytes, list[bytes], bytes]:
        head = _chat_head(answer, "chat.completion.chunk")

        def chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
            choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
            return wire.event({**head, "choices": [choice]})

        field = "refusal" if answer.stop == "refused" else "content"
        middle = [chunk({field: piece}) for piece in wire.pieces(answer.text)]
        for i, call in enumerate(answer.calls):
            function = {"name": call.name, "arguments": ""}
            start = {"index": i, "id": call.id, "type": "function", "function": function}
            middle.append(chunk({"tool_calls": [start]}))
            for piece in wire.pieces(call.arguments):
                part = {"index": i, "function": {"arguments": piece}}
                middle.append(chunk({"tool_calls": [part]}))
        end = chunk({}, _STOPS[answer.stop])
        if usage:
            tokens = _chat_usage(answer.input_tokens, answer.output_tokens)
            end += wire.event({**head, "choices": [], "usage": tokens})
        return chunk({"role": "assistant", "content": ""}), middle, end + b"data: [DONE]\n\n"


def _chat_message(message: Mapping[str, Any], where: str) -> dict[str, Any]:
    if message.get("role") == "tool":
        return wire.tool_result(message.get("tool_call_id"), message.get("content"), where)
    decoded = _message(message, where)
    if message.get("tool_calls"):
        decoded["tool_calls"] = [
            wire.tool_call({**wire.mapping(call.get("function"), where), "id": call.get("id")})
            for call in message["tool_calls"]
        ]
    return decoded


def _chat_head(answer: WireAnswer, kind: str) -> dict[str, Any]:
    return {"id": f"chatcmpl-{answer.id}", "object": kind, "created": 0, "model": answer.model}


def _choice(index: int, answer: WireAnswer) -> dict[str, Any]:
    refused = answer.stop == "refused"
    message: dict[str, Any] = {
        "role": "assistant",
        "content": None if refused or (answer.calls and not answer.text) else answer.text,
        "refusal": answer.text if refused else None,
        "annotations": [],
    }
    if answer.calls:
        message["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in answer.calls
        ]
    finish = _STOPS[answer.stop]
    return {"index": index, "message": message, "logprobs": None, "finish_reason": finish}


def _chat_usage(read: int, written: int) -> dict[str, Any]:
    return {
        "prompt_tokens": read,
        "completion_tokens": written,
        "total_tokens": read + written,
        "prompt_tokens_details": {"cached_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 0},
    }


# ---------------------------------------------------------------- Responses


class Responses(_OpenAI):
    """`POST /v1/responses`. Nothing is stored: every request brings all its input."""

    def decode(self, body: Mapping[str, Any]) -> WireRequest:
        messages: list[dict[str, Any]] = []
        if body.get("previous_response_id"):
            raise ValueError("previous_response_id: the stub stores no responses")
        if body.get("instructions"):
            messages.append({"role": "system", "content": str(body["instructions"])})
        received = body.get("input")
        if isinstance(received, str):
            messages.append({"role": "user", "content": received})
        elif isinstance(received, list) and received:
            for i, item in enumerate(received):
                _add_item(messages, wire.mapping(item, f"input[{i}]"), f"input[{i}]")
        else:
            raise ValueError("input: expected a text or a list with at least one item")
        limit = wire.whole_number(body, "max_output_tokens")
        request = {"messages": messages, **wire.sampling(body, "stop", limit), **wire.tools(body)}
        form = wire.optional(wire.optional(body, "text"), "format", "text.format")
        request |= wire.schema_in(form, form)
        thinks = body.get("reasoning") is not None
        return WireRequest(request, bool(body.get("stream")), thinks=thinks)

    def encode(self, made: Sequence[WireAnswer]) -> bytes:
        return wire.encode(_response(made[0], _items(made[0])))

    def stream(self, answer: WireAnswer, usage: bool) -> tuple[bytes, list[bytes], bytes]:
        number = -1

        def send(name: str, /, **data: Any) -> bytes:
            nonlocal number
            number += 1
            return wire.event({"type": name, **data, "sequence_number": number}, name)

        started = {**_response(answer, []), "status": "in_progress", "usage": None}
        begin = send("response.created", response=started)
        begin += send("response.in_progress", response=started)
        middle: list[bytes] = []
        items = _items(answer)
        for i, item in enumerate(items):
            blank = {**item, "status": "in_progress"}
            if item["type"] == "reasoning":
                blank = item
            elif item["type"] == "function_call":
                blank["arguments"] = ""
            else:
                blank["content"] = []
            middle.append(send("response.output_item.added", output_index=i, item=blank))
            if item["type"] == "function_call":
                middle += _call_events(send, i, item)
            elif item["type"] == "message":
                middle += _text_events(send, i, item)
            middle.append(send("response.output_item.done", output_index=i, item=item))
        done = "response.incomplete" if answer.stop == "length" else "response.completed"
        return begin, middle, send(done, response=_response(answer, items))


def _add_item(messages: list[dict[str, Any]], item: Mapping[str, Any], where: str) -> None:
    """Add an item of the input to the messages; a call belongs to the assistant's last message."""
    kind = item.get("type", "message")
    if kind == "message":
        messages.append(_message(item, where))
    elif kind == "function_call":
        if not messages or messages[-1]["role"] != "assistant":
            messages.append({"role": "assistant", "content": ""})
        messages[-1].setdefault("tool_calls", []).append(wire.tool_call(item, "call_id"))
    elif kind == "function_call_output":
        messages.append(wire.tool_result(item.get("call_id"), item.get("output"), where))
    elif kind == "reasoning":
        # Nothing is stored, so the caller has to send the item back unchanged.
        if item.get("encrypted_content") != wire.signed(wire.THOUGHT):
            raise ValueError(
                f"Item with id {item.get('id')!r} not found. Items are not persisted when `store` "
                "is set to false."
            )
    else:
        raise ValueError(f"{where}.type: the stub does not read {kind!r}")


def _items(answer: WireAnswer) -> list[dict[str, Any]]:
    status = "incomplete" if answer.stop == "length" else "completed"
    items: list[dict[str, Any]] = []
    if answer.thinking:
        signature = wire.signed(answer.thinking)
        items.append(
            {
                "type": "reasoning",
                "id": f"rs_{answer.id}",
                "summary": [],
                "encrypted_content": signature,
            }
        )
    if answer.text or not answer.calls:
        part: dict[str, Any] = {"type": "refusal", "refusal": answer.text}
        if answer.stop != "refused":
            part = {"type": "output_text", "text": answer.text, "annotations": [], "logprobs": []}
        items.append(
            {
                "type": "message",
                "id": f"msg_{answer.id}",
                "status": status,
                "role": "assistant",
                "content": [part],
            }
        )
    for call in answer.calls:
        items.append(
            {
                "type": "function_call",
                "id": f"fc_{call.id}",
                "call_id": call.id,
                "name": call.name,
                "arguments": call.arguments,
                "status": status,
            }
        )
    return items


def _response(answer: WireAnswer, items: list[dict[str, Any]]) -> dict[str, Any]:
    cut = answer.stop == "length"
    return {
        "id": f"resp_{answer.id}",
        "object": "response",
        "created_at": 0,
        "status": "incomplete" if cut else "completed",
        "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
        "error": None,
        "instructions": None,
        "metadata": {},
        "model": answer.model,
        "output": items,
        "parallel_tool_calls": True,
        "temperature": None,
        "tool_choice": "auto",
        "tools": [],
        "top_p": None,
        "usage": {
            "input_tokens": answer.input_tokens,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": answer.output_tokens,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": answer.input_tokens + answer.output_tokens,
        },
    }


Send = Callable[..., bytes]


def _text_events(send: Send, index: int, item: Mapping[str, Any]) -> list[bytes]:
    part = item["content"][0]
    field = "refusal" if part["type"] == "refusal" else "text"
    name = "response.refusal" if field == "refusal" else "response.output_text"
    at = {"item_id": item["id"], "output_index": index, "content_index": 0}
    extra: dict[str, Any] = {"logprobs": []} if field == "text" else {}
    return [
        send("response.content_part.added", **at, part={**part, field: ""}),
        *(send(f"{name}.delta", **at, delta=piece, **extra) for piece in wire.pieces(part[field])),
        send(f"{name}.done", **at, **{field: part[field]}, **extra),
        send("response.content_part.done", **at, part=part),
    ]


def _call_events(send: Send, index: int, item: Mapping[str, Any]) -> list[bytes]:
    at = {"item_id": item["id"], "output_index": index}
    name, arguments = "response.function_call_arguments", item["arguments"]
    return [
        *(send(f"{name}.delta", **at, delta=piece) for piece in wire.pieces(arguments)),
        send(f"{name}.done", **at, name=item["name"], arguments=arguments),
    ]
