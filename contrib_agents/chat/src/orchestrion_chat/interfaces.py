"""The kind `tool`: what an agent can give its model to call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from attrs import frozen

from orchestrion import JSON, Calls

__all__ = ["ArgumentError", "Bounds", "Function", "Result", "Tool"]


@frozen
class Function:
    """One function as a model sees it.

    Args:
        name: letters, digits, `_` and `-`, at most 64.
        description: what it does, for the model.
        schema: JSON Schema of its arguments, which are an object.
        writes: whether it changes anything; calls of such functions are made one after the
            other, and never tried again.
    """

    name: str
    description: str
    schema: Mapping[str, JSON]
    writes: bool = False


@frozen
class Result:
    """What a call gave, as text for the model; or what went wrong, for it to see.

    Args:
        text: for the model.
        error: whether this says what went wrong.
        parts: images, as requests have them (see `orchestrion.Model`).
    """

    text: str
    error: bool = False
    parts: Sequence[Mapping[str, JSON]] = ()


@frozen
class Bounds:
    """The most bytes that a tool adds to requests: by defining its functions, and by one result."""

    definitions: int
    result: int


class ArgumentError(Exception):
    """A model called a function in a way that it cannot be called; nothing was done."""


class Tool(Protocol):
    """Functions that a model may call. One tool may have several.

    All that it does outside goes through `calls`, so that it is recorded, and a replay repeats it
    without doing it.
    """

    async def functions(self, calls: Calls) -> Sequence[Function]:
        """What may be called. Functions that write are there only by explicit consent."""
        ...

    async def call(self, function: Function, arguments: Mapping[str, JSON], calls: Calls) -> Result:
        """Call one of these functions.

        Raises:
            ArgumentError: the arguments do not fit.
            CallError: the tool cannot be reached; the turn fails.
        """
        ...

    def bounds(self) -> Bounds:
        """What it adds to requests at most; known before anything is started."""
        ...
