"""The model `anthropic`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from attrs import evolve, frozen

from orchestrion import OpenContext
from orchestrion_llm.messages import MessagesWire
from orchestrion_llm.settings import ApiSettings, Vendor, opened

if TYPE_CHECKING:
    from orchestrion_llm.client import Sdk
    from orchestrion_llm.model import ApiModel

__all__ = ["AnthropicModel"]


def _sdk(*args: Any) -> Sdk:
    from orchestrion_llm.client import anthropic_sdk

    return anthropic_sdk(*args)


_VENDOR = Vendor("anthropic", "https://api.anthropic.com", "ANTHROPIC_API_KEY", "/v1/models", _sdk)


@frozen(kw_only=True)
class AnthropicModel(ApiSettings):
    """A model behind the Messages API; its SDK is imported when the model is opened."""

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[ApiModel]:
        """The model at work.

        Raises:
            UsageError: there is no key, a wrong one, or no such model.
        """
        # The paths of this API begin with /v1 themselves.
        address = self.base_url and self.base_url.rstrip("/").removesuffix("/v1")
        async with opened(evolve(self, base_url=address), _VENDOR, MessagesWire(), ctx) as model:
            yield model
