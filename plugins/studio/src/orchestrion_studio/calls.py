"""What a call asked and was answered, in the words of the API it went to, as parts to show."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from orchestrion.runs import as_data
from orchestrion_studio.showing import Showing

_TEXTS = ("text", "input_text", "output_text")


def call_data(call: Any, before: list[Any], showing: Showing) -> dict[str, Any]:
    """Return a call, as `RunReader.calls` gives it, as data of a page.

    `before` are the messages of the turn's call before, which are not shown again; this call's
    replace them.
    """
    name = f"call-{call.name}"
    messages: list[Any] = []
    tool = call.tool
    settings: Any = None if tool else call.asked
    same = 0
    if call.messages is not None:
        messages, settings = call.messages
        same = len(before) if before and messages[: len(before)] == before else 0
        before[:] = messages
    return {
        "name": call.name,
        "service": call.service,
        "who": call.who,
        "kind": call.kind,
        "usage": as_data(call.usage),
        "seconds": call.seconds,
        "attempts": call.attempts,
        "tool": None if tool is None else tool[0],
        "arguments": showing.json(None if tool is None else tool[1], name),
        "settings": showing.json(None if same else settings or None, name),
        "same": same,
        "messages": [
            {"role": _role(message), "parts": _parts(message, name, showing)}
            for message in messages[same:]
        ],
        "answer": _answer(call, name, showing),
    }


def _role(message: Any) -> str:
    if not isinstance(message, Mapping):
        return "message"
    return str(message.get("role") or message.get("type") or "message")


def _parts(message: Any, name: str, showing: Showing) -> list[dict[str, Any]]:
    """Return the parts of a message, each with its label ("" for its text)."""
    if not isinstance(message, Mapping):
        return [_part("", message, name, showing)]
    content = message.get("content")
    blocks = content if isinstance(content, list) else [content]
    parts = [_part("", block, name, showing) for block in blocks if block not in (None, "")]
    rest = {k: v for k, v in message.items() if k not in ("role", "type", "content") and v}
    return parts + [_part(label, value, name, showing) for label, value in rest.items()]


def _part(label: str, value: Any, name: str, showing: Showing) -> dict[str, Any]:
    if isinstance(value, Mapping) and value.get("type") in _TEXTS:
        value = value.get("text")
    elif isinstance(value, Mapping) and value.get("type"):
        label = label or str(value["type"])
    shown = showing.plain(value, name) if isinstance(value, str) else showing.json(value, name)
    return {"label": label, "shown": shown}


def _answer(call: Any, name: str, showing: Showing) -> list[dict[str, Any]]:
    answer = call.answer
    if call.kind not in ("answer", "cached", "failed"):
        return [_part("no answer", call.kind, name, showing)]
    if call.kind == "failed" or not isinstance(answer, Mapping) or "text" not in answer:
        return [] if answer is None else [_part("", answer, name, showing)]
    parts = [_part("", answer["text"], name, showing)] if answer["text"] else []
    labels = ("tool_calls", "stop", "reason", "error")
    return parts + [
        _part(label, answer[label], name, showing)
        for label in labels
        if answer.get(label) and answer[label] != "end"
    ]
