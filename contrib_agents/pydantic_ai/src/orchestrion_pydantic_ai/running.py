"""Runs agents. Importing this imports Pydantic AI."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from orchestrion_foreign import Framework, Message, ModelRequests, Tokens
from pydantic_ai import DeferredToolRequests
from pydantic_ai.agent import AbstractAgent
from pydantic_ai.capabilities import ReinjectSystemPrompt
from pydantic_ai.messages import ModelRequest, ModelResponse, TextPart, UserPromptPart
from pydantic_ai.usage import RunUsage


class Agents(Framework):
    """See `Framework`."""

    wanted = "an Agent of pydantic_ai"
    call = "Agent.run"
    kept = ("usage",)

    def fits(self, target: Any) -> bool:
        return isinstance(target, AbstractAgent)

    def arguments(self, shown: Sequence[Message]) -> dict[str, Any]:
        *earlier, last = shown
        arguments: dict[str, Any] = {"user_prompt": last.labelled}
        if earlier:
            arguments["message_history"] = [_message(message) for message in earlier]
            # With a history, an agent leaves its system prompt out, which should be in there.
            arguments["capabilities"] = [ReinjectSystemPrompt()]
        return arguments

    async def run(self, target: Any, arguments: dict[str, Any], log: list[ModelRequests]) -> Any:
        usage = RunUsage()
        try:
            result = await target.run(**arguments, usage=usage)
        finally:
            log += _requests_of(usage)
        if isinstance(result.output, DeferredToolRequests):
            waiting = [*result.output.approvals, *result.output.calls]
            names = ", ".join(call.tool_name for call in waiting)
            raise RuntimeError(f"the agent waits for a person to approve or answer: {names}")
        return result

    def read(self, result: Any) -> Any:
        return result.output


def _message(message: Message) -> ModelRequest | ModelResponse:
    if message.role == "assistant":
        return ModelResponse(parts=[TextPart(message.text)])
    return ModelRequest(parts=[UserPromptPart(message.labelled)])


def _requests_of(usage: RunUsage) -> list[ModelRequests]:
    """Return what a run took, as one entry, and as another one what was not measured."""
    unmeasured: int = usage.unmeasured_requests
    tokens = Tokens(
        usage.input_tokens,
        usage.output_tokens,
        cached=usage.cache_read_tokens,
        written=usage.cache_write_tokens,
        written_hour=usage.cache_write_1h_tokens,
    )
    entries = []
    if usage.requests > unmeasured or tokens != Tokens(0, 0):
        usd = None if usage.cost is None else float(usage.cost)
        entries.append(ModelRequests(tokens, max(0, usage.requests - unmeasured), usd=usd))
    if unmeasured:
        entries.append(ModelRequests(None, unmeasured))
    return entries
