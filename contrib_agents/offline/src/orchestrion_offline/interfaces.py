"""Define what a speaker is and what it answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Protocol

from attrs import frozen

from orchestrion import JSON, Key

__all__ = ["Answer", "Speaker", "ToolCall"]


@frozen
class ToolCall:
    """A tool call of an answer; `arguments` is JSON as text. The server gives it its `id`."""

    name: str
    arguments: str = "{}"
    id: str = ""


@frozen
class Answer:
    """The answer of a speaker; the server cuts it where the request says so."""

    text: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    stop: Literal["end", "refused"] = "end"


class Speaker(Protocol):
    """A simulated speaker: a pure function of a request and a key.

    An answer must not depend on earlier requests, on time or on the order of requests. So it is the
    same whatever the latency is and however often a call is retried.
    """

    def say(self, request: Mapping[str, JSON], draw: Key) -> Answer:
        """Return the answer to a request.

        Args:
            request: in the form of `orchestrion.Model`, with `model`, the requested model's name.
            draw: the only source of randomness.

        Raises:
            ValueError: this speaker cannot answer such a request; the server replies 400.
        """
        ...
