"""The kind `tool`: functions that an agent offers to its model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from attrs import frozen

from orchestrion import JSON, Calls

__all__ = ["ArgumentError", "Bounds", "Function", "Result", "Tool"]


@frozen
class Function:
    """A function as a model sees it.

    Args:
        name: letters, digits, `_` and `-`, at most 64.
        description: what it does, for the model.
        schema: JSON Schema of its arguments, which are an object.
        writes: whether it changes anything; such functions are called one after the other, and
            never retried.
    """

    name: str
    description: str
    schema: Mapping[str, JSON]
    writes: bool = False


@frozen
class Result:
    """The result of a call, or its error, for the model.

    Args:
        text: the result or the error.
        error: whether it is an error.
        parts: images, in the form of requests (see `orchestrion.Model`).
    """

    text: str
    error: bool = False
    parts: Sequence[Mapping[str, JSON]] = ()


@frozen
class Bounds:
    """The maximum of bytes that a tool adds to requests: its definitions, and one result."""

    definitions: int
    result: int


class ArgumentError(Exception):
    """Raised for arguments that do not fit; the function was not called."""


class Tool(Protocol):
    """A set of functions that a model may call.

    All outside effects go through `calls`: they are recorded, and a replay does not repeat them.
    """

    async def functions(self, calls: Calls) -> Sequence[Function]:
        """Return the functions; those that write only if they are allowed by name."""
        ...

    async def call(self, function: Function, arguments: Mapping[str, JSON], calls: Calls) -> Result:
        """Call one of the functions.

        Raises:
            ArgumentError: the arguments do not fit.
            CallError: the tool cannot be reached; the turn fails.
        """
        ...

    def bounds(self) -> Bounds:
        """Return what the tool adds to requests at most; known before anything is started."""
        ...
