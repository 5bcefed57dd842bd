"""OpenAI's Chat Completions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from orchestrion_offline.wires import form

__all__ = ["Chat", "openai_error"]

_STOPS = {"end": "stop", "length": "length", "tools": "tool_calls", "refused": "stop"}
_ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}


class Chat:
    """`POST /v1/chat/completions`."""

    name = "openai"
    overloaded = 503

    def decode(self, body: Mapping[str, Any]) -> form.Asked:
        """See `Wire.decode`."""
        listed = form.listed(body)
        messages = [_message(form.mapping(one, "messages"), i) for i, one in enumerate(listed)]
        limit = form.whole_number(body, "max_completion_tokens") or form.whole_number(
            body, "max_tokens"
        )
        request = {"messages": messages, **form.sampling(body, "stop", limit)}
        request |= form.tools(body, inside="function")
        wanted = form.mapping(body.get("response_format") or {}, "response_format")
        if wanted.get("type") == "json_schema":
            request["schema"] = form.mapping(wanted.get("json_schema"), "json_schema").get("schema")
        elif wanted.get("type") == "json_object":
            request["schema"] = {"type": "object"}
        options = form.mapping(body.get("stream_options") or {}, "stream_options")
        samples = form.whole_number(body, "n") or 1
        if samples > 1 and body.get("stream"):
            raise form.BadRequestError("n: the stub streams one sample only")
        return form.Asked(
            request, bool(body.get("stream")), samples, bool(options.get("include_usage"))
        )

    def encode(self, made: Sequence[form.Made]) -> bytes:
        """See `Wire.encode`."""
        first = made[0]
        return form.encode(
            {
                "id": f"chatcmpl-{first.id}",
                "object": "chat.completion",
                "created": 0,
                "model": first.model,
                "choices": [_choice(i, one) for i, one in enumerate(made)],
                "usage": _usage(first.input_tokens, sum(one.output_tokens for one in made)),
            }
        )

    def stream(self, made: form.Made, asked: form.Asked) -> tuple[bytes, list[bytes], bytes]:
        """See `Wire.stream`."""

        def chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
            choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
            return form.event({**head, "choices": [choice]})

        head = {
            "id": f"chatcmpl-{made.id}",
            "object": "chat.completion.chunk",
            "created": 0,
            "model": made.model,
        }
        field = "refusal" if made.stop == "refused" else "content"
        middle = [chunk({field: piece}) for piece in form.pieces(made.text)]
        for i, call in enumerate(made.calls):
            function = {"name": call.name, "arguments": ""}
            start = {"index": i, "id": call.id, "type": "function", "function": function}
            middle.append(chunk({"tool_calls": [start]}))
            for piece in form.pieces(call.arguments):
                part = {"index": i, "function": {"arguments": piece}}
                middle.append(chunk({"tool_calls": [part]}))
        end = chunk({}, _STOPS[made.stop])
        if asked.counted:
            end += form.event({**head, "choices": [], "usage": _usage_of(made)})
        return chunk({"role": "assistant", "content": ""}), middle, end + b"data: [DONE]\n\n"

    def error(self, status: int, kind: str, message: str) -> bytes:
        """See `Wire.error`."""
        return openai_error(status, kind, message)


def openai_error(status: int, kind: str, message: str) -> bytes:
    """An error in OpenAI's form."""
    code = {
        "authentication_error": "invalid_api_key",
        "not_found_error": "model_not_found",
        "rate_limit_error": "rate_limit_exceeded",
    }.get(kind)
    shown = kind if status >= 429 else "invalid_request_error"
    return form.encode({"error": {"message": message, "type": shown, "param": None, "code": code}})


def _message(message: Mapping[str, Any], i: int) -> dict[str, Any]:
    role, where = message.get("role"), f"messages[{i}]"
    if role == "tool":
        content = form.plain_text(message.get("content"), where)
        return {"role": "tool", "tool_call_id": message.get("tool_call_id"), "content": content}
    if role not in _ROLES:
        raise form.BadRequestError(f"{where}.role: got {role!r}")
    found: dict[str, Any] = {
        "role": _ROLES[role],
        "content": form.plain_text(message.get("content"), where),
    }
    if message.get("tool_calls"):
        found["tool_calls"] = [
            {
                "id": one.get("id"),
                "name": form.mapping(one.get("function"), where).get("name"),
                "arguments": form.mapping(one.get("function"), where).get("arguments"),
            }
            for one in message["tool_calls"]
        ]
    return found


def _choice(index: int, made: form.Made) -> dict[str, Any]:
    refused = made.stop == "refused"
    message: dict[str, Any] = {
        "role": "assistant",
        "content": None if refused or (made.calls and not made.text) else made.text,
        "refusal": made.text if refused else None,
        "annotations": [],
    }
    if made.calls:
        message["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in made.calls
        ]
    return {
        "index": index,
        "message": message,
        "logprobs": None,
        "finish_reason": _STOPS[made.stop],
    }


def _usage_of(made: form.Made) -> dict[str, Any]:
    return _usage(made.input_tokens, made.output_tokens)


def _usage(read: int, written: int) -> dict[str, Any]:
    return {
        "prompt_tokens": read,
        "completion_tokens": written,
        "total_tokens": read + written,
        "prompt_tokens_details": {"cached_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 0},
    }
