"""The model `offline`: a simulated speaker, asked as a service is asked."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from hashlib import blake2b
from typing import Annotated, Any, Literal

from attrs import Attribute, field, frozen
from orchestrion_llm import Limits, Price

from orchestrion import Meta, Model, OpenContext
from orchestrion_offline.interfaces import Speaker
from orchestrion_offline.settings import Serving

__all__ = ["Offline"]

_NOWHERE = "http://127.0.0.1:9"


@frozen
class Offline:
    """A simulated speaker behind a server on a free port of this machine.

    Everything is as with a service far away: the SDK of OpenAI or Anthropic, HTTP, the model
    `openai` or `anthropic` of orchestrion-llm. The server runs in the loop of the run, since a
    thread would compete with it for the interpreter; it takes about 0.2 ms a call.

    Args:
        speaker: who answers.
        wire: through which API: `openai` is Chat Completions, `responses` Responses, `anthropic`
            Messages.
        server: speed, limits and troubles of the server.
        max_tokens: most tokens of one answer.
        timeout: most seconds of one attempt.
        limits: how fast the server may be asked.
        price: US dollars per million tokens, to try budgets with.
        cache: as of a model behind an API.
    """

    speaker: Speaker
    wire: Literal["openai", "responses", "anthropic"] = "openai"
    server: Serving = field(default=Serving())
    max_tokens: Annotated[int, Meta(ge=1)] = 4096
    timeout: Annotated[float, Meta(gt=0, le=86400)] = 60.0
    limits: Limits = Limits()
    price: Price = Price(0.0, 0.0)
    cache: bool | None = None

    @server.validator
    def _check_server(self, attribute: Attribute[Any], value: Serving) -> None:
        if value.api_key:
            raise ValueError(
                "server.api_key: is for `orchestrion llm-stub serve`; no key goes here"
            )

    @property
    def name(self) -> str:
        """The name the speaker is asked by: another one for everything that answers otherwise."""
        troubles = self.server.troubles
        parts = (self.speaker, self.server.seed, troubles.refusal, troubles.truncation)
        digest = blake2b(repr(parts).encode(), digest_size=4).hexdigest()
        return f"{type(self.speaker).__name__.lower()}-{digest}"

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[Model]:
        """Serve, and connect; in a replay or a dry run neither."""
        async with AsyncExitStack() as stack:
            url = _NOWHERE
            if ctx.live:
                from orchestrion_offline.server import serving

                stub = await stack.enter_async_context(
                    serving({self.name: self.speaker}, self.server)
                )
                url = stub.url
            yield await stack.enter_async_context(self._client(url).open(ctx))

    def _client(self, url: str) -> Any:
        from orchestrion_llm import AnthropicModel, OpenAIModel

        settings: dict[str, Any] = {
            "model": self.name,
            # Without the port, which is another one each time.
            "service": f"offline:{self.name}",
            "max_tokens": self.max_tokens,
            "timeout": self.timeout,
            "limits": self.limits,
            "price": self.price,
            "cache": self.cache,
        }
        client: Any = AnthropicModel if self.wire == "anthropic" else OpenAIModel
        if self.wire == "responses":
            settings["api"] = "responses"
        return client(base_url=f"{url}/v1", **settings)
