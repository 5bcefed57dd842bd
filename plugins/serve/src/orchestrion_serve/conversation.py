"""What bodies have in common: strict JSON, messages of text, one text made of them all."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from orchestrion_serve.refusals import wrong

TOOLS = "the team decides which tools it uses; leave this out"

T = TypeVar("T")
RoleText = tuple[str, str]
"""A role and a text."""


class Extension(Struct):
    """The field `orchestrion` of a request: `steps` shows each turn."""

    steps: bool = False


class Question(Struct, kw_only=True):
    """What the bodies of all protocols have: only fields that have an effect, or are refused.

    Args:
        model: that is asked.
        stream: whether the answer is a stream of events.
        orchestrion: what our own clients ask for besides.
        tools: refused; the team decides which tools it uses.
    """

    model: str
    stream: bool | None = False
    orchestrion: Extension | None = None
    tools: list[Any] | None = None

    @property
    def streams(self) -> bool:
        """Return whether the answer is a stream of events."""
        return bool(self.stream)

    @property
    def steps(self) -> bool:
        """Return whether the answer contains each turn."""
        return self.orchestrion is not None and self.orchestrion.steps

    def refuse(self, message: str, *fields: str) -> None:
        """Raise a Refusal if one of these fields is set."""
        for field in fields:
            if getattr(self, field):
                raise wrong(message, field)

    def text(self) -> str:
        """Return the problem, or raise a Refusal."""
        raise NotImplementedError


class Part(Struct):
    """One part of a message's content."""

    type: str
    text: str | None = None


def decoded(decoder: msgspec.json.Decoder[T], body: bytes) -> T:
    """Return a body as its type.

    Raises:
        Refusal: it is not JSON, or a field is wrong.
    """
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        message, _, place = str(error).partition(" - at `$")
        missing = re.search(r"missing required field `(\w+)`", message)
        path = place.rstrip("`") + (f".{missing[1]}" if missing else "")
        raise wrong(str(error), path.lstrip(".") or None) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise wrong(f"the body is not valid JSON: {error}", None) from None


def text_of(
    content: str | Sequence[Part] | None,
    field: str,
    kinds: Sequence[str] = ("text",),
    ignored: Sequence[str] = (),
) -> str:
    """Return the text of a message's content.

    Args:
        content: a text, or its parts.
        field: where it is in the body.
        kinds: the types of parts that are text.
        ignored: the types of parts that are left out.

    Raises:
        Refusal: a part is of another type.
    """
    if content is None or isinstance(content, str):
        return content or ""
    texts = []
    for number, part in enumerate(content):
        if part.type in ignored:
            continue
        if part.type not in kinds or part.text is None:
            message = f"only parts of type `{kinds[0]}` are supported, not {part.type!r:.80}"
            raise wrong(message, f"{field}[{number}]")
        texts.append(part.text)
    return "\n".join(texts)


def transcript(said: Sequence[RoleText], field: str, last_field: str) -> str:
    """Return the problem: the last message, after those before it as labelled lines.

    Further lines of a labelled message are indented, so that no message can forge a label.

    Raises:
        Refusal: there is no message, or the last one is empty or not the user's.
    """
    if not said:
        raise wrong("there is no message", field)
    *earlier, (role, last) = said
    if role != "user":
        raise wrong("the last message must have the role `user`", field)
    if not last.strip():
        raise wrong("the last message is empty", last_field)
    lines = [f"{who}: " + "\n  ".join(text.splitlines()) for who, text in earlier]
    return "\n".join([*lines, "", last]) if lines else last
