"""The agent `openai-agents`."""

from __future__ import annotations

from attrs import frozen
from orchestrion_foreign import Foreign, Framework, ObjectPath


@frozen(kw_only=True)
class OpenAIAgents(Foreign):
    """Runs an Agent of the OpenAI Agents SDK, with its tools and handoffs; its output is the turn.

    The input begins with the problem as the user's message. Turns of other agents are messages of
    the user with the agent's name in a tag, its own are the assistant's. A final output that is no
    text becomes the turn's data.

    Args:
        agent: the Agent by path, "package.module:name", or a function without arguments, plain or
            async, or an async context manager that makes it.
        tracing: whether the SDK traces runs, which sends what was said to OpenAI unless the program
            has set other processors.
    """

    agent: ObjectPath
    tracing: bool = False

    def _named(self) -> tuple[str, str, str]:
        return "openai-agents", "agent", self.agent

    def _framework(self) -> Framework:
        from orchestrion_openai_agents.running import Agents

        return Agents(self.tracing)
