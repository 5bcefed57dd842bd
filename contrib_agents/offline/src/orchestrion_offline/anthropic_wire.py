"""Speak Anthropic's Messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from orchestrion_offline import wire
from orchestrion_offline.wire import WireAnswer, WireRequest

_STOPS = {"end": "end_turn", "length": "max_tokens", "tools": "tool_use", "refused": "refusal"}
_THINKING = ("thinking", "redacted_thinking")


class Messages:
    """`POST /v1/messages`."""

    overloaded = 529

    def decode(self, body: Mapping[str, Any]) -> WireRequest:
        received = wire.messages_of(body)
        thinks = wire.optional(body, "thinking").get("type") in ("enabled", "adaptive")
        messages: list[dict[str, Any]] = []
        if body.get("system"):
            content = wire.plain_text(body["system"], "system")
            messages.append({"role": "system", "content": content})
        for i, message in enumerate(received):
            messages += _decoded(message, f"messages.{i}", thinks)
        limit = wire.whole_number(body, "max_tokens", required=True)
        request = {"messages": messages, **wire.sampling(body, "stop_sequences", limit)}
        request |= wire.tools(body, schema="input_schema")
        config = wire.optional(body, "output_config")
        form = wire.optional(config, "format", "output_config.format")
        if form.get("type") == "json_schema":
            request |= wire.schema_in(form, form)
        if thinks and request.get("tool_choice", "auto") not in ("auto", "none"):
            raise ValueError("Thinking may not be enabled when tool_choice forces tool use.")
        return WireRequest(request, bool(body.get("stream")), thinks=thinks)

    def encode(self, made: Sequence[WireAnswer]) -> bytes:
        [answer] = made
        content = [block for block, _ in _blocks(answer)]
        usage = {"input_tokens": answer.input_tokens, "output_tokens": answer.output_tokens}
        return wire.encode({**_head(answer), "content": content, **_stop(answer), "usage": usage})

    def stream(self, answer: WireAnswer, usage: bool) -> tuple[bytes, list[bytes], bytes]:

        def send(name: str, /, **data: Any) -> bytes:
            return wire.event({"type": name, **data}, name)

        empty = {**_head(answer), "content": [], "stop_reason": None, "stop_sequence": None}
        tokens = {"input_tokens": answer.input_tokens, "output_tokens": 1}
        begin = send("message_start", message={**empty, "usage": tokens}) + send("ping")
        middle: list[bytes] = []
        for i, (block, deltas) in enumerate(_blocks(answer)):
            middle.append(send("content_block_start", index=i, content_block=_blank(block)))
            for name, field, value in deltas:
                delta = {"type": name, field: value}
                middle.append(send("content_block_delta", index=i, delta=delta))
            middle.append(send("content_block_stop", index=i))
        end = send(
            "message_delta", delta=_stop(answer), usage={"output_tokens": answer.output_tokens}
        )
        return begin, middle, end + send("message_stop")

    def error(self, status: int, kind: str, message: str) -> bytes:
        return wire.encode({"type": "error", "error": {"type": kind, "message": message}})


def _decoded(message: Mapping[str, Any], where: str, thinks: bool) -> list[dict[str, Any]]:
    """Return a message; each result of a tool becomes a message of its own before it."""
    role = message.get("role")
    if role not in ("user", "assistant"):
        raise ValueError(f"{where}.role: got {role!r}, expected 'user' or 'assistant'")
    results: list[dict[str, Any]] = []
    texts: list[Mapping[str, Any]] = []
    calls: list[dict[str, Any]] = []
    parts = wire.parts_of(message.get("content"), where)
    if thinks and any(part.get("type") == "tool_use" for part in parts):
        _check_thinking(parts[0], where)
    for part in parts:
        kind = part.get("type")
        if kind == "tool_use":
            arguments = wire.encode(part.get("input")).decode()
            calls.append({**wire.tool_call(part), "arguments": arguments})
        elif kind == "tool_result":
            results.append(wire.tool_result(part.get("tool_use_id"), part.get("content"), where))
        elif kind not in _THINKING:
            texts.append(part)
    if not (texts or calls or role == "assistant"):
        return results
    own: dict[str, Any] = {"role": role, "content": wire.plain_text(texts, where)}
    return [*results, {**own, "tool_calls": calls} if calls else own]


def _check_thinking(part: Mapping[str, Any], where: str) -> None:
    """Check, as the service does, that a tool call comes back with the thinking before it."""
    kind = part.get("type")
    if kind not in _THINKING:
        raise ValueError(
            f"{where}.content.0.type: Expected `thinking` or `redacted_thinking`, but found "
            f"`{kind}`. When `thinking` is enabled, a final `assistant` message must start with a "
            "thinking block"
        )
    if kind == "thinking" and part.get("signature") != wire.signed(str(part.get("thinking"))):
        raise ValueError(f"{where}.content.0: Invalid `signature` in `thinking` block")


def _head(answer: WireAnswer) -> dict[str, Any]:
    return {
        "id": f"msg_{answer.id}",
        "type": "message",
        "role": "assistant",
        "model": answer.model,
    }


def _stop(answer: WireAnswer) -> dict[str, Any]:
    reason = _STOPS[answer.stop] if answer.sequence is None else "stop_sequence"
    return {"stop_reason": reason, "stop_sequence": answer.sequence}


def _blocks(answer: WireAnswer) -> list[tuple[dict[str, Any], list[tuple[str, str, str]]]]:
    """Return each content block, with its deltas in a stream as (type, field, value)."""
    blocks: list[tuple[dict[str, Any], list[tuple[str, str, str]]]] = []
    if thinking := answer.thinking:
        signature = wire.signed(thinking)
        deltas = [("thinking_delta", "thinking", piece) for piece in wire.pieces(thinking)]
        deltas.append(("signature_delta", "signature", signature))
        blocks.append(({"type": "thinking", "thinking": thinking, "signature": signature}, deltas))
    if answer.text or not answer.calls:
        deltas = [("text_delta", "text", piece) for piece in wire.pieces(answer.text)]
        blocks.append(({"type": "text", "text": answer.text, "citations": None}, deltas))
    for call in answer.calls:
        block = {"type": "tool_use", "id": call.id, "name": call.name}
        pieces = wire.pieces(call.arguments)
        deltas = [("input_json_delta", "partial_json", piece) for piece in pieces]
        blocks.append(({**block, "input": _object(call.arguments)}, deltas))
    return blocks


def _blank(block: Mapping[str, Any]) -> dict[str, Any]:
    """Return a block as it is when its stream starts."""
    empty = {"thinking": "", "signature": "", "text": "", "input": {}}
    return {name: empty.get(name, value) for name, value in block.items() if name != "citations"}


def _object(arguments: str) -> Any:
    """Return arguments as an object; this format has no place for text that is none."""
    try:
        value = msgspec.json.decode(arguments)
    except msgspec.DecodeError:
        return {"unparsed": arguments}
    return value if isinstance(value, dict) else {"unparsed": arguments}
