"""The policy `values`: settings."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from attrs import Factory, frozen
from orchestrion_encoders import Counts, Hints
from orchestrion_encoders.interfaces import Encoder, refuse_turns

from orchestrion import OpenContext, Policy

STANDARD: tuple[Encoder, ...] = (Counts(), Hints())


@frozen
class Values:
    """Takes the choice with the highest learned value.

    Its choices are all agents of the team with all their options, and stopping. Before training it
    draws uniformly from the allowed ones. It is trained by `bandit`, `fitted-q`, `optimistic` or
    `auto`.

    Args:
        encoders: turn situations and choices into numbers; none stands for `counts` and `hints`.
            The trainer `optimistic` reads none, and refuses others.
        stop: whether ending the episode without a turn is a choice. By default it is, unless an
            agent of the team ends episodes, like a terminator.
    """

    encoders: list[Encoder] = Factory(list)
    stop: bool | None = None

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[Policy]:
        from orchestrion_values.policy import ValuePolicy

        refuse_turns(self.encoders, ctx.path)
        encoders = self.encoders or STANDARD
        stop = self.stop
        if stop is None:
            stop = not any(member.ends for member in ctx.roster)
        yield ValuePolicy(encoders, ctx, stop=stop)
