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
    """A game of PettingZoo; agents play its players, and their outputs are the actions.

    A problem is a seed. The game decides who acts next: agents of other players are blocked. In a
    game of rounds, the players act one after the other, and the round is played after the last. A
    turn without an action changes nothing, nor does one of an agent without a player, such as an
    adviser.

    Args:
        environment: its id, such as `classic/tictactoe-v3`, or `module:function` of your own game.
        returns: the value of returns.
        api: its interface: players act in turns (`aec`) or in rounds (`parallel`).
        kwargs: settings of the game.
        players: by player, the agent that plays it, or several of which the policy chooses one
            each time; by default the agent of the player's name.
        scored: the players whose mean return is judged; by default all.
        episodes: the number of problems of each split.
        seed: of the draws of all problems' seeds.
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
        """Yield the task, and close its games at the end.

        Raises:
            UsageError: the game, a player or an agent does not exist, or the game cannot be used.
        """
        from orchestrion_pettingzoo.running import RunningPettingZoo

        running = RunningPettingZoo(self, ctx.path)
        try:
            _check_agents(running.agents, [member.name for member in ctx.roster], ctx.path)
            yield running
        finally:
            running.close()


def _check_agents(agents: Mapping[str, Sequence[str]], team: Sequence[str], where: str) -> None:
    """Check that the team, if there is one, has an agent for each player."""
    for player, names in agents.items():
        if team and not set(names) & set(team):
            near = did_you_mean(names[0], team) if names else ""
            wanted = ", ".join(names) or "nobody"
            raise UsageError(
                f"{where}: the player {player!r} is to be played by {wanted}, and the "
                f"team has {', '.join(team)}{near}; set `players: {{{player}: AGENT}}`"
            )
