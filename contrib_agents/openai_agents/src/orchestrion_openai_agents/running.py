"""Runs agents. Importing this imports the OpenAI Agents SDK."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from agents import Agent, ModelResponse, RunConfig, RunContextWrapper, RunHooks, Runner, Usage
from agents.models import get_default_model
from attrs import frozen
from orchestrion_foreign import Framework, Message, ModelRequests, Tokens


@frozen
class Agents(Framework):
    """See `Framework`."""

    tracing: bool = False

    wanted = "an Agent of the OpenAI Agents SDK"
    call = "Runner.run"
    kept = ("starting_agent", "hooks")

    def fits(self, target: Any) -> bool:
        return isinstance(target, Agent)

    def arguments(self, shown: Sequence[Message]) -> dict[str, Any]:
        return {"input": [{"role": message.role, "content": message.labelled} for message in shown]}

    async def run(self, target: Any, arguments: dict[str, Any], log: list[ModelRequests]) -> Any:
        watch = _Watch()
        config = arguments.pop("run_config", None) or RunConfig()
        config = RunConfig(**config) if isinstance(config, dict) else config
        config = replace(config, tracing_disabled=not self.tracing)
        try:
            result = await Runner.run(target, **arguments, hooks=watch, run_config=config)
        finally:
            log += watch.requests()
        if result.interruptions:
            names = ", ".join(str(item.name) for item in result.interruptions)
            raise RuntimeError(f"the agent waits for a person to approve: {names}")
        return result

    def read(self, result: Any) -> Any:
        return result.final_output


class _Watch(RunHooks):  # type: ignore[misc]  # its types are not read
    """Notes what each request to a model took."""

    def __init__(self) -> None:
        self._total: Usage | None = None
        """Of the whole run, agents that are tools of others included; the SDK adds to it."""
        self._own: list[ModelRequests] = []

    async def on_llm_start(self, context: RunContextWrapper, *args: Any) -> None:
        """Keep the run's usage."""
        self._total = context.usage

    async def on_llm_end(
        self, context: RunContextWrapper, agent: Agent, response: ModelResponse
    ) -> None:
        """Note the requests of one answer, with the model's name."""
        name = agent.model if agent.model is not None else get_default_model()
        # A model that is an object may be anybody's: its name alone says no price.
        model = name.removeprefix("openai/") if isinstance(name, str) else ""
        usage = response.usage
        tokens = _tokens(usage) if usage.total_tokens else None
        self._own.append(
            ModelRequests(tokens, max(1, usage.requests), "openai" if model else "", model)
        )

    def requests(self) -> list[ModelRequests]:
        """Return what was noted, and what agents took that are tools of others."""
        own, total = self._own, self._total
        if total is None:
            return own
        known = [requests.tokens for requests in own if requests.tokens is not None]
        whole = _tokens(total)
        rest = Tokens(
            whole.input - sum(tokens.input for tokens in known),
            whole.output - sum(tokens.output for tokens in known),
            whole.cached - sum(tokens.cached for tokens in known),
            whole.written - sum(tokens.written for tokens in known),
        )
        if rest == Tokens(0, 0):
            return own
        calls = total.requests - sum(requests.calls for requests in own)
        return [*own, ModelRequests(rest, max(1, calls))]


def _tokens(usage: Usage) -> Tokens:
    details = usage.input_tokens_details
    return Tokens(
        usage.input_tokens,
        usage.output_tokens,
        cached=details.cached_tokens or 0,
        written=getattr(details, "cache_write_tokens", 0) or 0,
    )
