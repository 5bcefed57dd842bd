"""An agent without a real model, for trials: it repeats the last message it was shown."""

from __future__ import annotations

from typing import Any

from agents import Agent, Model, ModelResponse, Usage
from agents.testing import assistant_message


class _Repeating(Model):  # type: ignore[misc]  # its types are not read
    async def get_response(
        self, system_instructions: str | None, input: Any, *args: Any, **kwargs: Any
    ) -> ModelResponse:
        text = input if isinstance(input, str) else str(input[-1]["content"])
        words = len(text.split())
        usage = Usage(1, input_tokens=words, output_tokens=words, total_tokens=2 * words)
        return ModelResponse([assistant_message(text)], usage, None)

    def stream_response(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError


echo = Agent(name="echo", model=_Repeating())
"""The agent."""
