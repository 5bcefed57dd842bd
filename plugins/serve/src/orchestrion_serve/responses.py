"""OpenAI's Responses: the newer of its protocols, served without stored state.

Format: https://platform.openai.com/docs/api-reference/responses. As with chat completions, sampling
parameters are ignored. Refused is what would change the answer's meaning: tools, a text format, and
all that needs an earlier response.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import msgspec
from msgspec import Struct

from orchestrion import Status, Turn, Usage
from orchestrion.runs import TeamAnswer
from orchestrion_serve.conversation import TOOLS, Part, Question, event, text_of, transcript
from orchestrion_serve.episodes import answer_of, images_of, line_of
from orchestrion_serve.refusals import Refusal, wrong
from orchestrion_serve.requests import Call

DRAWN = "image_generation_call"


class Item(Struct):
    """One item of the input: a message, or the reasoning of an earlier answer."""

    type: str = "message"
    role: Literal["system", "developer", "user", "assistant"] | None = None
    content: str | list[Part] | None = None


class Reasoning(Struct):
    """What a client wants to see of the reasoning."""

    summary: str | None = None
    generate_summary: str | None = None


class Text(Struct):
    """How the answer is written."""

    format: dict[str, Any] | None = None


class Responses(Question, kw_only=True):
    """A request of `POST /v1/responses`."""

    path = "/v1/responses"
    input: str | list[Item]
    instructions: str | None = None
    reasoning: Reasoning | None = None
    text_: Text | None = msgspec.field(default=None, name="text")
    store: bool | None = None
    background: bool | None = None
    previous_response_id: str | None = None
    conversation: Any = None
    prompt: Any = None

    @property
    def steps(self) -> bool:
        """Return whether the answer contains each turn."""
        summary = self.reasoning and (self.reasoning.summary or self.reasoning.generate_summary)
        return bool(summary) or super().steps

    def check(self) -> None:
        """See `Question.check`."""
        self.refuse(TOOLS, "tools")
        if self.text_ and self.text_.format and self.text_.format.get("type") != "text":
            raise wrong("only the format `text` is supported", "text.format")
        for field in ("store", "background", "previous_response_id", "conversation", "prompt"):
            message = "no response is stored here: send the conversation so far in `input`"
            self.refuse(f"{message}, and leave `{field}` out", field)

    def text(self) -> str:
        """Return the problem: the input, after the instructions; see `Question.text`."""
        texts = [("system", self.instructions)] if self.instructions else []
        field = "input"
        if isinstance(self.input, str):
            texts.append(("user", self.input))
        else:
            for index, item in enumerate(self.input):
                if item.type == "reasoning":  # of an earlier answer; what it led to follows
                    continue
                field = f"input[{index}]"
                if item.type != "message" or item.role is None:
                    message = f"only messages with a role are supported, not {item.type!r:.80}"
                    raise wrong(message, field)
                kinds = ("input_text", "output_text", "text")
                text = text_of(item.content, f"{field}.content", kinds)
                texts.append((item.role, text))
            field += ".content"
        return transcript(texts, "input", field)

    def answer(self, call: Call, turns: Sequence[Turn], answer: TeamAnswer) -> dict[str, Any]:
        """See `Question.answer`."""
        items = [*_reasoning(call, turns), *_answer(call, answer)]
        return _ended(call, items, answer)

    def events(
        self, call: Call, turns: Sequence[Turn], news: Turn | TeamAnswer, sent: int
    ) -> Iterator[bytes]:
        """Yield the events of an item of reasoning for each turn, and of one for the answer."""
        for number, (kind, fields) in enumerate(_stream_events(call, turns, news), sent):
            yield event({"type": kind, "sequence_number": number, **fields}, kind)

    @staticmethod
    def failure(call: Call, refusal: Refusal, sent: int) -> bytes:
        """Return the event that ends a stream with an error."""
        error = {"code": "server_error", "message": str(refusal)}
        response = {**_response(call, [], "failed"), "error": error}
        kind = "response.failed"
        return event({"type": kind, "sequence_number": sent, "response": response}, kind)


def _reasoning(call: Call, turns: Sequence[Turn]) -> list[dict[str, Any]]:
    """Return turns as items of reasoning."""
    return [
        {
            "id": f"rs_{call.id}_{index}",
            "type": "reasoning",
            "summary": [{"type": "summary_text", "text": line_of(turn)}],
        }
        for index, turn in enumerate(turns)
    ]


def _answer(call: Call, answer: TeamAnswer) -> list[dict[str, Any]]:
    """Return the answer as items: its images, then its text."""
    images = [url.partition(";base64,")[2] for url in images_of(answer)]
    image_items = [
        {"id": f"ig_{call.id}_{i}", "type": DRAWN, "status": "completed", "result": image}
        for i, image in enumerate(images)
        if image  # this protocol has none by their address
    ]
    text = {"type": "output_text", "text": answer_of(answer), "annotations": [], "logprobs": []}
    message = {
        "id": f"msg_{call.id}",
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [text],
    }
    return [*image_items, message]


def _stream_events(
    call: Call, turns: Sequence[Turn], news: Turn | TeamAnswer
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the kind and the fields of each event of a turn, or of the answer."""
    output = _reasoning(call, turns)
    if isinstance(news, Turn):
        items = _reasoning(call, [*turns, news])[-1:]
    else:
        items = _answer(call, news)
    if not output:
        started = {"response": _response(call, [], "in_progress")}
        yield "response.created", started
        yield "response.in_progress", started
    for index, item in enumerate(items, len(output)):
        for kind, fields in _item_events(item):
            yield kind, {"output_index": index, **fields}
    if isinstance(news, TeamAnswer):
        response = _ended(call, [*output, *items], news)
        yield f"response.{response['status']}", {"response": response}


def _item_events(item: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the kind and the fields of each event of an item, whose text comes in one piece."""
    if item["type"] == DRAWN:
        yield "response.output_item.added", {"item": {**item, "status": "generating"}}
        yield "response.output_item.done", {"item": item}
        return
    if item["type"] == "reasoning":
        parts, of_part, of_text = "summary", "reasoning_summary_part", "reasoning_summary_text"
        index, more, begun = "summary_index", {}, {**item, parts: []}
    else:
        parts, of_part, of_text = "content", "content_part", "output_text"
        index, more = "content_index", {"logprobs": list[Any]()}
        begun = {**item, parts: [], "status": "in_progress"}
    [part] = item[parts]
    place = {"item_id": item["id"], index: 0}
    yield "response.output_item.added", {"item": begun}
    yield f"response.{of_part}.added", {**place, "part": {**part, "text": ""}}
    yield f"response.{of_text}.delta", {**place, **more, "delta": part["text"]}
    yield f"response.{of_text}.done", {**place, **more, "text": part["text"]}
    yield f"response.{of_part}.done", {**place, "part": part}
    yield "response.output_item.done", {"item": item}


def _ended(call: Call, output: list[dict[str, Any]], answer: TeamAnswer) -> dict[str, Any]:
    """Return the response with an answer."""
    limited = answer.status is Status.LIMIT
    return {
        **_response(call, output, "incomplete" if limited else "completed"),
        "incomplete_details": {"reason": "max_output_tokens"} if limited else None,
        "usage": _usage(answer.usage),
    }


def _response(call: Call, output: list[dict[str, Any]], status: str) -> dict[str, Any]:
    return {
        "id": f"resp_{call.id}",
        "object": "response",
        "created_at": call.created,
        "status": status,
        "model": call.requested,
        "output": output,
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "parallel_tool_calls": False,
        "tool_choice": "none",
        "tools": [],
        "temperature": None,
        "top_p": None,
        "store": False,
        "usage": None,
    }


def _usage(usage: Usage) -> dict[str, Any]:
    """Return the usage of the whole team."""
    return {
        "input_tokens": usage.input_tokens,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage.input_tokens + usage.output_tokens,
    }
