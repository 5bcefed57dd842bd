"""The agent `pydantic-ai`."""

from __future__ import annotations

from attrs import frozen
from orchestrion_foreign import Foreign, Framework, ObjectPath


@frozen(kw_only=True)
class PydanticAI(Foreign):
    """Runs an Agent of Pydantic AI; its output is the turn.

    The last thing that the agent is shown is the user prompt, and what comes before it the message
    history, which begins with the problem. Turns of other agents are user prompts with the agent's
    name in a tag, its own are model responses. An output that is no text becomes the turn's data.

    Args:
        agent: the Agent by path, "package.module:name", or a function without arguments, plain or
            async, or an async context manager that makes it.
    """

    agent: ObjectPath

    def _named(self) -> tuple[str, str, str]:
        return "pydantic-ai", "agent", self.agent

    def _framework(self) -> Framework:
        from orchestrion_pydantic_ai.running import Agents

        return Agents()
