"""Monte Carlo: play a benchmark with a policy, without the engine.

For policies that cannot be evaluated exactly. It is the engine's loop for tasks whose agents do
nothing but pay: ask, play, step; decisions of all episodes are taken together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from orchestrion import (
    Activation,
    Decision,
    Key,
    Observation,
    Output,
    Problem,
    Situation,
    Step,
    Task,
    Trajectory,
    Turn,
    UsageError,
    is_blocked,
)
from orchestrion_orchestration_bench.agents import play
from orchestrion_orchestration_bench.process import Floats
from orchestrion_orchestration_bench.solved import Team

Decide = Callable[[Sequence[Situation], Sequence[Key]], Sequence[Decision]]

BATCH = 1000
LONGEST = 1000  # decisions in one episode; more means that a policy never ends


class _Playing:
    """One episode under way."""

    def __init__(self, task: Any, problem: Problem, key: Key) -> None:
        self.task, self.problem, self.key = task, problem, key
        self.trajectory = Trajectory()
        self.now: Step = task.start(problem, key.child("start"))
        self.over, self.limited, self.cost, self.calls = False, False, 0.0, 0

    def situation(self, turns: int | None, training: bool) -> Situation:
        left = None if turns is None else turns - len(self.trajectory)
        return Situation(self.problem, self.trajectory, self.now.observation, (), left, training)

    def follow(self, decision: Decision, team: Team) -> None:
        """Play what a decision starts: all agents see the same, then their turns are appended."""
        seen = self.now.observation
        outputs = [self._play(activation, team, seen) for activation in decision.start]
        for activation, output in zip(decision.start, outputs, strict=True):
            self._append(activation, output)
        self.over = self.over or decision.stop or self.now.done

    def check_limit(self, turns: int | None) -> None:
        """An episode that uses up its turns is cut off, and then worth nothing."""
        if not self.over and turns is not None and len(self.trajectory) >= turns:
            self.over = self.limited = True

    def quality(self) -> float:
        """Return what the verifier gives, if the episode was completed."""
        return 0.0 if self.limited else float(self.task.rules.scores(self.now.state).value)

    def _play(self, activation: Activation, team: Team, seen: Observation | None) -> Output | None:
        """Return what an agent says; None if the task refuses it."""
        if is_blocked(activation, seen):
            return None
        if activation.agent in team.enders:
            return Output(final=True)
        return play(team.rows[activation.agent], activation.option, seen)

    def _append(self, activation: Activation, output: Output | None) -> None:
        index, agent, option = len(self.trajectory), activation.agent, activation.option
        if output is None:
            turn = Turn(index, agent, option, Output(), "failed", "refused", index)
        else:
            turn = Turn(index, agent, option, output, decision=index)
        self.trajectory = self.trajectory.append(turn)
        self.cost += turn.usage.cost
        self.calls += not turn.output.final
        self.over = self.over or turn.output.final
        self.now = self.task.step(self.now.state, turn, self.key.child("step", index))


def roll_out(
    task: Task,
    decide: Decide,
    team: Team,
    problem: Problem,
    count: int,
    key: Key,
    *,
    training: bool,
    turns: int | None = None,
) -> Floats:
    """Return quality, cost and calls of so many episodes on a problem [count, 3].

    Raises:
        UsageError: an episode does not end.
    """
    parts = []
    for start in range(0, count, BATCH):
        keys = [key.child(start).child(i) for i in range(min(BATCH, count - start))]
        episodes = [_Playing(task, problem, own) for own in keys]
        _play(episodes, decide, team, training, turns)
        parts += [[episode.quality(), episode.cost, episode.calls] for episode in episodes]
    return np.array(parts)


def _play(
    episodes: Sequence[_Playing], decide: Decide, team: Team, training: bool, turns: int | None
) -> None:
    """Play episodes to their ends; all of them decide together."""
    for step in range(LONGEST):
        for episode in episodes:
            episode.check_limit(turns)
        active = [episode for episode in episodes if not episode.over]
        if not active:
            return
        situations = [episode.situation(turns, training) for episode in active]
        keys = [episode.key.child("decide", step) for episode in active]
        for episode, decision in zip(active, decide(situations, keys), strict=True):
            episode.follow(decision, team)
    raise UsageError(f"the policy has not ended an episode after {LONGEST} decisions")
