"""A team as an agent of another team."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

from attrs import frozen

from orchestrion import (
    Agent,
    Calls,
    Key,
    Meta,
    OpenContext,
    Output,
    Policy,
    Usage,
    View,
    team_ceiling,
)


@frozen
class NestedTeam:
    """Runs a nested team on what this activation may read; its output is the last turn's.

    What the inner turns cost is booked once, on the outer turn; an inner final turn ends the
    inner team only. Where its policy ends before anybody acts, there was nothing to add: what the
    last turn that it reads said stands. The turn fails if there is no such turn either, or if
    every inner turn failed.

    Args:
        members: the agents, by name; they leave the outer team.
        policy: who of them acts next. Its choices are the members.
        turns: at most so many inner turns.
        final: end the outer episode after this agent's turn.
    """

    members: list[Agent]
    policy: Policy
    turns: Annotated[int, Meta(ge=1)] = 12
    final: bool = False

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[Agent]:
        yield _Opened(self, dict(zip(ctx.names["members"], self.members, strict=True)))


@frozen
class _Opened(Agent):
    team: NestedTeam
    members: dict[str, Agent]

    async def act(self, view: View, key: Key, calls: Calls) -> Output:
        inner = await calls.team(view, key, self.members, self.team.policy, self.team.turns)
        turns = inner.turns or view.turns
        last = next((turn for turn in reversed(turns) if turn.status == "completed"), None)
        if last is None and inner.turns:
            worst = inner.turns[-1]
            raise RuntimeError(
                f"every turn of the nested team failed; the last, {worst.agent}: {worst.error}"
            )
        if last is None:
            raise RuntimeError(
                "the policy of the nested team ended before anybody acted, and there is no earlier "
                "turn to pass on"
            )
        return Output(
            content=last.output.content,
            data=last.output.data,
            final=self.team.final,
            inner=inner,
        )

    def ceiling(self, tokens: int) -> Usage | None:
        """Return what all inner turns take at most; None if a member does not say."""
        return team_ceiling(self.members, self.team.policy, self.team.turns, tokens)
