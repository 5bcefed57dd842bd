"""Speakers without any skill: for tests of wires, tools and agents."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from attrs import field, frozen

from orchestrion import JSON, Key
from orchestrion_offline.interfaces import Answer, Speaker, ToolCall
from orchestrion_offline.reading import last_text

__all__ = ["Echo", "Line", "Scripted"]


@frozen
class Echo(Speaker):
    """Says what the last message says.

    Args:
        prefix: put before it.
    """

    prefix: str = ""

    def say(self, request: Mapping[str, JSON], draw: Key) -> Answer:
        """See `Speaker.say`."""
        return Answer(self.prefix + last_text(request))


@frozen
class Line:
    """One answer of a script.

    Args:
        text: what is said.
        tool: a tool that is called; "" for none.
        arguments: what it is called with; a text is sent as it is.
        refuse: whether it is a refusal.
    """

    text: str = ""
    tool: str = ""
    arguments: JSON = field(factory=dict)
    refuse: bool = False


@frozen
class Scripted(Speaker):
    """Says its lines in order, one an answer in a conversation; the last one again and again.

    Args:
        lines: what it says; the first one if the conversation has no answer of it yet.
    """

    lines: tuple[Line, ...] = (Line("ok"),)

    def say(self, request: Mapping[str, JSON], draw: Key) -> Answer:
        """See `Speaker.say`."""
        if not self.lines:
            raise ValueError("the script has no lines")
        answered = sum(message["role"] == "assistant" for message in request["messages"])
        line = self.lines[min(answered, len(self.lines) - 1)]
        calls: tuple[ToolCall, ...] = ()
        if line.tool:
            given = line.arguments
            text = given if isinstance(given, str) else msgspec.json.encode(given).decode()
            calls = (ToolCall(line.tool, text),)
        return Answer(line.text, calls, "refused" if line.refuse else "end")
