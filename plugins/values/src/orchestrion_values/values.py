"""The policy `values`: settings."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from attrs import Factory, frozen
from orchestrion_encoders import Counts, Hints
from orchestrion_encoders.interfaces import Encoder, refuse_turns

from orchestrion import OpenContext, Policy

__all__ = ["Values"]


@frozen
class Values:
    """Takes the choice of the highest value, as its trainer has learned values.

    Its choices are every agent of the team with each of its options, and stopping. Before it is
    trained it takes any choice, uniformly among those the task allows. The trainers `bandit`,
    `fitted-q`, `optimistic` and `auto` teach it.

    Args:
        encoders: what a choice is decided on, as numbers; none stands for `counts` and `hints`.
        stop: whether ending the episode without a turn is one of the choices. By default it is one
            where no agent of the team has that as its job, like a terminator.
    """

    encoders: list[Encoder] = Factory(list)
    stop: bool | None = None

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[Policy]:
        """Look at the team."""
        from orchestrion_values.policy import ValuePolicy

        refuse_turns(self.encoders, ctx.path)
        encoders = self.encoders or [Counts(), Hints()]
        stop = self.stop
        if stop is None:
            stop = not any(member.ends for member in ctx.roster)
        yield ValuePolicy(encoders, ctx, stop=stop)
