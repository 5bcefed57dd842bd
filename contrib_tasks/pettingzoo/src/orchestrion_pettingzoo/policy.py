"""The policy `players`: starts the agent of the player who acts next."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from attrs import frozen

from orchestrion import Activation, Decision, Key, OpenContext, Policy, Situation, UsageError


@frozen
class Players:
    """Starts the agent of the player who acts next, without the turns of other agents.

    An agent only gets the observation of its player, so that in a game of rounds nobody sees the
    choice of another player. Of several agents of a player, the first is started.
    """

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[Policy]:
        """Yield the policy.

        Raises:
            UsageError: an agent has options, which this policy cannot choose.
        """
        for member in ctx.roster:
            if member.options:
                raise UsageError(
                    f"{ctx.path}: the agent {member.name!r} has options, and `players` chooses "
                    "none; use a policy that does, such as neural or random"
                )
        yield _Starting()


class _Starting(Policy):
    def decide(self, situations: Sequence[Situation], keys: Sequence[Key]) -> Sequence[Decision]:
        return [_decision(situation) for situation in situations]


def _decision(situation: Situation) -> Decision:
    data: Any = None if situation.observation is None else situation.observation.data
    try:
        players = data["players"]
        agents = [players[player]["agents"] for player in players]
    except (TypeError, KeyError):
        return Decision(stop=True, error="the policy `players` needs the task `pettingzoo`")
    # An agent of several players acts for them one after the other.
    names = dict.fromkeys(names[0] for names in agents)
    if not names:
        return Decision(stop=True)
    return Decision(tuple(Activation(name, reads=()) for name in names))
