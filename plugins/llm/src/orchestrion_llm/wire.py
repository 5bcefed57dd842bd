"""What the three APIs have in common: one request in, one result out, whatever the wire says."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol, TypeVar

import msgspec
from attrs import frozen

from orchestrion import JSON, CallError, hidden, hidden_bytes
from orchestrion_llm.content import ToolCall
from orchestrion_llm.prices import Tokens

__all__ = [
    "Collector",
    "MalformedError",
    "Result",
    "ServiceError",
    "Stop",
    "Wire",
    "closed",
    "is_strict",
    "sampling",
    "stop_of",
    "tool_choice",
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
class Result:
    """An answer as every API gives it.

    Args:
        text: what it says.
        stop: why it ended.
        model: who answered.
        tool_calls: what it wants to be called.
        tokens: what it took; None where the service does not say.
        reason: why it ended in the service's word, where that is none we know.
        raw: the answer as the service wrote it, where it has more than texts and calls (thinking
            with its signature): such a service wants it back as it was.
    """

    text: str
    stop: Stop
    model: str
    tool_calls: Sequence[ToolCall] = ()
    tokens: Tokens | None = None
    reason: str = ""
    raw: JSON = None

    def data(self) -> dict[str, JSON]:
        """The form that `Model` promises, without any secret."""
        calls = [
            {"id": call.id, "name": call.name, "arguments": hidden(call.arguments)}
            for call in self.tool_calls
        ]
        data: dict[str, JSON] = {
            "text": hidden(self.text),
            "stop": self.stop,
            "tool_calls": calls,
            "model": hidden(self.model),
        }
        if self.reason:
            data["reason"] = hidden(self.reason)
        if self.raw is not None:
            data["raw"] = msgspec.json.decode(hidden_bytes(msgspec.json.encode(self.raw)))
        return data


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
        """Whether the service said that nothing comes any more."""
        ...

    @property
    def ended(self) -> bool:
        """Whether the service said why the answer ended: with the body's own end, it is whole.

        Not every server says more. A body that is cut is no whole answer all the same: only its
        own end says that what came after the reason (calls, usage) has come.
        """
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
    embeddings: str | None
    """Where texts are embedded; None where the API cannot."""
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


def credible(tokens: Tokens) -> Tokens | None:
    """Counts, if they can be true."""
    counts = (tokens.input, tokens.output, tokens.cached, tokens.written, tokens.written_hour)
    inside = all(0 <= one <= _MOST for one in counts)
    parts = tokens.cached + tokens.written <= tokens.input and tokens.written_hour <= tokens.written
    return tokens if inside and parts else None


class CacheDetails(msgspec.Struct):
    """How much of its input a service had in its cache, as OpenAI's APIs say it."""

    cached_tokens: int | None = None
    cache_write_tokens: int | None = None


def counted(
    input: int | None, output: int | None, cache: CacheDetails | None, total: int | None = None
) -> Tokens | None:
    """What OpenAI's APIs say a call took; None where they leave a count out.

    Some services count what a model thinks in `total` alone. A prompt of no tokens is no count.
    """
    if not input or output is None:
        return None
    output = max(output, (total or 0) - input)
    cache = cache or CacheDetails()
    return credible(Tokens(input, output, cache.cached_tokens or 0, cache.cache_write_tokens or 0))


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
_FIELDS |= {"tool_choice"}


def tool_choice(request: Mapping[str, JSON]) -> str | None:
    """Which tools the model may or has to call: "auto", "none", "required" or a tool's name.

    Raises:
        CallError: permanent; it names no tool of the request.
    """
    choice = request.get("tool_choice")
    if choice is None:
        return None
    names = [tool["name"] for tool in request.get("tools") or ()]
    if choice in ("required", *names) and not names:
        raise CallError(f"tool_choice is {choice!r}, and the request has no tools", "permanent")
    if choice not in ("auto", "none", "required", *names):
        known = ", ".join(("auto", "none", "required", *names))
        raise CallError(f"tool_choice must be one of {known}, not {choice!r}", "permanent")
    return str(choice) if names else None


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


_BROKEN_OFF = {
    "model_length",
    "max_output_tokens",
    "insufficient_system_resource",
    "network_error",
    "abort",
    "aborted",
    "cancelled",
    "error",
    "timeout",
}


def stop_of(reason: str, stops: Mapping[str, Stop]) -> tuple[Stop, str]:
    """Why an answer ended, and the service's own word for it where that is none of the API's.

    An answer was paid for, whatever it ended with: what stands for an end in the middle is a cut,
    and any other word an end.
    """
    if reason in stops:
        return stops[reason], ""
    if reason.lower() in _BROKEN_OFF:
        return "length", reason
    return stops.get(reason.lower(), "end"), reason


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


def missing(name: str) -> MalformedError:
    """An answer that lacks what it must have."""
    return MalformedError(f"an answer without {name}")


def no_field() -> Any:
    """An empty list as the default of a struct's field."""
    return msgspec.field(default_factory=list)
