"""The models `anthropic` and `openai`; their SDKs are imported when a model is opened."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Literal

from attrs import evolve, frozen

from orchestrion import Model, OpenContext
from orchestrion_llm.caching import PromptCache
from orchestrion_llm.chat import ChatWire
from orchestrion_llm.messages import MessagesWire
from orchestrion_llm.responses import ResponsesWire
from orchestrion_llm.settings import ApiSettings, Vendor, opened
from orchestrion_llm.wire import Wire

VENDOR_TOOLS = ("web_search", "code_execution")
_ANTHROPIC = Vendor("anthropic", "https://api.anthropic.com", "ANTHROPIC_API_KEY", "/v1/models")


@frozen(kw_only=True)
class AnthropicModel(ApiSettings):
    """A model behind the Messages API.

    Args:
        prompt_cache: whether the service is asked to keep prompts that begin alike, where the
            price says that reading them again is cheaper, and `extra` has no `cache_control`.
    """

    prompt_cache: bool = True

    @property
    def vendor_tools(self) -> Sequence[str]:
        return VENDOR_TOOLS

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[Model]:
        """Yield the model.

        Raises:
            UsageError: there is no key, a wrong one, or no such model.
        """
        # The paths of this API begin with /v1.
        address = self.base_url and self.base_url.rstrip("/").removesuffix("/v1")
        settings = evolve(self, base_url=address)
        cache = PromptCache() if self.prompt_cache else None
        async with opened(settings, _ANTHROPIC, MessagesWire(), ctx, cache) as model:
            yield model


LimitName = Literal["max_tokens", "max_completion_tokens"]


_OPENAI = Vendor("openai", "https://api.openai.com/v1", "OPENAI_API_KEY", "/models")


@frozen(kw_only=True)
class OpenAIModel(ApiSettings):
    """A model behind an API of OpenAI.

    Args:
        api: Chat Completions, which compatible servers offer too, or Responses.
        limit_field: the name of `max_tokens` in Chat Completions; null stands for
            "max_completion_tokens" at the vendor's own address and "max_tokens" at others.
    """

    api: Literal["chat", "responses"] = "chat"
    limit_field: LimitName | None = None

    def __attrs_post_init__(self) -> None:
        if self.api == "responses" and self.stop:
            raise ValueError("stop: the Responses API takes no stop sequences; use api: chat")
        if self.api == "responses" and self.limit_field is not None:
            raise ValueError("limit_field: has no effect with api: responses; remove it")

    @property
    def vendor_tools(self) -> Sequence[str]:
        """See `ApiSettings.vendor_tools`; Chat Completions has none."""
        return (*VENDOR_TOOLS, "image_generation") if self.api == "responses" else ()

    @property
    def limit_name(self) -> LimitName:
        """The name of `max_tokens` in the request's body."""
        if self.limit_field is not None:
            return self.limit_field
        return "max_completion_tokens" if self.base_url is None else "max_tokens"

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[Model]:
        """Yield the model.

        Raises:
            UsageError: there is no key, a wrong one, or no such model.
        """
        wire: Wire = ChatWire() if self.api == "chat" else ResponsesWire()
        async with opened(self, _OPENAI, wire, ctx) as model:
            yield model
