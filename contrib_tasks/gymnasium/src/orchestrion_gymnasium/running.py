"""An opened task `gymnasium`: steps real environments behind immutable states."""

from __future__ import annotations

import json
from typing import Any

import gymnasium
from attrs import frozen

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
    load_object,
)
from orchestrion_gymnasium.live import Live
from orchestrion_gymnasium.outcome import OpenedSeeds, action_of
from orchestrion_gymnasium.spaces import Features, described, in_words, plain, to_action
from orchestrion_gymnasium.task import Gymnasium


@frozen(eq=False)
class Moment:
    """A state of an episode, with all that is necessary to reach it again.

    Args:
        seed: of the environment.
        actions: all actions since the start, as JSON.
        seen: the observation, as JSON.
        features: of the observation.
        reward: of the last action.
        total: the sum of all rewards.
        terminated: whether the environment ended the episode.
        truncated: whether its time limit ended the episode.
    """

    seed: int
    actions: tuple[JSON, ...] = ()
    seen: JSON = None
    features: tuple[float, ...] = ()
    reward: float = 0.0
    total: float = 0.0
    terminated: bool = False
    truncated: bool = False

    @property
    def over(self) -> bool:
        """Whether the episode has ended."""
        return self.terminated or self.truncated


class RunningGymnasium(OpenedSeeds):
    """An opened task: its environments, and their spaces."""

    def __init__(self, settings: Gymnasium, where: str) -> None:
        self.settings = settings
        probe = self._make(where)
        self.features = Features(probe.observation_space, where)
        self.space = probe.action_space
        self.actions = described(self.space)
        returns, spec = settings.returns, probe.spec
        self.horizon = None if spec is None else spec.max_episode_steps
        self.solved = returns.best if returns.solved is None else returns.solved
        if returns.solved is None and spec is not None and spec.reward_threshold is not None:
            self.solved = min(spec.reward_threshold, returns.best)
        super().__init__(
            settings,
            f"Act in the environment {settings.environment} until the episode ends. Answer with an "
            f"action alone, as JSON: {in_words(self.space)}.",
        )
        probe.close()
        self._live: Live[Moment, gymnasium.Env[Any, Any]] = Live(
            self._replayed, lambda environment: environment.close()
        )

    def _make(self, where: str) -> gymnasium.Env[Any, Any]:
        settings = self.settings
        module, colon, _ = settings.environment.partition(":")
        if colon:  # gymnasium imports it, but not from the folder of the command
            load_object(module, f"{where}.environment")
        try:
            return gymnasium.make(
                settings.environment,
                max_episode_steps=settings.horizon,
                disable_env_checker=True,
                **settings.kwargs,
            )
        except Exception as error:  # whatever the environment raises for its settings
            raise UsageError(
                f"{where}: cannot make {settings.environment!r}: {type(error).__name__}: {error}"
            ) from error

    def close(self) -> None:
        """Close all environments."""
        self._live.close()

    def start(self, problem: Problem, key: Key) -> Step:
        """Return the environment after its reset with the problem's seed."""
        hidden: Any = problem.hidden
        moment, environment = self._reset(int(hidden["seed"]))
        self._live.keep(moment, environment)
        return self._step(moment)

    def step(self, state: Any, turn: Turn, key: Key) -> Step:
        """Return the state after a turn's action; without an action it does not change."""
        if state.over:
            return self._step(state)
        try:
            action = to_action(self.space, action_of(turn))
        except ValueError as error:
            return self._step(state, f"\nthe last turn gave no action: {error}")
        environment = self._live.take(state)
        moment = self._after(state, environment, action)
        if moment.over:
            environment.close()
        else:
            self._live.keep(moment, environment)
        return self._step(moment)

    async def verify(
        self, problem: Problem, trajectory: Trajectory, state: Any, *, final: bool, calls: Calls
    ) -> Scores:
        """Return the value of the return; 0 for an episode that was stopped before its end."""
        parts = {"return": state.total, "actions": float(len(state.actions))}
        if final and not state.over:
            return Scores(0.0, parts=parts)
        value = self.settings.returns.value(state.total)
        return Scores(value, state.over and state.total >= self.solved, parts)

    def _reset(self, seed: int) -> tuple[Moment, gymnasium.Env[Any, Any]]:
        environment = self._make("task")
        observation, _ = environment.reset(seed=seed)
        return Moment(seed, (), plain(observation), self.features(observation)), environment

    def _after(self, moment: Moment, environment: gymnasium.Env[Any, Any], action: Any) -> Moment:
        observation, reward, terminated, truncated, _ = environment.step(action)
        return Moment(
            moment.seed,
            (*moment.actions, plain(action)),
            plain(observation),
            self.features(observation),
            float(reward),
            moment.total + float(reward),
            bool(terminated),
            bool(truncated),
        )

    def _replayed(self, moment: Moment) -> gymnasium.Env[Any, Any]:
        """Return a new environment in which all actions of a state are repeated.

        Raises:
            RunError: the result is another state.
        """
        again, environment = self._reset(moment.seed)
        for action in moment.actions:
            again = self._after(again, environment, to_action(self.space, action))
        if repr((again.seen, again.total)) != repr((moment.seen, moment.total)):
            environment.close()
            raise RunError(
                f"{self.settings.environment} does not repeat: the same {len(moment.actions)} "
                f"actions from seed {moment.seed} led elsewhere; an episode can only be forked if "
                "all randomness of the environment comes from the seed of its reset"
            )
        return environment

    def _step(self, moment: Moment, note: str = "") -> Step:
        """Return a state with its observation."""
        text = (
            f"observation: {json.dumps(moment.seen)}\n"
            f"reward: {moment.reward:g}, {moment.total:g} after {len(moment.actions)} actions{note}"
        )
        data = {
            "observation": moment.seen,
            "reward": moment.reward,
            "actions": self.actions,
            "terminated": moment.terminated,
            "truncated": moment.truncated,
        }
        observation = Observation(text, data, moment.features)
        return Step(moment, observation, moment.over)
