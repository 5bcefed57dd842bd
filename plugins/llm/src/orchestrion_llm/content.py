"""The messages of a request: texts, images and files in one form for all APIs."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from attrs import frozen

from orchestrion import JSON, CallError

IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp")
FILES = ("application/pdf",)
MOST_IMAGES = 4
"""The maximum of images that are kept of an answer."""
MOST_IMAGE = 4_000_000
"""The maximum of characters of one, in base64."""
_IMAGE = r"data:(image/[a-z]+);base64,([A-Za-z0-9+/]+={0,2})"
_SHOWN = re.compile(rf"!\[[^\[\]\n]*\]\({_IMAGE}\)|{_IMAGE}")
"""No bracket within its caption: a text of many "![" would take quadratic time."""
_FIELDS = {
    "text": {"type", "text"},
    "image": {"type", "media_type", "data", "url"},
    "file": {"type", "media_type", "data", "url", "name"},
}


@frozen
class ToolCall:
    """A tool call of a model; `arguments` is the text that it wrote."""

    id: str
    name: str
    arguments: str


@frozen
class Part:
    """A part of a message: a text, or an image or file as base64 or by its address."""

    kind: Literal["text", "image", "file"]
    text: str = ""
    media_type: str = ""
    data: str = ""
    url: str = ""
    name: str = ""


@frozen
class ChatMessage:
    """A message of a request.

    Args:
        role: of its author.
        parts: its content.
        tool_calls: of an assistant.
        tool_call_id: the call that a tool's message answers.
        raw: an assistant's message as this service wrote it, to be sent back unchanged.
    """

    role: str
    parts: Sequence[Part] = ()
    tool_calls: Sequence[ToolCall] = ()
    tool_call_id: str = ""
    raw: Any = None

    @property
    def text(self) -> str:
        """The text of all parts."""
        return "\n\n".join(part.text for part in self.parts if part.kind == "text")

    @property
    def media(self) -> Sequence[Part]:
        """The images and files."""
        return [part for part in self.parts if part.kind != "text"]


def messages(request: Mapping[str, JSON]) -> tuple[str, list[ChatMessage]]:
    """Return the system text, and the other messages in order.

    Raises:
        CallError: permanent; a message is malformed.
    """
    system, conversation = "", []
    for i, message in enumerate(request.get("messages") or ()):
        role = message.get("role")
        parts = _parts(message.get("content") or "", f"message {i}")
        if role == "system" and i == 0:
            system = ChatMessage(role, parts).text
        elif role in ("user", "assistant", "tool"):
            calls = [
                ToolCall(call["id"], call["name"], call["arguments"])
                for call in message.get("tool_calls") or ()
            ]
            name = message.get("tool_call_id") or ""
            conversation.append(ChatMessage(role, parts, calls, name, message.get("raw")))
        else:
            raise CallError(f"message {i}: unknown role {role!r}", "permanent")
        if role in ("system", "assistant") and any(part.kind != "text" for part in parts):
            raise CallError(f"message {i}: the role {role} takes no images and files", "permanent")
    if not conversation:
        raise CallError("a request needs a message of the user", "permanent")
    return system, conversation


def media_tokens(request: Mapping[str, JSON], each: int) -> int:
    """Return the tokens of images and files beyond their bytes in the body; may be negative.

    `each` is a bound of the tokens of one image.
    """
    tokens = 0
    for message in request.get("messages") or ():
        content = message.get("content")
        for part in content if isinstance(content, (list, tuple)) else ():
            size = len(part.get("data") or part.get("url") or "")
            if part.get("type") == "image":
                tokens += each - size
            elif part.get("type") == "file":
                # No bound is known: a compressed file may have many pages.
                tokens += max(0, each - size)
    return tokens


def images_of(addresses: Iterable[str]) -> tuple[list[dict[str, JSON]], int]:
    """Return images of an answer as parts of requests, and how many could not be kept.

    Addresses are data URLs, or URLs of where the service keeps them.
    """
    images: list[dict[str, JSON]] = []
    left_out = 0
    for address in addresses:
        match = re.fullmatch(_IMAGE, address)
        fits = (
            match is not None
            and match[1] in IMAGES
            and len(match[2]) <= MOST_IMAGE
            and len(match[2]) % 4 == 0  # base64 that services take
        )
        if len(images) == MOST_IMAGES or not (fits or address.startswith("https://")):
            left_out += 1
        elif match is None:
            images.append({"type": "image", "url": address})
        else:
            images.append({"type": "image", "media_type": match[1], "data": match[2]})
    return images, left_out


def images_in(text: str) -> tuple[str, list[str]]:
    """Return a text without the images that are written in it, and their data URLs."""
    addresses: list[str] = []

    def taken_out(match: re.Match[str]) -> str:
        addresses.append(f"data:{match[1] or match[3]};base64,{match[2] or match[4]}")
        return ""

    return (_SHOWN.sub(taken_out, text) if "data:image/" in text else text), addresses


def data_url(part: Part) -> str:
    """Return the address of an image or file, or its content as a data URL."""
    return part.url or f"data:{part.media_type};base64,{part.data}"


def _parts(content: JSON, where: str) -> list[Part]:
    if isinstance(content, str):
        return [Part("text", content)] if content else []
    if not isinstance(content, (list, tuple)):
        raise CallError(f"{where}: content must be a text or a list of parts", "permanent")
    return [_part(part, f"{where}, part {i}") for i, part in enumerate(content)]


def _part(given: JSON, where: str) -> Part:
    kind = given.get("type") if isinstance(given, Mapping) else None
    if kind not in _FIELDS:
        names = ", ".join(_FIELDS)
        raise CallError(f"{where}: must be a mapping whose type is one of {names}", "permanent")
    wrong = sorted(map(str, set(given) - _FIELDS[kind]))
    texts = all(isinstance(value, str) for value in given.values())
    if wrong or not texts or (kind == "text" and "text" not in given):
        fields = ", ".join(sorted(_FIELDS[kind]))
        raise CallError(f"{where}: a part of type {kind} has the texts {fields}", "permanent")
    if kind == "text":
        return Part("text", given["text"])
    return _medium(given, kind, where)


def _medium(given: Mapping[str, str], kind: Literal["image", "file"], where: str) -> Part:
    data, url = given.get("data", ""), given.get("url", "")
    media_type = given.get("media_type", "")
    if bool(data) == bool(url) or url.startswith("data:"):
        raise CallError(
            f"{where}: give the {kind} as base64 (data, with media_type) or by its address (url)",
            "permanent",
        )
    known = IMAGES if kind == "image" else FILES
    if data and media_type not in known:
        raise CallError(
            f"{where}: media_type must be one of {', '.join(known)}, not {media_type!r}",
            "permanent",
        )
    try:
        base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        raise CallError(f"{where}: data is not base64", "permanent") from None
    name = given.get("name") or ("file.pdf" if kind == "file" else "")
    return Part(kind, "", media_type, data, url, name)
