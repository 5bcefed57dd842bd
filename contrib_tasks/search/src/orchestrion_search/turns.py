"""What a turn said, as the tasks of this distribution read it."""

from __future__ import annotations

from orchestrion import Turn

__all__ = ["value_of"]


def value_of(turn: Turn) -> str:
    """What was read from a response, or else all of it; nothing of a turn that failed."""
    data = turn.output.data
    value = data.get("value") if isinstance(data, dict) else turn.output.content
    return value.strip() if isinstance(value, str) and turn.status == "completed" else ""
