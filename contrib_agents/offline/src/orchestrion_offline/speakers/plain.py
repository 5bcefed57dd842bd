"""Echo, play a script, or choose a speaker by role: speakers without a skill of their own."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from attrs import field, frozen

from orchestrion import JSON, Key
from orchestrion_offline.interfaces import Answer, Speaker, ToolCall
from orchestrion_offline.reading import last_text, system_text, words


@frozen
class Echo(Speaker):
    """Repeats the last message.

    Args:
        prefix: put before it.
    """

    prefix: str = ""

    def say(self, request: Mapping[str, JSON], draw: Key) -> Answer:
        return Answer(self.prefix + last_text(request))


@frozen
class Line:
    """One answer of a script.

    Args:
        text: of the answer.
        tool: name of the tool to call; "" for none.
        arguments: of the call; a text is sent as it is.
        refuse: whether it is a refusal.
    """

    text: str = ""
    tool: str = ""
    arguments: JSON = field(factory=dict)
    refuse: bool = False


@frozen
class Scripted(Speaker):
    """Gives its lines in order, one for each answer of a conversation, then repeats the last one.

    Args:
        lines: the answers.
    """

    lines: tuple[Line, ...] = (Line("ok"),)

    def say(self, request: Mapping[str, JSON], draw: Key) -> Answer:
        if not self.lines:
            raise ValueError("the script has no lines")
        answered = sum(message["role"] == "assistant" for message in request["messages"])
        line = self.lines[min(answered, len(self.lines) - 1)]
        calls: tuple[ToolCall, ...] = ()
        if line.tool:
            arguments = line.arguments
            if not isinstance(arguments, str):
                arguments = msgspec.json.encode(arguments).decode()
            calls = (ToolCall(line.tool, arguments),)
        return Answer(line.text, calls, "refused" if line.refuse else "end")


@frozen
class Cast(Speaker):
    """Plays the role that the instructions name first, as one model plays all roles of a team.

    Args:
        roles: speakers by role; a role may have several words.
        otherwise: the speaker for instructions that name no role.
    """

    roles: Mapping[str, Speaker] = field(factory=dict)
    otherwise: Speaker | None = None

    def say(self, request: Mapping[str, JSON], draw: Key) -> Answer:
        instructions = words(system_text(request))
        positions = [(instructions.find(words(role)), role) for role in self.roles]
        named = [(at, -len(role), role) for at, role in positions if at >= 0]
        speaker = self.roles[min(named)[2]] if named else self.otherwise
        if speaker is None:
            known = ", ".join(self.roles) or "none"
            raise ValueError(f"the instructions name no role of this cast (roles: {known})")
        return speaker.say(request, draw)
