"""What components have in common that make sense of their settings before they act."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from attrs import frozen

from orchestrion import Agent, OpenContext, UsageError

__all__ = ["Prepared"]


@frozen
class Prepared:
    """Settings of an agent that `ready` makes; what it refuses, reading a config refuses."""

    def ready(self) -> Agent:
        """The agent itself, for teams put together in Python; a config opens it.

        Raises:
            UsageError: settings contradict each other.
        """
        raise NotImplementedError

    def __attrs_post_init__(self) -> None:
        try:
            self.ready()
        except UsageError as error:
            raise ValueError(str(error)) from None

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[Agent]:
        """With its preset."""
        yield self.ready()
