"""An agent behind HTTP: settings, and what is asked in each format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Annotated, Any, ClassVar, Literal
from urllib.parse import urlsplit

import msgspec
from attrs import field, frozen

from orchestrion import JSON, Key, Meta, View
from orchestrion_remote.settings import Client, Most, Remote


def _addresses(instance: object, attribute: Any, value: Sequence[str]) -> None:
    for url in value:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"urls: {url!r} is no address like https://example.com/agents/team")
        if parts.username or parts.password or parts.fragment:
            raise ValueError("urls: must hold neither a password nor a fragment; see key_env")
    if len(set(value)) < len(value):
        raise ValueError("urls: an address stands there twice")


@frozen(kw_only=True)
class Http(Remote):
    """Asks an agent on another machine over HTTP.

    Args:
        urls: where requests are posted: equivalent addresses. A call takes the one with the fewest
            calls in flight; one that fails rests, and the others are tried.
        format: `json`, our own body, or `chat`, that of OpenAI's chat completions.
        answer: with `json`, where the answer's JSON has the content, e.g. "result.items.0.text".
        model: with `chat`, the model's name there; required.
        instructions: with `chat`, the system message.
        max_tokens: with `chat`, the maximum of tokens of an answer; null leaves it to the service.
        extra: with `chat`, further fields of the body.
        headers: sent with every call; values may be "${env:NAME}" and are treated as secrets.
        health: a path at each address, such as /health, that answers a GET with a status of 2xx if
            the address is well; asked before a run, and after an address failed. Null only tries
            before a run whether the address takes a connection.
        most: the most that one call takes; null if that is not known. With `chat`, null reserves
            what the body and `max_tokens` can take.
    """

    urls: Annotated[Sequence[str], Meta(min_length=1)] = field(validator=_addresses)
    format: Literal["json", "chat"] = "json"
    answer: Annotated[str, Meta(min_length=1)] = "content"
    model: str = ""
    instructions: str = ""
    max_tokens: Annotated[int, Meta(ge=1)] | None = None
    extra: Mapping[str, Any] = field(factory=dict)
    headers: Mapping[str, str] = field(factory=dict, repr=False, metadata={"secret": True})
    health: Annotated[str, Meta(pattern=r"^/\S*$")] | None = None

    protocol: ClassVar[str] = "http"

    def __attrs_post_init__(self) -> None:
        if self.format == "chat":
            if not self.model:
                raise ValueError("model: name the model that is asked")
            if self.answer != "content":
                raise ValueError("answer: has no effect with format: chat; remove it")
            if own := sorted({"model", "messages", "max_tokens", "stream", "n"} & set(self.extra)):
                raise ValueError(f"extra: must not hold {own[0]!r}")
            return
        for name in ("model", "instructions", "max_tokens", "extra"):
            if getattr(self, name):
                raise ValueError(f"{name}: has no effect with format: json; remove it")

    def client(self, key: str, name: str, path: str) -> AbstractAsyncContextManager[Client]:
        from orchestrion_remote.http_client import HttpClient

        return HttpClient.opened(self, key)

    def request(self, view: View, key: Key) -> JSON:
        if self.format == "json":
            return super().request(view, key)
        # The format of chat completions: texts alone, own turns as the assistant's.
        messages: list[JSON] = []
        if self.instructions:
            messages.append({"role": "system", "content": self.instructions})
        messages.append({"role": "user", "content": view.problem.text})
        for turn in view.turns:
            text = turn.output.content
            if turn.agent == view.agent:
                messages.append({"role": "assistant", "content": text})
            else:
                messages.append({"role": "user", "content": f"{turn.agent}: {text}"})
        if view.observation is not None and view.observation.text:
            messages.append({"role": "user", "content": view.observation.text})
        body: dict[str, JSON] = {**self.extra, "model": self.model, "messages": messages}
        if self.max_tokens is not None:
            body["max_tokens"] = self.max_tokens
        return body

    def bound(self, content: JSON) -> Most:
        if self.format == "json":
            return super().bound(content)
        # No token is shorter than a byte.
        return Most(len(msgspec.json.encode(content)), self.max_tokens or 0)
