"""The task `pettingzoo`: a game whose players are played by the agents of the team."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Literal

from attrs import field, frozen
from orchestrion_gymnasium import Counts, Returns, Seeds

from orchestrion import OpenContext, Task, UsageError, did_you_mean, refuse_idle


@frozen
class PettingZoo(Seeds):
    """A game of PettingZoo; agents play its players, and what they output is the action.

    A problem is a seed. Who may act is said by the game: agents of other players are blocked. In
    a game of turns that is one player; in one of rounds they are asked one after the other, and
    the round is played when the last has acted. A turn that gives no action changes nothing, and
    so does one of an agent that plays nobody, such as an adviser.

    Args:
        environment: its id, such as `classic/tictactoe-v3`, or `module:function` of one of yours.
        returns: what returns are worth.
        api: its interface: players act in turns (`aec`) or in rounds (`parallel`).
        kwargs: settings of the game.
        players: by player, the agent that plays it, or several of which the policy chooses one
            each time; by default the agent of the player's name.
        scored: the players whose mean return is judged; by default all.
        episodes: how many problems each split has.
        seed: what the seeds of all problems are drawn from.
    """

    environment: str
    returns: Returns
    api: Literal["aec", "parallel"] = "aec"
    kwargs: dict[str, Any] = field(factory=dict)
    players: dict[str, str | list[str]] = field(factory=dict)
    scored: list[str] = field(factory=list)
    episodes: Counts = Counts()
    seed: int = 0

    def __attrs_post_init__(self) -> None:
        if ":" in self.environment:
            refuse_idle(self, ("api",), "with a game of your own, which has one interface")

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[Task]:
        """Yield the task; its games are closed in the end.

        Raises:
            UsageError: there is no such game, player or agent, or the game cannot be made,
                observed or acted in.
        """
        from orchestrion_pettingzoo.running import RunningPettingZoo

        running = RunningPettingZoo(self, ctx.path)
        try:
            _check_agents(running.agents, [member.name for member in ctx.roster], ctx.path)
            yield running
        finally:
            running.close()


def _check_agents(agents: Mapping[str, Sequence[str]], team: Sequence[str], where: str) -> None:
    """Refuse a player none of whose agents is in the team, if there is one."""
    for player, names in agents.items():
        if team and not set(names) & set(team):
            near = did_you_mean(names[0], team) if names else ""
            wanted = ", ".join(names) or "nobody"
            raise UsageError(
                f"{where}: the player {player!r} is to be played by {wanted}, and the "
                f"team has {', '.join(team)}{near}; set `players: {{{player}: AGENT}}`"
            )
