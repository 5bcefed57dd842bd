"""What this distribution supplies."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrion import Component, hookimpl

HERE = "orchestrion_llm"
# No server listens there: checks of this example need neither key nor network.
_NOWHERE = {"model": "a-model", "base_url": "http://127.0.0.1:9", "preflight": False}


@hookimpl
def orchestrion_models() -> Iterator[Component]:
    yield Component(
        "anthropic",
        f"{HERE}.models:AnthropicModel",
        "a model behind the Messages API of Anthropic, or of a compatible server",
        example=_NOWHERE,
    )
    yield Component(
        "openai",
        f"{HERE}.models:OpenAIModel",
        "a model behind Chat Completions or Responses of OpenAI, or of a compatible server",
        example=_NOWHERE,
    )
