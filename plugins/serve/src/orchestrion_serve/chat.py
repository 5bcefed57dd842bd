"""OpenAI's chat completions: request bodies to problems, episodes to answers, and errors.

Format: https://platform.openai.com/docs/api-reference/chat. Sampling parameters such as
`temperature` are ignored: the team's config decides them. What would change the meaning of the
answer (`tools`, `functions`, `n` above 1, a `response_format`) is refused.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from orchestrion import Episode, Status, Turn, Usage
from orchestrion_serve.conversation import TOOLS, Part, Question, decoded, text_of, transcript
from orchestrion_serve.episodes import answer_of, images_of, line_of
from orchestrion_serve.exchange import Dialect, error_of, event
from orchestrion_serve.refusals import Refusal, wrong
from orchestrion_serve.requests import Call


class Message(Struct):
    """One message of the conversation."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | list[Part] | None = None


class StreamOptions(Struct):
    """What a stream contains besides the answer."""

    include_usage: bool | None = False


class Chat(Question, kw_only=True):
    """The fields of a request."""

    messages: Annotated[list[Message], Meta(min_length=1)]
    stream_options: StreamOptions | None = None
    n: int | None = None
    functions: list[Any] | None = None
    response_format: dict[str, Any] | None = None

    @property
    def include_usage(self) -> bool:
        """Return whether the stream ends with a chunk that has the usage."""
        return self.stream_options is not None and bool(self.stream_options.include_usage)

    def text(self) -> str:
        """Return the problem.

        Raises:
            Refusal: the last message is not the user's, or a message is not text.
        """
        fields = [f"messages[{index}].content" for index in range(len(self.messages))]
        lines = [
            (message.role, text_of(message.content, field))
            for message, field in zip(self.messages, fields, strict=True)
        ]
        return transcript(lines, "messages", fields[-1])


_decoder = msgspec.json.Decoder(Chat)


class ChatCompletions(Dialect[Chat]):
    """The protocol of `POST /v1/chat/completions`."""

    path = "/v1/chat/completions"

    def parse(self, body: bytes) -> Chat:
        """Return a request's body, checked; raise a Refusal if it is wrong."""
        chat = decoded(_decoder, body)
        if chat.n not in (None, 1):
            raise wrong("only one answer is given for a request", "n")
        chat.refuse(TOOLS, "tools", "functions")
        if chat.response_format and chat.response_format.get("type") != "text":
            raise wrong("only the response format `text` is supported", "response_format")
        return chat

    def answer(
        self, call: Call, question: Chat, turns: list[Turn], episode: Episode
    ) -> dict[str, Any]:
        """Return the answer to a request that does not stream."""
        message = {"role": "assistant", **_content(episode), "refusal": None}
        reason = _reason(episode)
        choice = {"index": 0, "message": message, "finish_reason": reason, "logprobs": None}
        data = _named("chat.completion", call, [choice])
        return {**data, "usage": _usage(episode.usage)}

    async def events(
        self, call: Call, question: Chat, events: AsyncGenerator[Turn | Episode, None]
    ) -> AsyncGenerator[bytes, None]:
        """Yield a piece for each turn and one for the answer; then why it ended, and the usage."""
        role: dict[str, Any] = {"role": "assistant"}
        async with aclosing(events):
            async for happened in events:
                if isinstance(happened, Turn):
                    yield _piece(call, {**role, "reasoning_content": line_of(happened)})
                    role = {}
                else:
                    yield _piece(call, {**role, **_content(happened)})
                    yield _piece(call, {}, _reason(happened))
                    if question.include_usage:
                        last = _named("chat.completion.chunk", call, [])
                        yield event({**last, "usage": _usage(happened.usage)})
        yield b"data: [DONE]\n\n"

    def failure(self, call: Call, refusal: Refusal, sent: int) -> bytes:
        """Return the event that ends a stream with an error."""
        return event(error_of(refusal))


def _content(episode: Episode) -> dict[str, Any]:
    """Return the answer's text, and its images as services that draw add them."""
    images = [{"type": "image_url", "image_url": {"url": url}} for url in images_of(episode)]
    text = answer_of(episode)
    return {"content": text, "images": images} if images else {"content": text}


def _named(kind: str, call: Call, choices: list[Any]) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-{call.id}",
        "object": kind,
        "created": call.created,
        "model": call.asked,
        "choices": choices,
    }


def _piece(call: Call, delta: Mapping[str, Any], reason: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": reason}
    return event(_named("chat.completion.chunk", call, [choice]))


def _reason(episode: Episode) -> str:
    return "length" if episode.status is Status.LIMIT else "stop"


def _usage(usage: Usage) -> dict[str, int]:
    """Return the usage of the whole team."""
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
    }
