"""An agent without a real model, for trials: it repeats the last prompt it was shown."""

from __future__ import annotations

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, FunctionModel


async def _repeat(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    prompts = [
        str(part.content)
        for message in messages
        for part in message.parts
        if isinstance(part, UserPromptPart)
    ]
    return ModelResponse(parts=[TextPart(prompts[-1])])


echo = Agent(FunctionModel(_repeat))
"""The agent."""
