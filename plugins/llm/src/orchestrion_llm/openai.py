"""The model `openai`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Literal

from attrs import frozen

from orchestrion import OpenContext
from orchestrion_llm.chat import ChatWire
from orchestrion_llm.responses import ResponsesWire
from orchestrion_llm.settings import ApiSettings, Vendor, opened
from orchestrion_llm.wire import Wire

if TYPE_CHECKING:
    from orchestrion_llm.client import Sdk
    from orchestrion_llm.model import ApiModel

__all__ = ["OpenAIModel"]

LimitName = Literal["max_tokens", "max_completion_tokens"]


def _sdk(*args: Any) -> Sdk:
    from orchestrion_llm.client import openai_sdk

    return openai_sdk(*args)


_VENDOR = Vendor("openai", "https://api.openai.com/v1", "OPENAI_API_KEY", "/models", _sdk)


@frozen(kw_only=True)
class OpenAIModel(ApiSettings):
    """A model behind an API of OpenAI's; its SDK is imported when the model is opened.

    Args:
        api: Chat Completions, which compatible servers speak as well, or Responses.
        limit_field: what Chat Completions calls `max_tokens`; null is "max_completion_tokens" at
            the vendor's own address and "max_tokens" at another.
    """

    api: Literal["chat", "responses"] = "chat"
    limit_field: LimitName | None = None

    def __attrs_post_init__(self) -> None:
        if self.api == "responses" and self.stop:
            raise ValueError("stop: the Responses API takes no stop sequences; use api: chat")
        if self.api == "responses" and self.limit_field is not None:
            raise ValueError("limit_field: is for api: chat only")

    @property
    def limit_name(self) -> LimitName:
        """What the request's body calls `max_tokens`."""
        if self.limit_field is not None:
            return self.limit_field
        return "max_completion_tokens" if self.base_url is None else "max_tokens"

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[ApiModel]:
        """The model at work.

        Raises:
            UsageError: there is no key, a wrong one, or no such model.
        """
        wire: Wire = ChatWire() if self.api == "chat" else ResponsesWire()
        async with opened(self, _VENDOR, wire, ctx) as model:
            yield model
