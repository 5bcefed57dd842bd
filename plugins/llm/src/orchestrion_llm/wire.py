"""What the three APIs have in common: one request in, one result out, whatever the wire says."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol, TypeVar

import msgspec
from attrs import frozen

from orchestrion import JSON, CallError
from orchestrion.secrets import hidden
from orchestrion_llm.prices import Tokens

__all__ = [
    "Collector",
    "MalformedError",
    "Result",
    "ServiceError",
    "Stop",
    "ToolCall",
    "Wire",
    "closed",
    "is_strict",
    "sampling",
]

_MOST = 10**9
"""Tokens of one call; the longest context of today has a few million."""
Stop = Literal["end", "length", "tools", "refused"]
T = TypeVar("T")


class MalformedError(Exception):
    """An answer that cannot be used, and why."""


class ServiceError(Exception):
    """An error that came inside an answer: in its JSON, or as an event of its stream."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


@frozen
class ToolCall:
    """A tool that the model wants to be called; `arguments` is what it wrote."""

    id: str
    name: str
    arguments: str


@frozen
class Result:
    """An answer as every API gives it. `tokens` is None where the service does not say."""

    text: str
    stop: Stop
    model: str
    tool_calls: Sequence[ToolCall] = ()
    tokens: Tokens | None = None

    def data(self) -> dict[str, JSON]:
        """The form that `Model` promises, without any secret."""
        calls = [
            {"id": call.id, "name": call.name, "arguments": hidden(call.arguments)}
            for call in self.tool_calls
        ]
        return {
            "text": hidden(self.text),
            "stop": self.stop,
            "tool_calls": calls,
            "model": hidden(self.model),
        }


class Collector(Protocol):
    """Puts the events of a stream together."""

    def event(self, name: str, data: bytes) -> str:
        """Take an event; gives the text that it adds to the answer.

        Raises:
            MalformedError: it is none of the API's.
            ServiceError: it reports an error.
        """
        ...

    @property
    def whole(self) -> bool:
        """Whether the service said that the answer is complete."""
        ...

    @property
    def text(self) -> str:
        """What came so far."""
        ...

    def result(self) -> Result:
        """The answer, as it would have come in one piece."""
        ...


class Wire(Protocol):
    """One API: what it is asked, and how its answers read."""

    path: str
    streaming: Mapping[str, JSON]
    """Fields that ask for a stream."""

    def body(self, request: Mapping[str, JSON], settings: Any) -> dict[str, JSON]:
        """The body of a call.

        Raises:
            CallError: permanent; the request asks for what this API cannot do.
        """
        ...

    def read(self, raw: bytes) -> Result:
        """An answer that came in one piece.

        Raises:
            MalformedError: it cannot be used.
            ServiceError: it reports an error.
        """
        ...

    def collector(self) -> Collector:
        """For an answer that comes in pieces."""
        ...


def decoded(raw: bytes | str, shape: type[T]) -> T:
    """JSON as a typed record."""
    try:
        return msgspec.json.decode(raw, type=shape)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedError(_wrong(raw, error)) from None


def stated(usage: Any, shape: type[T]) -> T | None:
    """What a service says a call took; None, as if it said nothing, if that cannot be read.

    The answer beside it was paid for: it is not thrown away, but booked by an estimate.
    """
    try:
        return msgspec.convert(usage, shape)
    except (msgspec.ValidationError, OverflowError):
        return None


def credible(input: int, output: int, cached: int, written: int) -> Tokens | None:
    """Counts that can be true, as tokens."""
    inside = all(0 <= one <= _MOST for one in (input, output, cached, written))
    return Tokens(input, output, cached, written) if inside and cached + written <= input else None


class CacheDetails(msgspec.Struct):
    """How much of its input a service had in its cache, as OpenAI's APIs say it."""

    cached_tokens: int | None = None
    cache_write_tokens: int | None = None


def counted(input: int | None, output: int | None, cache: CacheDetails | None) -> Tokens | None:
    """What OpenAI's APIs say a call took; None where they leave a count out."""
    if input is None or output is None:
        return None
    cache = cache or CacheDetails()
    return credible(input, output, cache.cached_tokens or 0, cache.cache_write_tokens or 0)


def _wrong(raw: bytes | str, error: Exception) -> str:
    if not raw.strip():
        return "an empty body"
    text = raw if isinstance(raw, str) else raw[:400].decode("utf-8", "replace")
    if re.match(r"\s*<", text):
        return "HTML instead of JSON"
    if isinstance(error, msgspec.ValidationError):
        return f"JSON of the wrong shape ({error})"
    return f"broken JSON ({error})"


def sampling(request: Mapping[str, JSON], settings: Any) -> dict[str, JSON]:
    """`max_tokens` and what else a request or the settings say of sampling, the request first.

    Raises:
        CallError: permanent; more output is asked for than the settings allow.
    """
    unknown = set(request) - _FIELDS
    if unknown:
        raise CallError(f"a model knows no {', '.join(sorted(map(str, unknown)))}", "permanent")
    chosen: dict[str, JSON] = {"max_tokens": settings.max_tokens}
    most = request.get("max_tokens")
    if most is not None:
        if most > settings.max_tokens:
            raise CallError(
                f"a call asks for {most} tokens of output, and max_tokens of the model is "
                f"{settings.max_tokens}: raise the model's, or lower the caller's",
                "permanent",
            )
        chosen["max_tokens"] = most
    for name in ("temperature", "top_p", "stop"):
        value = request.get(name)
        if value is None:
            value = getattr(settings, name)
        if value is not None and value != ():
            chosen[name] = value
    stop = chosen.get("stop")
    if stop is not None:
        chosen["stop"] = [stop] if isinstance(stop, str) else list(stop)
    return chosen


_FIELDS = {"messages", "max_tokens", "temperature", "top_p", "stop", "tools", "schema"}


@frozen
class Said:
    """One message of a request."""

    role: str
    content: str
    tool_calls: Sequence[ToolCall] = ()
    tool_call_id: str = ""


def messages(request: Mapping[str, JSON]) -> tuple[str, list[Said]]:
    """The system's text, and the other messages in order.

    Raises:
        CallError: permanent; they are no messages.
    """
    system, said = "", []
    for i, message in enumerate(request.get("messages") or ()):
        role, content = message.get("role"), message.get("content") or ""
        if not isinstance(content, str):
            raise CallError(f"message {i}: content must be text", "permanent")
        if role == "system" and i == 0:
            system = content
        elif role in ("user", "assistant", "tool"):
            calls = [
                ToolCall(one["id"], one["name"], one["arguments"])
                for one in message.get("tool_calls") or ()
            ]
            said.append(Said(role, content, calls, message.get("tool_call_id") or ""))
        else:
            raise CallError(f"message {i}: no role {role!r} here", "permanent")
    if not said:
        raise CallError("a request needs a message of the user", "permanent")
    return system, said


def closed(schema: JSON) -> JSON:
    """A JSON Schema whose objects allow no properties but those they name."""
    if isinstance(schema, Mapping):
        copy = {key: closed(value) for key, value in schema.items()}
        if schema.get("type") == "object" and isinstance(schema.get("properties"), Mapping):
            copy.setdefault("additionalProperties", False)
        return copy
    return [closed(one) for one in schema] if isinstance(schema, (list, tuple)) else schema


def is_strict(schema: JSON) -> bool:
    """Whether every object requires all it names and nothing else, as strict output needs."""
    if isinstance(schema, Mapping):
        if schema.get("type") == "object":
            names = schema.get("properties")
            if not isinstance(names, Mapping) or schema.get("additionalProperties") is not False:
                return False
            if set(names) != set(schema.get("required") or ()):
                return False
        return all(map(is_strict, schema.values()))
    return all(map(is_strict, schema)) if isinstance(schema, (list, tuple)) else True


def settled(text: str, stop: Stop, calls: Sequence[ToolCall]) -> Stop:
    """Why an answer ended, with what it holds taken into account."""
    if calls and stop == "end":
        return "tools"
    if stop == "tools" and not calls:
        raise MalformedError("an answer that stops for a tool, and names none")
    # An answer with nothing in it is a refusal to say something.
    return "refused" if stop == "end" and not text.strip() else stop


class ErrorBody(msgspec.Struct):
    """The error that an answer or an event may hold."""

    message: str | None = None
    type: str | None = None
    code: str | int | None = None

    def raised(self) -> ServiceError:
        """As an exception."""
        return ServiceError(str(self.code or self.type or ""), self.message or "no message")


def canonical(arguments: str) -> str:
    """Tool arguments that came as pieces of JSON, as they would have come in one piece."""
    try:
        value = msgspec.json.decode(arguments or "{}")
    except (msgspec.DecodeError, RecursionError):
        return arguments
    return msgspec.json.encode(value).decode()


def missing(name: str) -> MalformedError:
    """An answer that lacks what it must have."""
    return MalformedError(f"an answer without {name}")


def no_field() -> Any:
    """An empty list as the default of a struct's field."""
    return msgspec.field(default_factory=list)
