"""What agents that take one text read."""

from __future__ import annotations

from orchestrion import View

__all__ = ["last_text"]


def last_text(view: View) -> str:
    """The latest text of another agent's turn, else the observation's, else the problem's."""
    for turn in reversed(view.turns):
        if turn.output.content:
            return turn.output.content
    if view.observation is not None and view.observation.text:
        return view.observation.text
    return view.problem.text
