"""OpenAI's chat completions: request bodies to problems, episodes to answers, and errors.

Format: https://platform.openai.com/docs/api-reference/chat. Sampling parameters such as
`temperature` are ignored: the team's config decides them. What would change the meaning of the
answer (`tools`, `functions`, `n` above 1, a `response_format`) is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from orchestrion import Turn, Usage
from orchestrion.runs import TeamAnswer
from orchestrion_serve.conversation import TOOLS, Part, Question, event, text_of, transcript
from orchestrion_serve.episodes import answer_of, finish_reason, images_of, line_of
from orchestrion_serve.refusals import wrong
from orchestrion_serve.requests import Call


class Message(Struct):
    """One message of the conversation."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | list[Part] | None = None


class StreamOptions(Struct):
    """What a stream contains besides the answer."""

    include_usage: bool | None = False


class Chat(Question, kw_only=True):
    """A request of `POST /v1/chat/completions`."""

    path = "/v1/chat/completions"
    messages: Annotated[list[Message], Meta(min_length=1)]
    stream_options: StreamOptions | None = None
    n: int | None = None
    functions: list[Any] | None = None
    response_format: dict[str, Any] | None = None

    def check(self) -> None:
        """See `Question.check`."""
        if self.n not in (None, 1):
            raise wrong("only one answer is given for a request", "n")
        self.refuse(TOOLS, "tools", "functions")
        if self.response_format and self.response_format.get("type") != "text":
            raise wrong("only the response format `text` is supported", "response_format")

    def text(self) -> str:
        """See `Question.text`."""
        fields = [f"messages[{index}].content" for index in range(len(self.messages))]
        lines = [
            (message.role, text_of(message.content, field))
            for message, field in zip(self.messages, fields, strict=True)
        ]
        return transcript(lines, "messages", fields[-1])

    def answer(self, call: Call, turns: Sequence[Turn], answer: TeamAnswer) -> dict[str, Any]:
        """See `Question.answer`."""
        message = {"role": "assistant", **_content(answer), "refusal": None}
        reason = finish_reason(answer)
        choice = {"index": 0, "message": message, "finish_reason": reason, "logprobs": None}
        data = _named("chat.completion", call, [choice])
        return {**data, "usage": _usage(answer.usage)}

    def events(
        self, call: Call, turns: Sequence[Turn], news: Turn | TeamAnswer, sent: int
    ) -> Iterator[bytes]:
        """Yield a piece for each turn and one for the answer; then why it ended, and the usage."""
        role = {} if turns else {"role": "assistant"}
        if isinstance(news, Turn):
            yield _piece(call, {**role, "reasoning_content": line_of(news)})
            return
        yield _piece(call, {**role, **_content(news)})
        yield _piece(call, {}, finish_reason(news))
        if self.stream_options is not None and self.stream_options.include_usage:
            last = _named("chat.completion.chunk", call, [])
            yield event({**last, "usage": _usage(news.usage)})
        yield b"data: [DONE]\n\n"


def _content(answer: TeamAnswer) -> dict[str, Any]:
    """Return the answer's text, and its images as services that draw add them."""
    images = [{"type": "image_url", "image_url": {"url": url}} for url in images_of(answer)]
    text = answer_of(answer)
    return {"content": text, "images": images} if images else {"content": text}


def _named(kind: str, call: Call, choices: list[Any]) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-{call.id}",
        "object": kind,
        "created": call.created,
        "model": call.requested,
        "choices": choices,
    }


def _piece(call: Call, delta: Mapping[str, Any], reason: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": reason}
    return event(_named("chat.completion.chunk", call, [choice]))


def _usage(usage: Usage) -> dict[str, int]:
    """Return the usage of the whole team."""
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
    }
