"""OpenAI's chat completions: request bodies to problems, episodes to answers, and errors.

Format: https://platform.openai.com/docs/api-reference/chat. Sampling parameters such as
`temperature` are ignored: the team's config decides them. What would change the meaning of the
answer (`tools`, `functions`, `n` above 1, a `response_format`) is refused.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from orchestrion import Episode, Status, Turn, Usage, hidden

__all__ = ["Chat", "Refusal", "answer_of", "chunk", "completion", "parse", "reasoning"]


class Refusal(Exception):
    """A request that is answered with an error, in OpenAI's shape."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        param: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.param = status, code, param
        self.headers = dict(headers or {})

    def data(self) -> dict[str, Any]:
        """Return the error's body."""
        kind = "server_error" if self.status >= 500 else "invalid_request_error"
        message = _encodable(str(self))
        error = {"message": message, "type": kind, "param": self.param, "code": self.code}
        return {"error": error}


class Part(Struct):
    """One part of a message's content."""

    type: str
    text: str | None = None


class Message(Struct):
    """One message of the conversation."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | list[Part] | None = None


class StreamOptions(Struct):
    """What a stream contains besides the answer."""

    include_usage: bool | None = False


class Extension(Struct):
    """The field `orchestrion` of a request: `steps` streams each turn as it finishes."""

    steps: bool = False


class Chat(Struct):
    """The fields of a request that have an effect here, or would change the answer's meaning."""

    model: str
    messages: Annotated[list[Message], Meta(min_length=1)]
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    orchestrion: Extension | None = None
    n: int | None = None
    tools: list[Any] | None = None
    functions: list[Any] | None = None
    response_format: dict[str, Any] | None = None

    @property
    def include_usage(self) -> bool:
        """Return whether the stream ends with a chunk that has the usage."""
        return self.stream_options is not None and bool(self.stream_options.include_usage)

    @property
    def steps(self) -> bool:
        """Return whether each turn is streamed as it finishes."""
        return self.orchestrion is not None and self.orchestrion.steps

    def text(self) -> str:
        """Return the problem: the last message, after those before it as labelled lines.

        Further lines of a labelled message are indented, so that no message can forge a label.

        Raises:
            Refusal: the last message is not the user's, or a message is not text.
        """
        *earlier, last = self.messages
        if last.role != "user":
            raise _wrong("the last message must have the role `user`", "messages")
        texts = [_text(message, index) for index, message in enumerate(self.messages)]
        if not texts[-1].strip():
            raise _wrong("the last message is empty", f"messages[{len(earlier)}].content")
        lines = [
            f"{message.role}: " + "\n  ".join(text.splitlines())
            for message, text in zip(earlier, texts, strict=False)
        ]
        return "\n".join([*lines, "", texts[-1]]) if lines else texts[-1]


_decoder = msgspec.json.Decoder(Chat)


def parse(body: bytes) -> Chat:
    """Return a request's body, checked.

    Raises:
        Refusal: it is not JSON, a field is wrong, or one is not supported.
    """
    try:
        chat = _decoder.decode(body)
    except msgspec.ValidationError as error:
        message, _, place = str(error).partition(" - at `$")
        missing = re.search(r"missing required field `(\w+)`", message)
        path = place.rstrip("`") + (f".{missing[1]}" if missing else "")
        raise _wrong(str(error), path.lstrip(".") or None) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _wrong(f"the body is not valid JSON: {error}", None) from None
    if chat.n not in (None, 1):
        raise _wrong("only one answer is given for a request", "n")
    for field in ("tools", "functions"):
        if getattr(chat, field):
            raise _wrong("the team decides which tools it uses; leave this out", field)
    if chat.response_format and chat.response_format.get("type") != "text":
        raise _wrong("only the response format `text` is supported", "response_format")
    return chat


def _text(message: Message, index: int) -> str:
    if message.content is None or isinstance(message.content, str):
        return message.content or ""
    for number, part in enumerate(message.content):
        if part.type != "text" or part.text is None:
            field = f"messages[{index}].content[{number}]"
            raise _wrong(f"only parts of type `text` are supported, not {part.type!r:.80}", field)
    return "\n".join(part.text or "" for part in message.content)


def _wrong(message: str, param: str | None) -> Refusal:
    return Refusal(400, "invalid_request", message, param)


# ---------------------------------------------------------------------------- answers


def answer_of(episode: Episode) -> str:
    """Return an episode's answer.

    Raises:
        Refusal: the episode failed, exceeded the budget or gave no answer.
    """
    if episode.status is Status.BUDGET:
        raise Refusal(402, "insufficient_quota", "the team's budget is used up")
    answer = episode.answer
    if episode.status in (Status.FAILED, Status.CANCELLED) or answer is None:
        reason = hidden(episode.error or "no turn was completed")[:500]
        raise failed(f"the team gave no answer: {reason}")
    return _encodable(answer)


def failed(message: str, status: int = 502, code: str = "episode_failed") -> Refusal:
    """Return the error of an episode that ran: clients must not repeat it on their own."""
    return Refusal(status, code, message, headers={"x-should-retry": "false"})


def completion(identity: str, model: str, episode: Episode) -> dict[str, Any]:
    """Return the answer to a request that does not stream."""
    message = {"role": "assistant", "content": answer_of(episode), "refusal": None}
    choice = {"index": 0, "message": message, "finish_reason": _reason(episode), "logprobs": None}
    return {
        "id": f"chatcmpl-{identity}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": model,
        "choices": [choice],
        "usage": _usage(episode.usage),
    }


def chunk(
    identity: str,
    model: str,
    delta: Mapping[str, str] | None = None,
    episode: Episode | None = None,
) -> dict[str, Any]:
    """Return one event of a stream.

    With `delta`, a piece of the answer; with `episode` too, the last piece; with `episode` alone,
    the usage.
    """
    choices = []
    if delta is not None:
        reason = _reason(episode) if episode is not None else None
        choices = [{"index": 0, "delta": dict(delta), "finish_reason": reason}]
    data = {
        "id": f"chatcmpl-{identity}",
        "object": "chat.completion.chunk",
        "created": int(time.time()),
        "model": model,
        "choices": choices,
    }
    if delta is None and episode is not None:
        data["usage"] = _usage(episode.usage)
    return data


def reasoning(turn: Turn) -> str:
    """Return a finished turn as text for those who watch."""
    said = turn.output.content if turn.status == "completed" else f"({turn.status})"
    return _encodable(f"{turn.agent}: {said}\n")


def _reason(episode: Episode) -> str:
    return "length" if episode.status is Status.LIMIT else "stop"


def _usage(usage: Usage) -> dict[str, int]:
    """Return the usage of the whole team."""
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
    }


def _encodable(text: str) -> str:
    """Return text that UTF-8 can represent: lone surrogates become question marks."""
    return text.encode(errors="replace").decode()
