"""Connect to a simulated speaker through HTTP, as to a real service: the model `offline`."""

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

_NO_SERVER = "http://127.0.0.1:9"


@frozen
class Offline:
    """A simulated speaker behind a server on a free port of this machine.

    The path of a call is that of a real service: the SDK of OpenAI or Anthropic, HTTP, the model
    `openai` or `anthropic` of orchestrion-llm. The server runs in the event loop of the run, since
    a thread would compete with it for the interpreter; it takes about 0.2 ms a call.

    Args:
        speaker: gives the answers.
        wire: the API: `openai` is Chat Completions, `responses` Responses, `anthropic` Messages.
        server: speed, limits and troubles of the server.
        max_tokens: most tokens of one answer.
        timeout: most seconds of one attempt.
        limits: how many calls the client makes in a minute and at a time.
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
                "server.api_key: only `orchestrion llm-stub serve` takes a key; remove it"
            )

    @property
    def name(self) -> str:
        """The model name in requests; it differs wherever a setting changes the answers."""
        troubles = self.server.troubles
        parts = (self.speaker, self.server.seed, troubles.refusal, troubles.truncation)
        digest = blake2b(repr(parts).encode(), digest_size=4).hexdigest()
        return f"{type(self.speaker).__name__.lower()}-{digest}"

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[Model]:
        """Start the server and connect to it; a replay and a dry run do neither."""
        async with AsyncExitStack() as stack:
            url = _NO_SERVER
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
            # Without the port, which changes from run to run.
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
