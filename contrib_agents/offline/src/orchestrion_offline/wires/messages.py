"""Anthropic's Messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from orchestrion_offline.wires import form

__all__ = ["Messages"]

_STOPS = {"end": "end_turn", "length": "max_tokens", "tools": "tool_use", "refused": "refusal"}


class Messages:
    """`POST /v1/messages`."""

    name = "anthropic"
    overloaded = 529

    def decode(self, body: Mapping[str, Any]) -> form.Asked:
        """See `Wire.decode`."""
        listed = form.listed(body)
        thinking = form.mapping(body.get("thinking") or {}, "thinking")
        thinks = thinking.get("type") in ("enabled", "adaptive")
        messages: list[dict[str, Any]] = []
        if body.get("system"):
            messages.append(
                {"role": "system", "content": form.plain_text(body["system"], "system")}
            )
        for i, one in enumerate(listed):
            _add(messages, form.mapping(one, "messages"), f"messages.{i}", thinks)
        limit = form.whole_number(body, "max_tokens", required=True)
        request = {"messages": messages, **form.sampling(body, "stop_sequences", limit)}
        request |= form.tools(body, schema="input_schema")
        config = form.mapping(body.get("output_config") or {}, "output_config")
        wanted = form.mapping(config.get("format") or {}, "output_config.format")
        if wanted.get("type") == "json_schema":
            request["schema"] = wanted.get("schema")
        if thinks and request.get("tool_choice", "auto") not in ("auto", "none"):
            raise form.BadRequestError(
                "Thinking may not be enabled when tool_choice forces tool use."
            )
        return form.Asked(request, bool(body.get("stream")), thinks=thinks)

    def encode(self, made: Sequence[form.Made]) -> bytes:
        """See `Wire.encode`."""
        one = made[0]
        content: list[dict[str, Any]] = []
        if one.thinking:
            content.append(
                {"type": "thinking", "thinking": one.thinking, "signature": one.signature}
            )
        if one.text or not one.calls:
            content.append({"type": "text", "text": one.text, "citations": None})
        for call in one.calls:
            content.append(_tool_use(call.id, call.name, _object(call.arguments)))
        usage = {"input_tokens": one.input_tokens, "output_tokens": one.output_tokens}
        return form.encode(
            {
                **_head(one),
                "content": content,
                "stop_reason": _STOPS[one.stop] if one.sequence is None else "stop_sequence",
                "stop_sequence": one.sequence,
                "usage": usage,
            }
        )

    def stream(self, made: form.Made, asked: form.Asked) -> tuple[bytes, list[bytes], bytes]:
        """See `Wire.stream`."""

        def send(name: str, /, **data: Any) -> bytes:
            return form.event({"type": name, **data}, name)

        usage = {"input_tokens": made.input_tokens, "output_tokens": 1}
        empty = {**_head(made), "content": [], "stop_reason": None, "stop_sequence": None}
        begin = send("message_start", message={**empty, "usage": usage}) + send("ping")
        middle: list[bytes] = []
        block: dict[str, Any]
        place = 0
        if made.thinking:
            block = {"type": "thinking", "thinking": "", "signature": ""}
            middle.append(send("content_block_start", index=0, content_block=block))
            for piece in form.pieces(made.thinking):
                delta = {"type": "thinking_delta", "thinking": piece}
                middle.append(send("content_block_delta", index=0, delta=delta))
            delta = {"type": "signature_delta", "signature": made.signature}
            middle.append(send("content_block_delta", index=0, delta=delta))
            middle.append(send("content_block_stop", index=0))
            place = 1
        if made.text or not made.calls:
            block = {"type": "text", "text": ""}
            middle.append(send("content_block_start", index=place, content_block=block))
            for piece in form.pieces(made.text):
                delta = {"type": "text_delta", "text": piece}
                middle.append(send("content_block_delta", index=place, delta=delta))
            middle.append(send("content_block_stop", index=place))
            place += 1
        for i, call in enumerate(made.calls, place):
            block = _tool_use(call.id, call.name, {})
            middle.append(send("content_block_start", index=i, content_block=block))
            for piece in form.pieces(call.arguments):
                delta = {"type": "input_json_delta", "partial_json": piece}
                middle.append(send("content_block_delta", index=i, delta=delta))
            middle.append(send("content_block_stop", index=i))
        reason = _STOPS[made.stop] if made.sequence is None else "stop_sequence"
        end = send(
            "message_delta",
            delta={"stop_reason": reason, "stop_sequence": made.sequence},
            usage={"output_tokens": made.output_tokens},
        )
        return begin, middle, end + send("message_stop")

    def error(self, status: int, kind: str, message: str) -> bytes:
        """See `Wire.error`."""
        return form.encode({"type": "error", "error": {"type": kind, "message": message}})


def _add(
    messages: list[dict[str, Any]], message: Mapping[str, Any], where: str, thinks: bool
) -> None:
    """A message; results of tools become messages of their own."""
    role = message.get("role")
    if role not in ("user", "assistant"):
        raise form.BadRequestError(f"{where}.role: got {role!r}, expected 'user' or 'assistant'")
    said: list[Mapping[str, Any]] = []
    calls: list[dict[str, Any]] = []
    parts = form.texts(message.get("content"), where)
    if thinks and any(part.get("type") == "tool_use" for part in parts):
        _check_thinking(parts[0], where)
    for part in parts:
        if part.get("type") in _THINKING:
            continue
        if part.get("type") == "tool_use":
            arguments = form.encode(part.get("input")).decode()
            calls.append({"id": part.get("id"), "name": part.get("name"), "arguments": arguments})
        elif part.get("type") == "tool_result":
            content = form.plain_text(part.get("content"), where)
            messages.append(
                {"role": "tool", "tool_call_id": part.get("tool_use_id"), "content": content}
            )
        else:
            said.append(part)
    if said or calls or role == "assistant":
        one: dict[str, Any] = {"role": role, "content": form.plain_text(list(said), where)}
        messages.append({**one, "tool_calls": calls} if calls else one)


_THINKING = ("thinking", "redacted_thinking")


def _check_thinking(part: Mapping[str, Any], where: str) -> None:
    """Insist on what the service insists on: a call comes back with the thinking before it."""
    kind = part.get("type")
    if kind not in _THINKING:
        raise form.BadRequestError(
            f"{where}.content.0.type: Expected `thinking` or `redacted_thinking`, but found "
            f"`{kind}`. When `thinking` is enabled, a final `assistant` message must start with a "
            "thinking block"
        )
    if kind == "thinking" and part.get("signature") != form.signed(str(part.get("thinking"))):
        raise form.BadRequestError(f"{where}.content.0: Invalid `signature` in `thinking` block")


def _head(made: form.Made) -> dict[str, Any]:
    return {"id": f"msg_{made.id}", "type": "message", "role": "assistant", "model": made.model}


def _tool_use(name: str, tool: str, given: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": name, "name": tool, "input": given}


def _object(arguments: str) -> Any:
    """Arguments as an object; what is none goes under a name, as this format has no other way."""
    try:
        found = msgspec.json.decode(arguments)
    except msgspec.DecodeError:
        return {"unparsed": arguments}
    return found if isinstance(found, dict) else {"unparsed": arguments}
