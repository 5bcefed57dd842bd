"""What a foreign agent is shown: the problem, the earlier turns and the environment's text."""

from __future__ import annotations

import re
from typing import Literal
from xml.sax.saxutils import quoteattr

import msgspec
from attrs import frozen

from orchestrion import JSON, View

_TAG = re.compile(r"<(?=/?turn)", re.I)


@frozen
class Message:
    """One message to a foreign agent.

    Args:
        role: "assistant" for its own earlier turns, "user" for everything else.
        text: what was said.
        name: the agent whose turn it is; empty for the problem and the environment.
    """

    role: Literal["user", "assistant"]
    text: str
    name: str = ""

    @property
    def labelled(self) -> str:
        """The text with the name of its agent, for frameworks whose messages have no names.

        A turn of another agent stands between tags; text in it that looks like them is escaped.
        """
        if self.role == "assistant" or not self.name:
            return self.text
        return f"<turn agent={quoteattr(self.name)}>\n{_TAG.sub('&lt;', self.text)}\n</turn>"


def messages(view: View) -> list[Message]:
    """Return what a view shows, oldest first; the last message is always the user's."""
    shown = [Message("user", view.problem.text)]
    for turn in view.turns:
        text = turn.output.content
        if not text and turn.output.data is not None:
            text = msgspec.json.encode(turn.output.data).decode()
        shown.append(Message("assistant" if turn.agent == view.agent else "user", text, turn.agent))
    if view.observation is not None and view.observation.text:
        shown.append(Message("user", view.observation.text))
    if shown[-1].role == "assistant":
        shown.append(Message("user", "It is your turn again."))
    return shown


def everything(view: View) -> JSON:
    """Return all that a function of the view may read, as JSON."""
    problem, observation = view.problem, view.observation
    return {
        "agent": view.agent,
        "problem": [problem.id, problem.text, problem.data, problem.category],
        "turns": [
            [turn.index, turn.agent, turn.option, turn.output.content, turn.output.data]
            for turn in view.turns
        ],
        "observation": None if observation is None else [observation.text, observation.data],
        "team": [member.name for member in view.team],
    }
