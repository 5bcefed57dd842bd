"""The agent `langgraph`."""

from __future__ import annotations

from attrs import frozen
from orchestrion_foreign import Foreign, Framework, ObjectPath


@frozen(kw_only=True)
class LangGraph(Foreign):
    """Runs a compiled graph of LangGraph; its last message is the turn.

    The graph's `messages` begin with the problem as a human message. Turns of other agents are
    human messages with the agent's name, its own are AI messages. A `structured_response` in the
    final state becomes the turn's data. Each run is a thread of its own.

    Args:
        graph: the compiled graph by path, "package.module:name", or a function without arguments,
            plain or async, or an async context manager that makes it.
    """

    graph: ObjectPath

    def _named(self) -> tuple[str, str, str]:
        return "langgraph", "graph", self.graph

    def _framework(self) -> Framework:
        from orchestrion_langgraph.running import Graphs

        return Graphs()
