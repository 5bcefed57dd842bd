"""One interface for both kinds of PettingZoo's games: all acting players act at once."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import Any

from pettingzoo import AECEnv, ParallelEnv, make

from orchestrion import UsageError, load_function
from orchestrion_pettingzoo.task import PettingZoo

# Games import pygame, which prints a greeting.
os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")

# Each illegal move logs a line, which would hide everything else.
logging.getLogger("pettingzoo.utils.env_logger").setLevel(logging.ERROR)


class Game:
    """A running game, and its current state.

    Args:
        environment: of PettingZoo.

    Attributes:
        acting: the players who act now; empty when the game is over.
        seen: the observation of each acting player.
        info: further information about each acting player.
        totals: the rewards of each player so far.
        ends: how each player's game ended: terminated, truncated.
    """

    def __init__(self, environment: Any) -> None:
        self.environment = environment
        self.acting: tuple[str, ...] = ()
        self.seen: Mapping[str, Any] = {}
        self.info: Mapping[str, Mapping[str, Any]] = {}
        self.totals: dict[str, float] = {}
        self.ends: dict[str, tuple[bool, bool]] = {}

    def begin(self, seed: int) -> None:
        """Reset the game."""
        raise NotImplementedError

    def go(self, actions: Mapping[str, Any]) -> None:
        """Let all acting players act."""
        raise NotImplementedError

    def _book(self, player: str, reward: float, terminated: bool, truncated: bool) -> None:
        self.totals[player] = self.totals.get(player, 0.0) + float(reward)
        if terminated or truncated:
            self.ends[player] = bool(terminated), bool(truncated)


class Turns(Game):
    """A game of the AEC interface: one player after the other."""

    def begin(self, seed: int) -> None:
        self.environment.reset(seed=seed)
        self._wait()

    def go(self, actions: Mapping[str, Any]) -> None:
        (action,) = actions.values()
        self.environment.step(action)
        self._wait()

    def _wait(self) -> None:
        """Continue to the next player who can act, past players whose game has ended."""
        env = self.environment
        self.acting, self.seen, self.info = (), {}, {}
        while env.agents:
            player = env.agent_selection
            observation, reward, terminated, truncated, info = env.last()
            self._book(player, reward, terminated, truncated)
            if not (terminated or truncated):
                self.acting, self.seen, self.info = (player,), {player: observation}, {player: info}
                return
            env.step(None)


class Rounds(Game):
    """A game of the parallel interface: all players at once."""

    def begin(self, seed: int) -> None:
        self._show(*self.environment.reset(seed=seed))

    def go(self, actions: Mapping[str, Any]) -> None:
        observations, rewards, terminated, truncated, infos = self.environment.step(dict(actions))
        for player, reward in rewards.items():
            self._book(player, reward, terminated[player], truncated[player])
        self._show(observations, infos)

    def _show(self, observations: Mapping[str, Any], infos: Mapping[str, Any]) -> None:
        players = self.acting = tuple(self.environment.agents)
        self.seen = {player: observations[player] for player in players}
        self.info = {player: infos.get(player, {}) for player in players}


def game(settings: PettingZoo, where: str) -> Game:
    """Return a new game, which has not begun.

    Raises:
        UsageError: it cannot be made, or has no fixed players.
    """
    name = settings.environment
    try:
        if ":" in name:
            environment = load_function(name, f"{where}.environment")(**settings.kwargs)
        else:
            environment = make(settings.api, name, **settings.kwargs)
    except UsageError:
        raise
    except Exception as error:  # whatever the game raises for its settings
        cause = f" ({error.__cause__})" if error.__cause__ is not None else ""
        raise UsageError(
            f"{where}: cannot make {name!r}: {type(error).__name__}: {error}{cause}"
        ) from error
    if not isinstance(environment, AECEnv | ParallelEnv):
        raise UsageError(f"{where}: {name!r} is {environment!r:.80}, not a game of PettingZoo")
    if not getattr(environment, "possible_agents", None):
        raise UsageError(
            f"{where}: {name!r} has no `possible_agents`: only games whose players are known "
            "beforehand can be played by a team"
        )
    return Turns(environment) if isinstance(environment, AECEnv) else Rounds(environment)
