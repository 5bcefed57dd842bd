"""The real SDKs of OpenAI and Anthropic, set up to ask a stub server on all three wires."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import anthropic
import openai
from attrs import frozen
from orchestrion_offline.interfaces import Speaker
from orchestrion_offline.server import StubServer, serving
from orchestrion_offline.settings import Serving

from tests.coroutines import AsyncTest, SyncTest, given


@frozen
class Asks:
    """What an SDK was told to do, on each wire; the answer as (text, stop, calls, in, out)."""

    server: StubServer
    openai: openai.AsyncOpenAI
    anthropic: anthropic.AsyncAnthropic

    async def chat(self, model: str, text: str, key: str = "", /, **more: Any) -> tuple[Any, ...]:
        messages: Any = [{"role": "system", "content": "s"}, {"role": "user", "content": text}]
        if tools := more.pop("tools", None):
            more["tools"] = [
                {"type": "function", "function": _renamed(t, "parameters")} for t in tools
            ]
        more = {"max_tokens": 100, **more}
        response = await self.openai.chat.completions.create(
            model=model, messages=messages, extra_headers=_named(key), **more
        )
        [choice] = response.choices
        calls = [(c.function.name, c.function.arguments) for c in choice.message.tool_calls or ()]
        text = choice.message.content or choice.message.refusal or ""
        stop = "refused" if choice.message.refusal else choice.finish_reason
        usage = response.usage
        return text, stop, calls, usage.prompt_tokens, usage.completion_tokens

    async def responses(
        self, model: str, text: str, key: str = "", /, **more: Any
    ) -> tuple[Any, ...]:
        if tools := more.pop("tools", None):
            more["tools"] = [{"type": "function", **_renamed(t, "parameters")} for t in tools]
        limit = more.pop("max_tokens", 100)
        response = await self.openai.responses.create(
            model=model,
            instructions="s",
            input=text,
            max_output_tokens=limit,
            extra_headers=_named(key),
            **more,
        )
        items = [item for item in response.output if item.type == "function_call"]
        parts = [p for i in response.output if i.type == "message" for p in i.content]
        text = "".join(p.refusal if p.type == "refusal" else p.text for p in parts)
        refused = any(p.type == "refusal" for p in parts)
        stop = "refused" if refused else "tool_calls" if items else "stop"
        if response.status == "incomplete":
            stop = "length"
        usage = response.usage
        calls = [(item.name, item.arguments) for item in items]
        return text, stop, calls, usage.input_tokens, usage.output_tokens

    async def messages(
        self, model: str, text: str, key: str = "", /, **more: Any
    ) -> tuple[Any, ...]:
        if tools := more.pop("tools", None):
            more["tools"] = [_renamed(t, "input_schema") for t in tools]
        more = {"max_tokens": 100, **more}
        response = await self.anthropic.messages.create(
            model=model,
            system="s",
            messages=[{"role": "user", "content": text}],
            extra_headers=_named(key),
            **more,
        )
        calls = [
            (part.name, json.dumps(part.input, separators=(",", ":")))
            for part in response.content
            if part.type == "tool_use"
        ]
        text = "".join(part.text for part in response.content if part.type == "text")
        same = {
            "end_turn": "stop",
            "max_tokens": "length",
            "tool_use": "tool_calls",
            "refusal": "refused",
            "stop_sequence": "stop",
        }
        return (
            text,
            same[str(response.stop_reason)],
            calls,
            response.usage.input_tokens,
            response.usage.output_tokens,
        )

    @property
    def wires(self) -> Mapping[str, Callable[..., Awaitable[tuple[Any, ...]]]]:
        """All three."""
        return {"chat": self.chat, "responses": self.responses, "messages": self.messages}


def _renamed(tool: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {"name": tool["name"], "description": tool["description"], name: tool["schema"]}


def _named(key: str) -> dict[str, str]:
    return {"Idempotency-Key": key} if key else {}


@asynccontextmanager
async def asking(
    speakers: Mapping[str, Speaker] | Speaker, behaviour: Serving | None = None, key: str = "k"
) -> AsyncIterator[Asks]:
    """A server, and both SDKs without their retries; a lone speaker is called "m"."""
    given = speakers if isinstance(speakers, Mapping) else {"m": speakers}
    async with (
        serving(given, behaviour) as server,
        openai.AsyncOpenAI(
            api_key=key, base_url=f"{server.url}/v1", max_retries=0
        ) as openai_client,
        anthropic.AsyncAnthropic(
            api_key=key, base_url=server.url, max_retries=0
        ) as anthropic_client,
    ):
        yield Asks(server, openai_client, anthropic_client)


def given_asks(
    speakers: Mapping[str, Speaker] | Speaker, behaviour: Serving | None = None, key: str = "k"
) -> Callable[[AsyncTest], SyncTest]:
    """Return a decorator for a test whose first argument asks a server."""
    return given(lambda **_: asking(speakers, behaviour, key))


def with_asks(
    work: Callable[[Asks], Awaitable[Any]],
    speakers: Mapping[str, Speaker] | Speaker,
    behaviour: Serving | None = None,
    key: str = "k",
) -> Any:
    """What comes of some work with a server."""

    async def go() -> Any:
        async with asking(speakers, behaviour, key) as asks:
            return await work(asks)

    return asyncio.run(go())


async def raw(server: StubServer, path: str, body: bytes, *rows: str) -> tuple[bytes, bytes]:
    """Head and body of the answer to a request written by hand."""
    port = int(server.url.rpartition(":")[2])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = [
        f"POST {path} HTTP/1.1",
        "Host: x",
        "X-Api-Key: k",
        f"Content-Length: {len(body)}",
        "Connection: close",
        *rows,
        "",
        "",
    ]
    writer.write("\r\n".join(head).encode() + body)
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    response, _, rest = answer.partition(b"\r\n\r\n")
    return response, rest
