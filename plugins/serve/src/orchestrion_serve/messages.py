"""Anthropic's Messages.

Format: https://docs.anthropic.com/en/api/messages. Sampling parameters such as `max_tokens` are
ignored: the team's config decides them. Refused is what would change the answer's meaning: tools
and a format of the output.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

from msgspec import Struct

from orchestrion import Status, Turn, Usage
from orchestrion.runs import TeamAnswer
from orchestrion_serve.conversation import TOOLS, Part, Question, event, text_of, transcript
from orchestrion_serve.episodes import answer_of, line_of
from orchestrion_serve.refusals import Refusal, wrong
from orchestrion_serve.requests import Call

KINDS = {
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}
"""Kinds of errors by status; others are `invalid_request_error` or `api_error`."""


class Message(Struct):
    """One message of the conversation."""

    role: Literal["user", "assistant", "system"]
    content: str | list[Part]


class Thinking(Struct):
    """Whether the client wants to see how the answer came about."""

    type: str
    display: str | None = None


class OutputConfig(Struct):
    """How the answer is written."""

    format: Any = None


class Messages(Question, kw_only=True):
    """A request of `POST /v1/messages`."""

    path = "/v1/messages"
    messages: list[Message]
    system: str | list[Part] | None = None
    thinking: Thinking | None = None
    mcp_servers: list[Any] | None = None
    output_config: OutputConfig | None = None

    @property
    def steps(self) -> bool:
        """Return whether the answer contains each turn."""
        if (thinking := self.thinking) is None or thinking.display == "omitted":
            return super().steps
        return super().steps or thinking.type in ("enabled", "adaptive")

    def check(self) -> None:
        """See `Question.check`."""
        self.refuse(TOOLS, "tools", "mcp_servers")
        if self.output_config is not None and self.output_config.format:
            raise wrong("only answers of text are supported", "output_config.format")

    def text(self) -> str:
        """Return the problem: the messages, after the system prompt; see `Question.text`."""
        system = text_of(self.system, "system")
        texts = [("system", system)] if system else []
        field = "messages"
        for index, message in enumerate(self.messages):
            field = f"messages[{index}].content"
            # A client sends the thinking of an earlier answer back.
            ignored = ("thinking", "redacted_thinking") if message.role == "assistant" else ()
            texts.append((message.role, text_of(message.content, field, ignored=ignored)))
        return transcript(texts, "messages", field)

    def answer(self, call: Call, turns: Sequence[Turn], answer: TeamAnswer) -> dict[str, Any]:
        """See `Question.answer`."""
        text = _block("text", answer_of(answer))
        thinking = [_block("thinking", line_of(turn)) for turn in turns]
        return {
            **_message(call, [*thinking, text]),
            "stop_reason": _reason(answer),
            "usage": _usage(answer.usage),
        }

    def events(
        self, call: Call, turns: Sequence[Turn], news: Turn | TeamAnswer, sent: int
    ) -> Iterator[bytes]:
        """Yield the events of a block of thinking for each turn, and of one for the answer."""
        if isinstance(news, Turn):
            kind, text = "thinking", line_of(news)
        else:
            kind, text = "text", answer_of(news)
        index = len(turns)
        if index == 0:
            yield _event("message_start", message=_message(call, []))
        yield _event("content_block_start", index=index, content_block=_block(kind, ""))
        yield _event(
            "content_block_delta", index=index, delta={"type": f"{kind}_delta", kind: text}
        )
        yield _event("content_block_stop", index=index)
        if isinstance(news, TeamAnswer):
            ended = {"stop_reason": _reason(news), "stop_sequence": None}
            yield _event("message_delta", delta=ended, usage=_usage(news.usage))
            yield _event("message_stop")

    @staticmethod
    def error(refusal: Refusal) -> dict[str, Any]:
        """Return the body of an error; the message begins with the field that is wrong."""
        other = "api_error" if refusal.status >= 500 else "invalid_request_error"
        place = f"{refusal.param}: " if refusal.param else ""
        error = {
            "type": KINDS.get(refusal.status, other),
            "message": f"{place}{refusal}",
            "details": {"error_code": refusal.code},
        }
        return {"type": "error", "error": error}

    @staticmethod
    def failure(call: Call, refusal: Refusal, sent: int) -> bytes:
        """Return the event that ends a stream with an error."""
        return event(Messages.error(refusal), "error")


def _event(kind: str, **fields: Any) -> bytes:
    return event({"type": kind, **fields}, kind)


def _block(kind: str, text: str) -> dict[str, str]:
    """Return a block of content; thinking has no signature, as nobody checks it here."""
    signature = {"signature": ""} if kind == "thinking" else {}
    return {"type": kind, kind: text, **signature}


def _message(call: Call, content: list[dict[str, str]]) -> dict[str, Any]:
    return {
        "id": f"msg_{call.id}",
        "type": "message",
        "role": "assistant",
        "model": call.requested,
        "content": content,
        "stop_reason": None,
        "stop_sequence": None,
        "usage": _usage(Usage()),
    }


def _reason(answer: TeamAnswer) -> str:
    return "max_tokens" if answer.status is Status.LIMIT else "end_turn"


def _usage(usage: Usage) -> dict[str, int]:
    """Return the usage of the whole team."""
    return {"input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens}
