"""Read requests and build answers: the part that all wire formats share.

A wire format decodes a request body to a `WireRequest`; `answers` asks the speaker and returns each
answer as a `WireAnswer`, cut, counted and with ids; the format then encodes it. A token of this
service is four bytes, so that counts are known and bounded by bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from typing import Any, Protocol

import msgspec
from attrs import evolve, frozen

from orchestrion import JSON, Key
from orchestrion_offline.interfaces import Answer, Speaker, ToolCall

encode = msgspec.json.encode
THOUGHT = "I think it over, as simulated speakers do."
"""The thinking before every answer to a request that turns thinking on."""
_TOKEN_BYTES = 4
_REFUSAL = Answer("I cannot help with that.", stop="refused")


@frozen
class WireRequest:
    """A decoded request.

    Args:
        request: in the form of `orchestrion.Model`, without `model`.
        stream: whether the answer is sent as events.
        samples: number of answers.
        usage: whether a stream of Chat Completions ends with its usage.
        thinks: whether the answer begins with signed thinking.
    """

    request: Mapping[str, JSON]
    stream: bool = False
    samples: int = 1
    usage: bool = False
    thinks: bool = False


@frozen
class WireAnswer:
    """An answer to encode.

    Args:
        id: hexadecimal; each format puts its own prefix before it.
        model: the requested model's name.
        text: what the speaker says, or the text of its refusal.
        calls: the tool calls, each with an id.
        stop: "end", "length", "tools" or "refused".
        sequence: the stop sequence that ended the text; None if none did.
        input_tokens: tokens of the request.
        output_tokens: tokens of the text, the calls and the thinking.
        thinking: the thinking before the text; "" for none.
    """

    id: str
    model: str
    text: str
    calls: tuple[ToolCall, ...]
    stop: str
    sequence: str | None
    input_tokens: int
    output_tokens: int
    thinking: str = ""


class Wire(Protocol):
    """A wire format. Each method that reads raises ValueError with what is wrong in the body."""

    overloaded: int
    """HTTP status for "the service is busy"."""

    def decode(self, body: Mapping[str, Any]) -> WireRequest:
        """Return the decoded request."""
        ...

    def encode(self, made: Sequence[WireAnswer]) -> bytes:
        """Return the answer as one document."""
        ...

    def stream(self, answer: WireAnswer, usage: bool) -> tuple[bytes, list[bytes], bytes]:
        """Return the answer as server-sent events: the first ones, its pieces, the last ones."""
        ...

    def error(self, status: int, kind: str, message: str) -> bytes:
        """Return an error as the service writes it."""
        ...


# ---------------------------------------------------------------- reading


def mapping(value: Any, where: str) -> Mapping[str, Any]:
    """Return a value that must be a JSON object."""
    if not isinstance(value, dict):
        raise ValueError(f"{where}: expected an object, got {type(value).__name__}")
    return value


def optional(body: Mapping[str, Any], name: str, where: str = "") -> Mapping[str, Any]:
    """Return the JSON object in a field; an empty one if the field is missing or empty."""
    return mapping(body.get(name) or {}, where or name)


def parts_of(content: Any, where: str) -> list[Mapping[str, Any]]:
    """Return a content as a list of parts; a string becomes one part."""
    if content is None:
        return []
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if not isinstance(content, list):
        raise ValueError(f"{where}: expected a text or a list of parts")
    return [mapping(part, where) for part in content]


def plain_text(content: Any, where: str) -> str:
    """Return a content as one text; an image or a file becomes `[image]` or `[file]`."""
    return "\n".join(_text(part, where) for part in parts_of(content, where))


_MEDIA = {"image": "image", "image_url": "image", "input_image": "image"}
_MEDIA |= {"document": "file", "file": "file", "input_file": "file"}


def _text(part: Mapping[str, Any], where: str) -> str:
    if part.get("type") in _MEDIA:
        return f"[{_MEDIA[part['type']]}]"
    text = part.get("text", part.get("refusal"))
    if not isinstance(text, str):
        raise ValueError(f"{where}: the stub does not read {part.get('type')!r}")
    return text


def messages_of(body: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the messages of a request."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise ValueError("messages: expected a list with at least one message")
    return [mapping(message, "messages") for message in messages]


def tool_call(source: Mapping[str, Any], id_name: str = "id") -> dict[str, Any]:
    """Return a tool call of an earlier answer in the form of `orchestrion.Model`."""
    names = {"id": id_name, "name": "name", "arguments": "arguments"}
    return {name: source.get(field) for name, field in names.items()}


def tool_result(call_id: Any, content: Any, where: str) -> dict[str, Any]:
    """Return the message with the result of a tool call."""
    return {"role": "tool", "tool_call_id": call_id, "content": plain_text(content, where)}


def whole_number(body: Mapping[str, Any], name: str, required: bool = False) -> int | None:
    """Return a field's number of 1 or more; None if the field is missing and not required."""
    value = body.get(name)
    if value is None and not required:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{name}: expected a whole number of 1 or more, got {value!r}")
    return value


def sampling(body: Mapping[str, Any], stop: str, limit: int | None) -> dict[str, Any]:
    """Return the sampling settings, under the names of `orchestrion.Model`."""
    settings: dict[str, Any] = {}
    for name in ("temperature", "top_p"):
        value = body.get(name)
        if value is not None:
            if not isinstance(value, int | float) or isinstance(value, bool):
                raise ValueError(f"{name}: expected a number, got {value!r}")
            settings[name] = value
    sequences = body.get(stop)
    if sequences:
        settings["stop"] = [sequences] if isinstance(sequences, str) else list(sequences)
    if limit is not None:
        settings["max_tokens"] = limit
    return settings


def schema_in(form: Mapping[str, Any], holder: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of the answer, under the name of `orchestrion.Model`, if there is one."""
    if form.get("type") == "json_schema":
        return {"schema": holder.get("schema")}
    return {"schema": {"type": "object"}} if form.get("type") == "json_object" else {}


def tools(body: Mapping[str, Any], schema: str = "parameters", inside: str = "") -> dict[str, Any]:
    """Return the tools and the tool choice of a request, under the names of `orchestrion.Model`.

    `schema` is the field of a tool that has the schema of its arguments; `inside` the field of an
    entry that has the tool, "" if the entry itself is the tool.
    """
    if not body.get("tools"):
        return {}
    entries = [mapping(entry, "tools") for entry in body["tools"]]
    if inside:
        entries = [mapping(entry.get(inside), f"tools.{inside}") for entry in entries]
    described = [
        {
            "name": tool.get("name"),
            "description": tool.get("description") or "",
            "schema": tool.get(schema) or {},
        }
        for tool in entries
    ]
    return {
        "tools": described,
        **_tool_choice(body.get("tool_choice"), [tool["name"] for tool in described]),
    }


def _tool_choice(choice: Any, names: list[Any]) -> dict[str, Any]:
    if choice is None:
        return {}
    if isinstance(choice, str):
        kind, name = choice, None
    else:
        choice = mapping(choice, "tool_choice")
        kind = choice.get("type")
        name = choice.get("name") or (choice.get("function") or {}).get("name")
    if kind in ("tool", "function"):
        if name not in names:
            raise ValueError(f"tool_choice: there is no tool {name!r}")
        return {"tool_choice": name}
    if kind not in ("auto", "none", "any", "required"):
        raise ValueError(f"tool_choice: got {kind!r}, expected auto, none, any, required or a tool")
    return {"tool_choice": "required" if kind == "any" else kind}


# ---------------------------------------------------------------- writing


def event(data: Any, name: str = "") -> bytes:
    """Return one server-sent event."""
    head = f"event: {name}\n".encode() if name else b""
    return head + b"data: " + encode(data) + b"\n\n"


def pieces(text: str) -> list[str]:
    """Split a text for a stream: at least 12 characters a piece, at most 32 pieces."""
    size = max(12, -(-len(text) // 32))
    return [text[i : i + size] for i in range(0, len(text), size)]


def signed(thinking: str) -> str:
    """Return the signature that proves that a piece of thinking came from this service."""
    data = thinking.encode(errors="replace")
    return blake2b(data, digest_size=16, person=b"thinking").hexdigest()


# ---------------------------------------------------------------- answering


def answers(
    decoded: WireRequest, model: str, speaker: Speaker, draw: Key, ending: Callable[[Key], str]
) -> list[WireAnswer]:
    """Return one answer for each requested sample.

    `ending` draws whether an answer is a "refusal", a "truncation", or as the speaker says: "".
    """
    request = {**decoded.request, "model": model}
    draws = [draw] + [draw.child("sample", i) for i in range(1, decoded.samples)]
    read = _tokens_of(request)
    made = [_answer(request, speaker, sample, ending, read) for sample in draws]
    return [_with_thinking(answer, request) for answer in made] if decoded.thinks else made


def _with_thinking(answer: WireAnswer, request: Mapping[str, JSON]) -> WireAnswer:
    # The text was cut, if at all, as if there were no thinking.
    tokens = answer.output_tokens + count(THOUGHT)
    tokens = min(tokens, request.get("max_tokens", tokens))
    return evolve(answer, thinking=THOUGHT, output_tokens=tokens)


def _answer(
    request: Mapping[str, JSON],
    speaker: Speaker,
    draw: Key,
    ending: Callable[[Key], str],
    read: int,
) -> WireAnswer:
    end = ending(draw.child("ending"))
    answer = speaker.say(request, draw.child("say")) if end != "refusal" else _REFUSAL
    limit = request.get("max_tokens")
    if end == "truncation":
        half = (count(answer.text) + _tokens_of_calls(answer.tool_calls)) // 2
        limit = half if limit is None else min(limit, half)
    name = draw.child("id").hex()[:24]
    text, sequence = _until_stop(answer.text, request.get("stop", ()))
    calls = tuple(evolve(call, id=f"call_{name}{i}") for i, call in enumerate(answer.tool_calls))
    written = count(text) + _tokens_of_calls(calls)
    stop: str = answer.stop if answer.stop == "refused" else "tools" if calls else "end"
    if limit is not None and (written > limit or end == "truncation"):
        # Calls that do not fit are left out: no service sends half a call.
        text, calls, stop, sequence = _cut(text, limit), (), "length", None
        written = count(text)
    model = str(request["model"])
    return WireAnswer(name, model, text, calls, stop, sequence, read, max(written, 1))


def _until_stop(text: str, sequences: Sequence[str]) -> tuple[str, str | None]:
    """Return the text before the first stop sequence, and that sequence."""
    ends = [(at, end) for end in sequences if end and (at := text.find(end)) >= 0]
    if not ends:
        return text, None
    at, end = min(ends)
    return text[:at], end


def count(text: str) -> int:
    """Return the number of tokens of a text."""
    size = len(text) if text.isascii() else len(text.encode("utf-8", "replace"))
    return -(-size // _TOKEN_BYTES)


def _cut(text: str, tokens: int) -> str:
    """Return the beginning of a text, of at most so many tokens."""
    if count(text) <= tokens:
        return text
    return text.encode("utf-8", "replace")[: tokens * _TOKEN_BYTES].decode("utf-8", "ignore")


def _tokens_of_calls(calls: Sequence[ToolCall]) -> int:
    return sum(count(f"{call.name}{call.arguments}") for call in calls)


def _tokens_of(request: Mapping[str, JSON]) -> int:
    """Return the tokens of a request's texts, calls, tools and schema."""
    total = 0
    for message in request["messages"]:
        total += count(message.get("content") or "")
        for call in message.get("tool_calls", ()):
            total += count(f"{call['name']}{call['arguments']}")
    for part in (request.get("tools"), request.get("schema")):
        if part:
            total += count(encode(part).decode())
    return max(total, 1)
