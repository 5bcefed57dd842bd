"""What the protocols of questions and answers have in common: bodies, and one text made of them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

import msgspec
from msgspec import Struct

from orchestrion import Turn
from orchestrion.runs import TeamAnswer
from orchestrion_serve.refusals import Refusal, wrong
from orchestrion_serve.requests import Call

TOOLS = "the team decides which tools it uses; leave this out"

T = TypeVar("T")


class Extension(Struct, forbid_unknown_fields=True):
    """The field `orchestrion` of a request: `steps` shows turns, `category` is the problem's."""

    steps: bool = False
    category: str = ""


class Question(Struct, kw_only=True):
    """The body of a request, and how its protocol writes answers and errors.

    It has only fields that have an effect, or are refused.
    """

    path: ClassVar[str]
    """Where the protocol is served."""
    model: str
    stream: bool | None = False
    orchestrion: Extension | None = None
    tools: list[Any] | None = None

    @property
    def steps(self) -> bool:
        """Return whether the answer contains each turn."""
        return self.orchestrion is not None and self.orchestrion.steps

    @property
    def category(self) -> str:
        """Return the category of the problem; "" if none is given."""
        return "" if self.orchestrion is None else self.orchestrion.category

    def refuse(self, message: str, *fields: str) -> None:
        """Raise a Refusal if one of these fields is set."""
        for field in fields:
            if getattr(self, field):
                raise wrong(message, field)

    def check(self) -> None:
        """Raise a Refusal if the request asks for what is not supported."""
        raise NotImplementedError

    def text(self) -> str:
        """Return the problem.

        Raises:
            Refusal: the last message is not the user's, or a message is not text.
        """
        raise NotImplementedError

    def answer(self, call: Call, turns: Sequence[Turn], answer: TeamAnswer) -> Any:
        """Return the body of an answer that is not streamed; `turns` are those asked for."""
        raise NotImplementedError

    def events(
        self, call: Call, turns: Sequence[Turn], news: Turn | TeamAnswer, sent: int
    ) -> Iterator[bytes]:
        """Yield the stream's events for a turn, or for the answer, which ends the stream.

        Args:
            call: the request.
            turns: the earlier turns.
            news: the turn or the answer. An answer without a text raises a Refusal before the
                first event, so that the error can have a status.
            sent: number of events before these.
        """
        raise NotImplementedError

    @staticmethod
    def error(refusal: Refusal) -> dict[str, Any]:
        """Return the body of an error; by default as all of OpenAI's protocols have it."""
        return error_of(refusal)

    @staticmethod
    def failure(call: Call, refusal: Refusal, sent: int) -> bytes:
        """Return the event that ends a stream with an error, after `sent` others."""
        return event(error_of(refusal))


def error_of(refusal: Refusal) -> dict[str, Any]:
    """Return the body of an error, as all of OpenAI's protocols have it."""
    kind = "server_error" if refusal.status >= 500 else "invalid_request_error"
    error = {"message": str(refusal), "type": kind, "param": refusal.param, "code": refusal.code}
    return {"error": error}


def event(data: Mapping[str, Any], kind: str | None = None) -> bytes:
    """Return a server-sent event."""
    named = b"" if kind is None else b"event: " + kind.encode() + b"\n"
    return named + b"data: " + msgspec.json.encode(data) + b"\n\n"


class Part(Struct):
    """One part of a message's content."""

    type: str
    text: str | None = None


def decoded(body: bytes, kind: type[T]) -> T:
    """Return a body as a type.

    Raises:
        Refusal: it is not JSON, or a field is wrong.
    """
    try:
        return msgspec.json.decode(body, type=kind)
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


def transcript(messages: Sequence[tuple[str, str]], field: str, last_field: str) -> str:
    """Return the problem: the last message, after those before it as labelled lines.

    Further lines of a labelled message are indented, so that no message can forge a label.

    Args:
        messages: role and text of each.
        field: where they are in the body.
        last_field: where the last one is.

    Raises:
        Refusal: there is no message, or the last one is empty or not the user's.
    """
    if not messages:
        raise wrong("there is no message", field)
    *earlier, (role, last) = messages
    if role != "user":
        raise wrong("the last message must have the role `user`", field)
    if not last.strip():
        raise wrong("the last message is empty", last_field)
    lines = [f"{name}: " + "\n  ".join(text.splitlines()) for name, text in earlier]
    return "\n".join([*lines, "", last]) if lines else last
