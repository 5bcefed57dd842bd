"""OpenAI's Responses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from orchestrion_offline.wires import form
from orchestrion_offline.wires.chat import openai_error
from orchestrion_offline.wires.form import THOUGHT

__all__ = ["Responses"]

_ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}


class Responses:
    """`POST /v1/responses`. Nothing is stored: every request brings all its input."""

    name = "responses"
    overloaded = 503

    def decode(self, body: Mapping[str, Any]) -> form.Asked:
        """See `Wire.decode`."""
        messages: list[dict[str, Any]] = []
        if body.get("previous_response_id"):
            raise form.BadRequestError("previous_response_id: the stub stores no responses")
        if body.get("instructions"):
            messages.append({"role": "system", "content": str(body["instructions"])})
        given = body.get("input")
        if isinstance(given, str):
            messages.append({"role": "user", "content": given})
        elif isinstance(given, list) and given:
            for i, item in enumerate(given):
                _add(messages, form.mapping(item, f"input[{i}]"), f"input[{i}]")
        else:
            raise form.BadRequestError("input: expected a text or a list with at least one item")
        limit = form.whole_number(body, "max_output_tokens")
        request = {"messages": messages, **form.sampling(body, "stop", limit)}
        request |= form.tools(body)
        wanted = form.mapping(
            form.mapping(body.get("text") or {}, "text").get("format") or {}, "text.format"
        )
        if wanted.get("type") == "json_schema":
            request["schema"] = wanted.get("schema")
        elif wanted.get("type") == "json_object":
            request["schema"] = {"type": "object"}
        thinks = body.get("reasoning") is not None
        return form.Asked(request, bool(body.get("stream")), thinks=thinks)

    def encode(self, made: Sequence[form.Made]) -> bytes:
        """See `Wire.encode`."""
        return form.encode(_response(made[0], _items(made[0])))

    def stream(self, made: form.Made, asked: form.Asked) -> tuple[bytes, list[bytes], bytes]:
        """See `Wire.stream`."""
        number = -1

        def send(name: str, /, **data: Any) -> bytes:
            nonlocal number
            number += 1
            return form.event({"type": name, **data, "sequence_number": number}, name)

        started = {**_response(made, []), "status": "in_progress", "usage": None}
        begin = send("response.created", response=started)
        begin += send("response.in_progress", response=started)
        middle: list[bytes] = []
        items = _items(made)
        for place, item in enumerate(items):
            if item["type"] == "reasoning":
                middle.append(send("response.output_item.added", output_index=place, item=item))
                middle.append(send("response.output_item.done", output_index=place, item=item))
                continue
            is_call = item["type"] == "function_call"
            blank = {**item, "status": "in_progress", **({} if is_call else {"content": []})}
            if is_call:
                blank["arguments"] = ""
            middle.append(send("response.output_item.added", output_index=place, item=blank))
            middle += _call(send, place, item) if is_call else _text(send, place, item)
            middle.append(send("response.output_item.done", output_index=place, item=item))
        done = "response.incomplete" if made.stop == "length" else "response.completed"
        return begin, middle, send(done, response=_response(made, items))

    def error(self, status: int, kind: str, message: str) -> bytes:
        """See `Wire.error`."""
        return openai_error(status, kind, message)


def _add(messages: list[dict[str, Any]], item: Mapping[str, Any], where: str) -> None:
    """One item of the input, as the message it belongs to."""
    kind = item.get("type", "message")
    if kind == "message":
        role = item.get("role")
        if role not in _ROLES:
            raise form.BadRequestError(f"{where}.role: got {role!r}")
        content = form.plain_text(item.get("content"), where)
        messages.append({"role": _ROLES[role], "content": content})
    elif kind == "function_call":
        call = {
            "id": item.get("call_id"),
            "name": item.get("name"),
            "arguments": item.get("arguments"),
        }
        if not messages or messages[-1]["role"] != "assistant":
            messages.append({"role": "assistant", "content": ""})
        messages[-1].setdefault("tool_calls", []).append(call)
    elif kind == "function_call_output":
        content = form.plain_text(item.get("output"), where)
        messages.append({"role": "tool", "tool_call_id": item.get("call_id"), "content": content})
    elif kind == "reasoning":
        # Nothing is stored: it has to come back as it was handed out.
        if item.get("encrypted_content") != form.signed(THOUGHT):
            raise form.BadRequestError(
                f"Item with id {item.get('id')!r} not found. Items are not persisted when `store` "
                "is set to false."
            )
    else:
        raise form.BadRequestError(f"{where}.type: the stub does not read {kind!r}")


def _items(made: form.Made) -> list[dict[str, Any]]:
    status = "incomplete" if made.stop == "length" else "completed"
    items: list[dict[str, Any]] = []
    if made.thinking:
        items.append(
            {
                "type": "reasoning",
                "id": f"rs_{made.id}",
                "summary": [],
                "encrypted_content": made.signature,
            }
        )
    if made.text or not made.calls:
        part: dict[str, Any]
        if made.stop == "refused":
            part = {"type": "refusal", "refusal": made.text}
        else:
            part = {"type": "output_text", "text": made.text, "annotations": [], "logprobs": []}
        items.append(
            {
                "type": "message",
                "id": f"msg_{made.id}",
                "status": status,
                "role": "assistant",
                "content": [part],
            }
        )
    for call in made.calls:
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


def _response(made: form.Made, items: list[dict[str, Any]]) -> dict[str, Any]:
    cut = made.stop == "length"
    return {
        "id": f"resp_{made.id}",
        "object": "response",
        "created_at": 0,
        "status": "incomplete" if cut else "completed",
        "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
        "error": None,
        "instructions": None,
        "metadata": {},
        "model": made.model,
        "output": items,
        "parallel_tool_calls": True,
        "temperature": None,
        "tool_choice": "auto",
        "tools": [],
        "top_p": None,
        "usage": {
            "input_tokens": made.input_tokens,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": made.output_tokens,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": made.input_tokens + made.output_tokens,
        },
    }


def _text(send: Any, place: int, item: Mapping[str, Any]) -> list[bytes]:
    part = item["content"][0]
    field = "refusal" if part["type"] == "refusal" else "text"
    name = "response.refusal" if field == "refusal" else "response.output_text"
    at = {"item_id": item["id"], "output_index": place, "content_index": 0}
    extra: dict[str, Any] = {"logprobs": []} if field == "text" else {}
    return [
        send("response.content_part.added", **at, part={**part, field: ""}),
        *(send(f"{name}.delta", **at, delta=one, **extra) for one in form.pieces(part[field])),
        send(f"{name}.done", **at, **{field: part[field]}, **extra),
        send("response.content_part.done", **at, part=part),
    ]


def _call(send: Any, place: int, item: Mapping[str, Any]) -> list[bytes]:
    at = {"item_id": item["id"], "output_index": place}
    name, arguments = "response.function_call_arguments", item["arguments"]
    return [
        *(send(f"{name}.delta", **at, delta=piece) for piece in form.pieces(arguments)),
        send(f"{name}.done", **at, name=item["name"], arguments=arguments),
    ]
