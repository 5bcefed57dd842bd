"""An opened task `pettingzoo`: plays real games behind immutable states."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from attrs import evolve, field, frozen
from orchestrion_gymnasium import (
    Features,
    Live,
    OpenedSeeds,
    action_of,
    described,
    in_words,
    plain,
    to_action,
)

from orchestrion import (
    JSON,
    Calls,
    Key,
    Observation,
    Problem,
    RunError,
    Scores,
    Step,
    Trajectory,
    Turn,
    UsageError,
    did_you_mean,
)
from orchestrion_pettingzoo.games import Game, game
from orchestrion_pettingzoo.task import PettingZoo


@frozen(eq=False)
class Moment:
    """A state of a game, with all that is necessary to reach it again.

    Args:
        seed: of the game.
        moves: all moves since the start: the actions of a turn or a round, by player.
        chosen: the actions of this round so far, by player.
        acting: the players of this turn or round.
        seen: the observation of each acting player, as JSON.
        allowed: the allowed actions of each acting player; None if the game does not name them.
        features: of each acting player's observation.
        totals: the sum of rewards of each player.
        ends: how each player's game ended: terminated, truncated.
    """

    seed: int
    moves: tuple[Mapping[str, JSON], ...] = ()
    chosen: Mapping[str, JSON] = field(factory=dict)
    acting: tuple[str, ...] = ()
    seen: Mapping[str, JSON] = field(factory=dict)
    allowed: Mapping[str, tuple[int, ...] | None] = field(factory=dict)
    features: Mapping[str, tuple[float, ...]] = field(factory=dict)
    totals: Mapping[str, float] = field(factory=dict)
    ends: Mapping[str, tuple[bool, bool]] = field(factory=dict)

    @property
    def waiting(self) -> tuple[str, ...]:
        """The players who have not acted yet, in the game's order; empty when it is over."""
        return tuple(player for player in self.acting if player not in self.chosen)


class RunningPettingZoo(OpenedSeeds):
    """An opened task: its games, their players, and the agents of each player."""

    def __init__(self, settings: PettingZoo, where: str) -> None:
        self.settings = settings
        env = game(settings, where).environment
        self.players: tuple[str, ...] = tuple(env.possible_agents)
        self._check_players(where)
        given = settings.players
        self.agents = {player: _names(given.get(player, player)) for player in self.players}
        self.scored = tuple(settings.scored) or self.players
        self.spaces = {player: env.action_space(player) for player in self.players}
        self.actions = {player: described(self.spaces[player]) for player in self.players}
        self._features = {
            player: Features(env.observation_space(player), where) for player in self.players
        }
        self._width = max(features.width for features in self._features.values())
        env.close()
        best = settings.returns.best
        self.solved = best if settings.returns.solved is None else settings.returns.solved
        self._live: Live[Moment, Game] = Live(self._replayed, _close)
        words = "; ".join(f"{player}: {in_words(self.spaces[player])}" for player in self.players)
        super().__init__(
            settings,
            f"Play {settings.environment} until it is over. Answer with an action alone, as JSON. "
            f"Actions of {words}.",
        )

    def _check_players(self, where: str) -> None:
        for name in (*self.settings.players, *self.settings.scored):
            if name not in self.players:
                raise UsageError(
                    f"{where}: {self.settings.environment} has no player {name!r}; it has "
                    f"{', '.join(self.players)}{did_you_mean(name, self.players)}"
                )

    def close(self) -> None:
        """Close all games."""
        self._live.close()

    def start(self, problem: Problem, key: Key) -> Step:
        """Return the game after its reset with the problem's seed."""
        hidden: Any = problem.hidden
        moment, playing = self._begun(int(hidden["seed"]))
        self._live.keep(moment, playing)
        return self._step(moment)

    def step(self, state: Any, turn: Turn, key: Key) -> Step:
        """Return the game after a turn's action; without an action it does not change."""
        moment: Moment = state
        player = next((p for p in moment.waiting if turn.agent in self.agents[p]), None)
        if player is None:
            return self._step(moment)
        try:
            action = plain(to_action(self.spaces[player], action_of(turn)))
        except ValueError as error:
            return self._step(moment, f"\nthe last turn of {player} gave no action: {error}")
        playing = self._live.take(moment)
        chosen = {**moment.chosen, player: action}
        if len(chosen) < len(moment.acting):
            after = evolve(moment, chosen=chosen)
        else:
            after = self._after(moment, playing, chosen)
        if after.acting:
            self._live.keep(after, playing)
        else:
            _close(playing)
        return self._step(after)

    async def verify(
        self, problem: Problem, trajectory: Trajectory, state: Any, *, final: bool, calls: Calls
    ) -> Scores:
        """Return the value of the scored players' mean return; 0 for an unfinished game."""
        moment: Moment = state
        totals = [moment.totals.get(player, 0.0) for player in self.scored]
        total = sum(totals) / len(totals)
        parts = {f"return.{player}": value for player, value in moment.totals.items()}
        if final and moment.acting:
            return Scores(0.0, parts=parts)
        over = not moment.acting
        return Scores(self.settings.returns.value(total), over and total >= self.solved, parts)

    def _begun(self, seed: int) -> tuple[Moment, Game]:
        playing = game(self.settings, "task")
        playing.begin(seed)
        return self._now(Moment(seed), playing), playing

    def _after(self, moment: Moment, playing: Game, actions: Mapping[str, JSON]) -> Moment:
        typed = {p: to_action(self.spaces[p], actions[p]) for p in moment.acting}
        playing.go(typed)
        return self._now(Moment(moment.seed, (*moment.moves, dict(actions))), playing)

    def _now(self, moment: Moment, playing: Game) -> Moment:
        """Return a state with the current state of a game."""
        return evolve(
            moment,
            acting=playing.acting,
            seen={player: plain(playing.seen[player]) for player in playing.acting},
            allowed={player: self._allowed(playing, player) for player in playing.acting},
            features={p: self._features[p](playing.seen[p]) for p in playing.acting},
            totals=dict(playing.totals),
            ends=dict(playing.ends),
        )

    def _allowed(self, playing: Game, player: str) -> tuple[int, ...] | None:
        """Return the actions that a game's mask allows; None if there is no mask."""
        seen = playing.seen[player]
        told = isinstance(seen, Mapping) and "action_mask" in seen
        mask = (seen if told else playing.info[player]).get("action_mask")
        if mask is None or self.actions[player]["kind"] != "discrete":
            return None
        first = int(self.spaces[player].start)
        return tuple(n for n, allowed in enumerate(mask, first) if allowed)

    def _replayed(self, moment: Moment) -> Game:
        """Return a new game in which all moves of a state are repeated.

        Raises:
            RunError: the result is another state.
        """
        again, playing = self._begun(moment.seed)
        for actions in moment.moves:
            again = self._after(again, playing, actions)
        if repr((again.seen, again.totals)) != repr((moment.seen, moment.totals)):
            _close(playing)
            raise RunError(
                f"{self.settings.environment} does not repeat: the same {len(moment.moves)} moves "
                f"from seed {moment.seed} led elsewhere; an episode can only be forked if all "
                "randomness of the game comes from the seed of its reset"
            )
        return playing

    def _step(self, moment: Moment, note: str = "") -> Step:
        """Return a state with its observation.

        In a round, the players act one after the other, and each sees only its own observation.
        """
        lines: list[str] = []
        players: dict[str, JSON] = {}
        free: tuple[str, ...] = ()
        for player in moment.waiting[:1]:
            seen, allowed, free = moment.seen[player], moment.allowed[player], self.agents[player]
            players[player] = {
                "observation": seen,
                "allowed": allowed,
                "actions": self.actions[player],
                "agents": free,
            }
            lines.append(f"{player} observes: {json.dumps(seen)}")
            if allowed is not None:
                lines.append(f"{player} may choose: {list(allowed)}")
        lines.append(f"rewards so far: {json.dumps(moment.totals)}")
        everybody = {name for names in self.agents.values() for name in names}
        observation = Observation(
            "\n".join(lines) + note,
            {"players": players, "rewards": moment.totals, "ends": moment.ends},
            self._numbers(moment),
            frozenset(everybody.difference(free)),
        )
        return Step(moment, observation, not moment.acting)

    def _numbers(self, moment: Moment) -> tuple[float, ...]:
        """Return the player who acts next, and that player's observation, as numbers."""
        if not moment.waiting:
            return (0.0,) * (len(self.players) + self._width)
        player = moment.waiting[0]
        seen = moment.features[player]
        whose = tuple(float(player == other) for other in self.players)
        return (*whose, *seen, *(0.0,) * (self._width - len(seen)))


def _names(agents: str | list[str]) -> tuple[str, ...]:
    return (agents,) if isinstance(agents, str) else tuple(agents)


def _close(playing: Game) -> None:
    playing.environment.close()
