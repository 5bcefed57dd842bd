"""What the wire formats have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any, Protocol

import msgspec
from attrs import frozen

from orchestrion import JSON

__all__ = [
    "THOUGHT",
    "Asked",
    "BadRequestError",
    "Call",
    "Made",
    "Wire",
    "event",
    "listed",
    "mapping",
    "pieces",
    "plain_text",
    "sampling",
    "signed",
    "texts",
    "tools",
    "whole_number",
]

encode = msgspec.json.encode
THOUGHT = "I think it over, as simulated speakers do."
"""What they think before any answer, where they are to."""


class BadRequestError(Exception):
    """The body is no request of this format; says what is wrong with it."""


@frozen
class Asked:
    """A decoded request.

    Args:
        request: in the form of `orchestrion.Model`, with `model`.
        stream: whether the answer is to come as events.
        samples: how many answers.
        counted: whether a stream is to end with its usage.
        thinks: whether the answer is to begin with thinking, signed for the way back.
    """

    request: Mapping[str, JSON]
    stream: bool = False
    samples: int = 1
    counted: bool = False
    thinks: bool = False


@frozen
class Call:
    """A tool call of an answer."""

    id: str
    name: str
    arguments: str


@frozen
class Made:
    """An answer to be written. `stop`: "end", "length", "tools" or "refused"."""

    id: str
    model: str
    text: str
    calls: tuple[Call, ...]
    stop: str
    sequence: str | None
    input_tokens: int
    output_tokens: int
    thinking: str = ""

    @property
    def signature(self) -> str:
        """What proves that its thinking came from here."""
        return signed(self.thinking)


def signed(thinking: str) -> str:
    """The signature of a piece of thinking."""
    return blake2b(
        thinking.encode(errors="replace"), digest_size=16, person=b"thinking"
    ).hexdigest()


class Wire(Protocol):
    """One wire format."""

    name: str
    overloaded: int
    """The status that says the service is busy."""

    def decode(self, body: Mapping[str, Any]) -> Asked:
        """What a body asks.

        Raises:
            BadRequestError: it is no request.
        """
        ...

    def encode(self, made: Sequence[Made]) -> bytes:
        """The answer as one document."""
        ...

    def stream(self, made: Made, asked: Asked) -> tuple[bytes, list[bytes], bytes]:
        """The answer as events: how it begins, its pieces, how it ends."""
        ...

    def error(self, status: int, kind: str, message: str) -> bytes:
        """An error as the service writes it."""
        ...


# ---------------------------------------------------------------- reading


def mapping(value: Any, where: str) -> Mapping[str, Any]:
    """A JSON object.

    Raises:
        BadRequestError: it is something else.
    """
    if not isinstance(value, dict):
        raise BadRequestError(f"{where}: expected an object, got {type(value).__name__}")
    return value


def texts(value: Any, where: str) -> list[Mapping[str, Any]]:
    """A content as parts: a text is one part.

    Raises:
        BadRequestError: it is neither a text nor a list of objects.
    """
    if value is None:
        return []
    if isinstance(value, str):
        return [{"type": "text", "text": value}]
    if not isinstance(value, list):
        raise BadRequestError(f"{where}: expected a text or a list of parts")
    return [mapping(part, where) for part in value]


def plain_text(value: Any, where: str) -> str:
    """A content as one text; what is seen of an image or file is that it is one.

    Raises:
        BadRequestError: it has parts that are neither.
    """
    return "\n".join(_text(part, where) for part in texts(value, where))


_MEDIA = {"image": "image", "image_url": "image", "input_image": "image"}
_MEDIA |= {"document": "file", "file": "file", "input_file": "file"}


def _text(part: Mapping[str, Any], where: str) -> str:
    if part.get("type") in _MEDIA:
        return f"[{_MEDIA[part['type']]}]"
    text = part.get("text", part.get("refusal"))
    if not isinstance(text, str):
        raise BadRequestError(f"{where}: the stub does not read {part.get('type')!r}")
    return text


def whole_number(body: Mapping[str, Any], name: str, required: bool = False) -> int | None:
    """A number of 1 or more under a name, or None.

    Raises:
        BadRequestError: it is something else, or missing where it is required.
    """
    value = body.get(name)
    if value is None and not required:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise BadRequestError(f"{name}: expected a whole number of 1 or more, got {value!r}")
    return value


def sampling(body: Mapping[str, Any], stop: str, limit: int | None) -> dict[str, Any]:
    """The sampling settings, under the names of `orchestrion.Model`.

    Raises:
        BadRequestError: one is no number.
    """
    found: dict[str, Any] = {}
    for name in ("temperature", "top_p"):
        value = body.get(name)
        if value is not None:
            if not isinstance(value, int | float) or isinstance(value, bool):
                raise BadRequestError(f"{name}: expected a number, got {value!r}")
            found[name] = value
    ends = body.get(stop)
    if ends:
        found["stop"] = [ends] if isinstance(ends, str) else list(ends)
    if limit is not None:
        found["max_tokens"] = limit
    return found


def listed(body: Mapping[str, Any]) -> list[Any]:
    """The messages of a request.

    Raises:
        BadRequestError: there are none.
    """
    found = body.get("messages")
    if not isinstance(found, list) or not found:
        raise BadRequestError("messages: expected a list with at least one message")
    return found


def tools(body: Mapping[str, Any], schema: str = "parameters", inside: str = "") -> dict[str, Any]:
    """The tools of a request, under the name of `orchestrion.Model`; nothing if it has none.

    Args:
        body: of the request.
        schema: the name under which a tool has the schema of its arguments.
        inside: the name under which a tool is described, if not by itself.

    Raises:
        BadRequestError: one is no object.
    """
    if not body.get("tools"):
        return {}
    found = [mapping(one, "tools") for one in body["tools"]]
    if inside:
        found = [mapping(one.get(inside), f"tools.{inside}") for one in found]
    return {
        "tools": [
            {
                "name": one.get("name"),
                "description": one.get("description") or "",
                "schema": one.get(schema) or {},
            }
            for one in found
        ],
        **_choice(body.get("tool_choice"), [one.get("name") for one in found]),
    }


def _choice(given: Any, names: list[Any]) -> dict[str, Any]:
    """Which tools are to be called, under the name of `orchestrion.Model`."""
    if given is None:
        return {}
    if isinstance(given, str):
        kind, name = given, None
    else:
        given = mapping(given, "tool_choice")
        kind = given.get("type")
        name = given.get("name") or (given.get("function") or {}).get("name")
    if kind in ("tool", "function"):
        if name not in names:
            raise BadRequestError(f"tool_choice: there is no tool {name!r}")
        return {"tool_choice": name}
    if kind not in ("auto", "none", "any", "required"):
        raise BadRequestError(f"tool_choice: got {kind!r}")
    return {"tool_choice": "required" if kind == "any" else kind}


# ---------------------------------------------------------------- writing


def event(data: Any, name: str = "") -> bytes:
    """One server-sent event."""
    head = f"event: {name}\n".encode() if name else b""
    return head + b"data: " + encode(data) + b"\n\n"


def pieces(text: str) -> list[str]:
    """A text in the pieces it is streamed in: at least 12 characters each, at most 32 pieces."""
    size = max(12, -(-len(text) // 32))
    return [text[i : i + size] for i in range(0, len(text), size)]
