"""What a speaker is, and what it gives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Protocol

from attrs import frozen

from orchestrion import JSON, Key

__all__ = ["Said", "Speaker", "ToolCall"]


@frozen
class ToolCall:
    """A tool that the speaker wants to be called; `arguments` is JSON as text."""

    name: str
    arguments: str = "{}"


@frozen
class Said:
    """What a speaker answers; the server cuts it where the request says so."""

    text: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    stop: Literal["end", "refused"] = "end"


class Speaker(Protocol):
    """A simulated speaker: a pure function of what it is asked and of a draw.

    Answers come from `request` and `draw` alone, never from what was asked before, the time or
    the order of requests; so they are the same whatever the latency and however often a call is
    tried again.
    """

    def say(self, request: Mapping[str, JSON], draw: Key) -> Said:
        """The answer.

        Args:
            request: in the form of `orchestrion.Model`, with `model`, the name it was asked by.
            draw: all luck comes from here.

        Raises:
            ValueError: this speaker has no answer to such a request; the server says 400.
        """
        ...
