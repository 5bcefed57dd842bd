"""A graph without a model, for trials: it repeats the last message it was shown."""

from __future__ import annotations

from typing import Any

from langchain_core.messages import AIMessage
from langgraph.graph import END, START, MessagesState, StateGraph


async def _repeat(state: MessagesState) -> dict[str, Any]:
    return {"messages": [AIMessage(state["messages"][-1].text)]}


_builder = StateGraph(MessagesState)
_builder.add_node("repeat", _repeat)
_builder.add_edge(START, "repeat")
_builder.add_edge("repeat", END)
echo = _builder.compile()
"""The graph."""
