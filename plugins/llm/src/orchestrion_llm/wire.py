"""The common form of requests and answers of the three APIs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol, TypeVar

import msgspec
from attrs import frozen

from orchestrion import JSON, CallError, hidden, hidden_bytes
from orchestrion_llm.content import ToolCall, images_of
from orchestrion_llm.prices import Tokens

_MOST = 10**9
"""More tokens in one call are not credible; today's longest contexts have a few million."""
Stop = Literal["end", "length", "tools", "refused", "paused"]
T = TypeVar("T")


class MalformedError(Exception):
    """Raised for an answer that cannot be used; its text says why."""


class ServiceError(Exception):
    """Raised for an error inside an answer: in its JSON, or as an event of its stream."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


@frozen
class Result:
    """An answer in the common form.

    Args:
        text: of the answer.
        stop: why it ended.
        model: the model that answered.
        tool_calls: the tool calls that it requests.
        tokens: its usage; None if the service does not state it.
        reason: the service's word for the end, if it is an unknown one.
        raw: the answer as the service wrote it, if it has more than texts and calls (thinking with
            its signature); the service needs it back unchanged.
        uses: how often each of the service's own tools was used.
        images: addresses of the images in the answer, as a rule data URLs.
    """

    text: str
    stop: Stop
    model: str
    tool_calls: Sequence[ToolCall] = ()
    tokens: Tokens | None = None
    reason: str = ""
    raw: JSON = None
    uses: Mapping[str, int] = {}
    images: Sequence[str] = ()

    def data(self) -> dict[str, JSON]:
        """Return the answer in the form of `Model`, without secrets."""
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
        images, left_out = images_of(self.images)
        if images:
            data["images"] = images
        if left_out:
            data["images_left_out"] = left_out
        if self.reason:
            data["reason"] = hidden(self.reason)
        if self.raw is not None:
            data["raw"] = msgspec.json.decode(hidden_bytes(msgspec.json.encode(self.raw)))
        return data


class Collector:
    """Assembles the events of a stream; each API has its own."""

    def __init__(self) -> None:
        self.pieces: list[str] = []
        """The text so far, in pieces."""
        self.whole = False
        """Whether the service stated that the stream is complete."""

    def event(self, name: str, data: bytes) -> str:
        """Add an event; return the text that it adds to the answer.

        Raises:
            MalformedError: it is not an event of the API.
            ServiceError: it reports an error.
        """
        raise NotImplementedError

    @property
    def ended(self) -> bool:
        """Whether the service stated why the answer ended.

        Some servers state no more; then the answer is complete if the body ends properly. In a
        truncated body, what follows the reason (calls, usage) may be missing.
        """
        return self.whole

    def result(self) -> Result:
        """Return the answer, as it would have come in one piece."""
        raise NotImplementedError


class Wire(Protocol):
    """An API: the bodies of its requests, and how its answers are read."""

    path: str
    embeddings: str | None
    """The path for embeddings; None if the API has none."""
    collector: type[Collector]
    streaming: Mapping[str, JSON]
    """Fields that request a stream."""

    def body(self, request: Mapping[str, JSON], settings: Any) -> dict[str, JSON]:
        """Return the body of a call.

        Raises:
            CallError: permanent; the API does not support the request.
        """
        ...

    def read(self, raw: bytes) -> Result:
        """Read an answer in one piece.

        Raises:
            MalformedError: it cannot be used.
            ServiceError: it reports an error.
        """
        ...


def decoded(raw: bytes | str, shape: type[T]) -> T:
    """Decode JSON to a typed record; raise `MalformedError` if it does not fit."""
    try:
        return msgspec.json.decode(raw, type=shape)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedError(_wrong(raw, error)) from None


def stated(usage: Any, shape: type[T]) -> T | None:
    """Return the stated usage; None if it cannot be read.

    The answer was paid for: it is kept, and booked by an estimate.
    """
    try:
        return msgspec.convert(usage, shape)
    except (msgspec.ValidationError, OverflowError):
        return None


def credible(tokens: Tokens) -> Tokens | None:
    """Return counts that can be true; else None."""
    counts = (tokens.input, tokens.output, tokens.cached, tokens.written, tokens.written_hour)
    inside = all(0 <= count <= _MOST for count in counts)
    parts = tokens.cached + tokens.written <= tokens.input and tokens.written_hour <= tokens.written
    return tokens if inside and parts else None


class _CacheDetails(msgspec.Struct):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None


class _Usage(msgspec.Struct):
    input: int | None
    output: int | None
    total: int | None
    cache: _CacheDetails | None


def counted(
    usage: Any, input: str = "input_tokens", output: str = "output_tokens"
) -> Tokens | None:
    """Return the counts that OpenAI's APIs state, under these names.

    Returns None if one is missing or cannot be read, or the prompt has 0 tokens. Some services
    count thinking in the total only.
    """
    if not isinstance(usage, Mapping):
        return None
    counts = stated(
        {
            "input": usage.get(input),
            "output": usage.get(output),
            "total": usage.get("total_tokens"),
            "cache": usage.get(f"{input}_details"),
        },
        _Usage,
    )
    if counts is None or not counts.input or counts.output is None:
        return None
    written = max(counts.output, (counts.total or 0) - counts.input)
    cache = counts.cache or _CacheDetails()
    cached, cache_written = cache.cached_tokens or 0, cache.cache_write_tokens or 0
    return credible(Tokens(counts.input, written, cached, cache_written))


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
    """Return `max_tokens` and other fields of sampling, by the request or else by the settings.

    Raises:
        CallError: permanent; the request has unknown fields or exceeds the settings' `max_tokens`.
    """
    unknown = set(request) - _FIELDS
    if unknown:
        names = ", ".join(sorted(map(str, unknown)))
        raise CallError(f"unknown request fields: {names}", "permanent")
    chosen: dict[str, JSON] = {"max_tokens": settings.max_tokens}
    most = request.get("max_tokens")
    if most is not None:
        if most > settings.max_tokens:
            raise CallError(
                f"the call sets max_tokens: {most}, but the model's max_tokens is "
                f"{settings.max_tokens}; raise the model's or lower the caller's",
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
_FIELDS |= {"tool_choice", "vendor_tools"}


def vendor_tools(
    request: Mapping[str, JSON], known: Mapping[str, Mapping[str, JSON]]
) -> list[dict[str, JSON]]:
    """Return the definitions of the service's own tools that a request names.

    Raises:
        CallError: permanent; the API has no such tool.
    """
    names: Mapping[str, int] = request.get("vendor_tools") or {}
    for name in names:
        if name not in known:
            raise CallError(f"vendor_tools: this API has no {name!r}", "permanent")
    return [dict(known[name]) for name in names]


def tool_choice(request: Mapping[str, JSON]) -> str | None:
    """Return which tools the model may or must call: "auto", "none", "required" or a name.

    Raises:
        CallError: permanent; the request has no such tool.
    """
    choice = request.get("tool_choice")
    if choice is None:
        return None
    names = [tool["name"] for tool in request.get("tools") or ()]
    if choice in ("required", *names) and not names:
        raise CallError(f"tool_choice is {choice!r}, but the request has no tools", "permanent")
    if choice not in ("auto", "none", "required", *names):
        known = ", ".join(("auto", "none", "required", *names))
        raise CallError(f"tool_choice must be one of {known}, not {choice!r}", "permanent")
    return str(choice) if names else None


def closed(schema: JSON) -> JSON:
    """Return a JSON Schema whose objects allow only the properties they name."""
    if isinstance(schema, Mapping):
        copy = {key: closed(value) for key, value in schema.items()}
        if schema.get("type") == "object" and isinstance(schema.get("properties"), Mapping):
            copy.setdefault("additionalProperties", False)
        return copy
    return [closed(part) for part in schema] if isinstance(schema, (list, tuple)) else schema


def is_strict(schema: JSON) -> bool:
    """Return whether every object requires exactly the properties it names, for strict output."""
    if isinstance(schema, Mapping):
        if schema.get("type") == "object":
            names = schema.get("properties")
            if not isinstance(names, Mapping) or schema.get("additionalProperties") is not False:
                return False
            if set(names) != set(schema.get("required") or ()):
                return False
        return all(map(is_strict, schema.values()))
    return all(map(is_strict, schema)) if isinstance(schema, (list, tuple)) else True


def named_schema(schema: JSON) -> dict[str, JSON]:
    """Return the form of structured output that OpenAI's APIs take."""
    shape = closed(schema)
    return {"name": "answer", "schema": shape, "strict": is_strict(shape)}


def function(tool: Mapping[str, JSON]) -> dict[str, JSON]:
    """Return a tool as OpenAI's APIs take it."""
    return {
        "name": tool["name"],
        "description": tool.get("description", ""),
        "parameters": tool["schema"],
    }


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
    """Return why an answer ended, and the service's own word for it if the API does not define it.

    The answer was paid for in any case: words for an interruption count as a cut, others as an end.
    """
    if reason in stops:
        return stops[reason], ""
    if reason.lower() in _BROKEN_OFF:
        return "length", reason
    return stops.get(reason.lower(), "end"), reason


def settled(text: str, stop: Stop, calls: Sequence[ToolCall], images: Sequence[str] = ()) -> Stop:
    """Return why an answer ended, considering its content."""
    if calls and stop == "end":
        return "tools"
    if stop == "tools" and not calls:
        raise MalformedError("an answer that stops for a tool without naming one")
    # An empty answer counts as a refusal.
    return "refused" if stop == "end" and not text.strip() and not images else stop


class ErrorBody(msgspec.Struct):
    """The error in an answer or an event."""

    message: str | None = None
    type: str | None = None
    code: str | int | None = None

    def raised(self) -> ServiceError:
        """Return it as an exception."""
        return ServiceError(str(self.code or self.type or ""), self.message or "no message")


def missing(name: str) -> MalformedError:
    """Return the error for an answer without a required part."""
    return MalformedError(f"an answer without {name}")
