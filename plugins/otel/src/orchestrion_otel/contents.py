"""What was asked and answered, in the form of the conventions: roles and parts, as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from orchestrion import JSON
from orchestrion_otel.constants import (
    INPUT_MESSAGES,
    INSTRUCTIONS,
    OUTPUT_MESSAGES,
    TOOL_DEFINITIONS,
)

LONGEST: Final = 20_000
"""Characters of a text; the rest is in the run folder."""
_TEXTS: Final = ("text", "input_text", "output_text")


def as_json(value: JSON) -> str:
    """Return JSON of a value whose texts are cut."""
    return msgspec.json.encode(_cut(value)).decode()


def text_message(role: str, text: str) -> str:
    """Return a list with one message, as JSON."""
    return as_json([{"role": role, "parts": [_text(text)]}])


def model_contents(asked: JSON, answer: JSON, finish: str) -> dict[str, str]:
    """Return the attributes that hold what a model was asked and answered."""
    contents = {}
    if isinstance(asked, Mapping):
        system = asked.get("system") or asked.get("instructions")
        if system:
            contents[INSTRUCTIONS] = as_json(list(_parts(system)))
        if asked.get("tools"):
            contents[TOOL_DEFINITIONS] = as_json(asked["tools"])
        messages = asked.get("messages") or asked.get("input")
        if isinstance(messages, str):
            messages = [{"role": "user", "content": messages}]
        if isinstance(messages, (list, tuple)):
            contents[INPUT_MESSAGES] = as_json([_message(message) for message in messages])
    if isinstance(answer, Mapping):
        parts = [_text(answer["text"])] if answer.get("text") else []
        parts += [_tool_call(call) for call in answer.get("tool_calls") or ()]
        message = {"role": "assistant", "parts": parts, "finish_reason": finish}
        contents[OUTPUT_MESSAGES] = as_json([message])
    return contents


def _message(message: Any) -> dict[str, JSON]:
    if not isinstance(message, Mapping):
        return {"role": "user", "parts": [_text(str(message))]}
    role = str(message.get("role") or message.get("type") or "user")
    content = message.get("content")
    if role == "tool":
        return {"role": role, "parts": [_tool_response(message.get("tool_call_id"), content)]}
    parts = list(_parts(content))
    parts += [_tool_call(call) for call in message.get("tool_calls") or ()]
    return {"role": role, "parts": parts}


def _parts(content: Any) -> Iterator[dict[str, JSON]]:
    if isinstance(content, str):
        yield _text(content)
    elif isinstance(content, (list, tuple)):
        for block in content:
            yield _block(block) if isinstance(block, Mapping) else _text(str(block))


def _block(block: Mapping[str, Any]) -> dict[str, JSON]:
    kind = str(block.get("type"))
    if kind in _TEXTS:
        return _text(str(block.get("text", "")))
    if kind == "tool_use":
        return _tool_call(block)
    if kind == "tool_result":
        return _tool_response(block.get("tool_use_id"), block.get("content"))
    # Of images and files only that there was one.
    return {"type": kind}


def _tool_call(call: Mapping[str, Any]) -> dict[str, JSON]:
    function = call.get("function") or call
    arguments = function.get("arguments", function.get("input"))
    name = function.get("name")
    return {"type": "tool_call", "id": call.get("id"), "name": name, "arguments": arguments}


def _tool_response(id: JSON, response: JSON) -> dict[str, JSON]:
    return {"type": "tool_call_response", "id": id, "response": response}


def _text(text: str) -> dict[str, JSON]:
    return {"type": "text", "content": text}


def _cut(value: JSON) -> JSON:
    if isinstance(value, str):
        value = value.encode(errors="replace").decode()
        if len(value) > LONGEST:
            return f"{value[:LONGEST]}... ({len(value):,} characters)"
        return value
    if isinstance(value, Mapping):
        return {str(name): _cut(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_cut(item) for item in value]
    return value
