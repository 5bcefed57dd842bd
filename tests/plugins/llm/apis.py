"""The three APIs as the tests speak them: good answers, streams and errors of each."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any

from attrs import frozen
from orchestrion_llm.models import AnthropicModel, OpenAIModel
from orchestrion_llm.settings import ApiSettings

from orchestrion import JSON, Answer, CallError, Key, OpenContext, Usage
from orchestrion._engine.calls import ActivationCalls, CallPath, RetrySettings
from orchestrion.config import Budget as Caps
from orchestrion.testing import Fixed, ScriptedAgent, engine_for

__all__ = ["APIS", "ASK", "KEY", "QUICK", "Api", "Caps", "ask", "once"]

KEY = "sk-test-4f9a7c1e8b2d6035"
ASK: Mapping[str, JSON] = {"messages": [{"role": "user", "content": "Say hello."}]}
QUICK = RetrySettings(base=0.0, overload_base=0.0, cap=0.0, attempts=3)
USAGE = Usage(1, 12, 3)


def event(data: JSON, name: str = "") -> bytes:
    """One server-sent event."""
    text = data if isinstance(data, str) else json.dumps(data)
    return (f"event: {name}\n" if name else "").encode() + f"data: {text}\n\n".encode()


@frozen
class Api:
    """One of the three."""

    name: str

    def settings(self, url: str, **more: Any) -> ApiSettings:
        """A model that asks the server at `url`."""
        given = {"model": "m-1", "key_env": "TEST_KEY", "preflight": False, **more}
        if self.name == "anthropic":
            return AnthropicModel(base_url=url, **given)
        kind = "chat" if self.name == "chat" else "responses"
        return OpenAIModel(base_url=f"{url}/v1", api=kind, **given)  # type: ignore[arg-type]

    @property
    def path(self) -> str:
        """Where calls arrive."""
        names = {"anthropic": "messages", "chat": "chat/completions", "responses": "responses"}
        return f"/v1/{names[self.name]}"

    def good(
        self,
        text: str | None = "hello",
        stop: str = "end",
        usage: bool = True,
        tools: Sequence[tuple[str, str, str]] = (),
    ) -> dict[str, Any]:
        """A whole answer; `tools` are (id, name, arguments)."""
        if self.name == "anthropic":
            body = self._message(text, stop, tools)
        elif self.name == "chat":
            body = self._completion(text, stop, tools)
        else:
            body = self._response(text, stop, tools)
        if not usage:
            body.pop("usage")
        return body

    def _message(self, text: str | None, stop: str, tools: Any) -> dict[str, Any]:
        reasons = {"end": "end_turn", "length": "max_tokens", "refused": "refusal"}
        blocks: list[Any] = [] if text is None else [{"type": "text", "text": text}]
        blocks += [
            {"type": "tool_use", "id": i, "name": n, "input": json.loads(a)} for i, n, a in tools
        ]
        return {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": "m-1-snapshot",
            "content": blocks,
            "stop_reason": "tool_use" if tools else reasons.get(stop, stop),
            "usage": {
                "input_tokens": 4,
                "cache_read_input_tokens": 6,
                "cache_creation_input_tokens": 2,
                "output_tokens": 3,
            },
        }

    def _completion(self, text: str | None, stop: str, tools: Any) -> dict[str, Any]:
        reasons = {"end": "stop", "length": "length", "refused": "content_filter"}
        message: dict[str, Any] = {"role": "assistant", "content": text}
        if tools:
            message["tool_calls"] = [
                {"id": i, "type": "function", "function": {"name": n, "arguments": a}}
                for i, n, a in tools
            ]
        return {
            "id": "c_1",
            "object": "chat.completion",
            "model": "m-1-snapshot",
            "choices": [
                {
                    "index": 0,
                    "message": message,
                    "finish_reason": "tool_calls" if tools else reasons.get(stop, stop),
                }
            ],
            "usage": {
                "prompt_tokens": 12,
                "completion_tokens": 3,
                "prompt_tokens_details": {"cached_tokens": 6, "cache_write_tokens": 2},
            },
        }

    def _response(self, text: str | None, stop: str, tools: Any) -> dict[str, Any]:
        part = {"type": "output_text", "text": text}
        if stop == "refused":
            part = {"type": "refusal", "refusal": text}
        items: list[Any] = [{"type": "reasoning", "summary": []}]
        if text is not None:
            items.append({"type": "message", "role": "assistant", "content": [part]})
        items += [
            {"type": "function_call", "call_id": i, "name": n, "arguments": a} for i, n, a in tools
        ]
        body: dict[str, Any] = {
            "id": "r_1",
            "object": "response",
            "model": "m-1-snapshot",
            "status": "completed" if stop in ("end", "refused") else "incomplete",
            "output": items,
            "usage": {
                "input_tokens": 12,
                "output_tokens": 3,
                "input_tokens_details": {"cached_tokens": 6, "cache_write_tokens": 2},
            },
        }
        if stop == "length":
            body["incomplete_details"] = {"reason": "max_output_tokens"}
        return body

    def events(self, body: Mapping[str, Any]) -> list[bytes]:
        """The same answer as a stream, text and arguments in pieces; the end is the last event."""
        if self.name == "anthropic":
            return _message_events(body)
        return _chat_events(body) if self.name == "chat" else _response_events(body)

    def error(self, kind: str, message: str = "it went wrong") -> dict[str, Any]:
        """An error's body."""
        inner = {"type": kind, "message": message}
        if self.name == "anthropic":
            return {"type": "error", "error": inner}
        return {"error": {**inner, "code": kind, "param": None}}

    def error_event(self, kind: str) -> bytes:
        """An error in the middle of a stream."""
        if self.name == "responses":
            return event({"type": "error", "code": kind, "message": "it went wrong"}, "error")
        return event(self.error(kind), "error" if self.name == "anthropic" else "")


def _pieces(text: str) -> list[str]:
    return [text[:2], text[2:]] if len(text) > 2 else [text]


def _message_events(body: Mapping[str, Any]) -> list[bytes]:
    start = {**body, "content": [], "stop_reason": None}
    usage = start.pop("usage", None)
    if usage is not None:
        start["usage"] = {**usage, "output_tokens": 1}
    parts: list[dict[str, Any]] = [{"type": "message_start", "message": start}, {"type": "ping"}]
    for i, block in enumerate(body["content"]):
        if block["type"] == "text":
            first, *deltas = _pieces(block["text"])
            empty = {**block, "text": first}
            kind, key = "text_delta", "text"
        elif block["type"] == "thinking":
            empty, deltas = {**block, "thinking": ""}, _pieces(block["thinking"])
            kind, key = "thinking_delta", "thinking"
        elif block["type"] == "redacted_thinking":
            empty, deltas = block, []
        else:
            empty, deltas = {**block, "input": {}}, _pieces(json.dumps(block["input"]))
            kind, key = "input_json_delta", "partial_json"
        parts.append({"type": "content_block_start", "index": i, "content_block": empty})
        for piece in deltas:
            delta = {"type": kind, key: piece}
            parts.append({"type": "content_block_delta", "index": i, "delta": delta})
        if "signature" in block:
            empty.pop("signature")
            delta = {"type": "signature_delta", "signature": block["signature"]}
            parts.append({"type": "content_block_delta", "index": i, "delta": delta})
        parts.append({"type": "content_block_stop", "index": i})
    ending: dict[str, Any] = {
        "type": "message_delta",
        "delta": {"stop_reason": body["stop_reason"]},
    }
    if usage is not None:
        ending["usage"] = {"output_tokens": usage["output_tokens"]}
    parts += [ending, {"type": "message_stop"}]
    return [event(part, part["type"]) for part in parts]


def _chat_events(body: Mapping[str, Any]) -> list[bytes]:
    choice = body["choices"][0]
    message = choice["message"]
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    if message["content"] is None:
        deltas = [{"role": "assistant"}]
    thought = message.get("reasoning_content", "")
    deltas += [{"reasoning_content": piece} for piece in _pieces(thought) if piece]
    deltas += [{name: message[name]} for name in ("reasoning_details", "images") if name in message]
    deltas += [{"content": piece} for piece in _pieces(message["content"] or "") if piece]
    for i, call in enumerate(message.get("tool_calls", ())):
        first = {**call["function"], "arguments": ""}
        deltas.append({"tool_calls": [{**call, "index": i, "function": first}]})
        for piece in _pieces(call["function"]["arguments"]):
            deltas.append({"tool_calls": [{"index": i, "function": {"arguments": piece}}]})
    parts: list[Any] = [
        {"model": body["model"], "choices": [{"index": 0, "delta": delta}]} for delta in deltas
    ]
    ending = {"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}
    parts.append({"model": body["model"], "choices": [ending]})
    if "usage" in body:
        parts.append({"model": body["model"], "choices": [], "usage": body["usage"]})
    return [event(part) for part in [*parts, "[DONE]"]]


def _response_events(body: Mapping[str, Any]) -> list[bytes]:
    parts: list[dict[str, Any]] = [{"type": "response.created", "response": {"status": "queued"}}]
    for item in body["output"]:
        for part in item.get("content", ()):
            for piece in _pieces(part.get("text") or part.get("refusal") or ""):
                kind = part["type"].replace("output_", "output_")
                parts.append({"type": f"response.{kind}.delta", "delta": piece})
    parts.append({"type": f"response.{body['status']}", "response": body})
    return [event(part, part["type"]) for part in parts]


APIS = [Api("anthropic"), Api("chat"), Api("responses")]


def context(url: str = "") -> OpenContext:
    """What the models are opened with."""
    return OpenContext("models.m", Key(1), environment={"TEST_KEY": KEY})


def ask(
    settings: ApiSettings,
    request: Mapping[str, JSON] = ASK,
    path: CallPath | None = None,
    shown: list[str] | None = None,
) -> Answer:
    """One completion on core's own path; `shown` makes it stream, and gets what comes."""

    async def asking() -> Answer:
        engine = engine_for({"a": ScriptedAgent()}, Fixed(), calls=path or CallPath(retry=QUICK))
        if shown is not None:
            engine.viewer = lambda who, text: shown.append(text)
        async with settings.open(context()) as model:  # type: ignore[attr-defined]
            answer: Answer = await model.complete(request, Key(2), ActivationCalls(engine, Key(3)))
            return answer

    return asyncio.run(asking())


def once(settings: ApiSettings, shown: list[str] | None = None) -> CallError:
    """The fault of a single attempt."""
    retry = RetrySettings(attempts=1)
    try:
        answer = ask(settings, path=CallPath(retry=retry), shown=shown)
    except CallError as error:
        return error
    raise AssertionError(f"an answer: {answer}")
