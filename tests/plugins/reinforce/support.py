"""A tiny team, a tiny task and a tiny session to try the policy and the trainer with."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from attrs import evolve
from orchestrion_reinforce.neural import Neural
from orchestrion_reinforce.neural_policy import NeuralPolicy
from orchestrion_reinforce.ppo import Learner
from orchestrion_reinforce.reinforce import Reinforce

from orchestrion import (
    Decision,
    Episode,
    Job,
    Key,
    Member,
    Observation,
    OpenContext,
    Output,
    Problem,
    Reward,
    Situation,
    Split,
    Status,
    Trajectory,
    Turn,
    Usage,
)

ROSTER = (Member("a", role="adds"), Member("b", ("x", "y")), Member("c", role="checks"))


def policy(
    settings: Neural | None = None, roster: tuple[Member, ...] = ROSTER, seed: int = 1
) -> NeuralPolicy:
    """A policy for a team, not used yet, with its encoders open."""
    settings, ctx = settings or Neural(), OpenContext("policy", Key(seed), roster)
    encoders = [opened(e, ctx) if hasattr(e, "open") else e for e in settings.encoders]
    runtime: NeuralPolicy = opened(evolve(settings, encoders=encoders), ctx)
    return runtime


def opened(component: Any, ctx: OpenContext) -> Any:
    """The runtime of a component."""

    async def enter() -> Any:
        async with component.open(ctx) as runtime:
            return runtime

    return asyncio.run(enter())


def weights(runtime: NeuralPolicy) -> torch.Tensor:
    """All weights of a policy that has decided before, as a copy."""
    assert runtime.network is not None
    return torch.nn.utils.parameters_to_vector(runtime.network.parameters()).detach().clone()


def shake(runtime: NeuralPolicy, scale: float = 0.4) -> None:
    """Give a policy large random weights: its distributions are far from uniform."""
    assert runtime.network is not None
    flat = weights(runtime)
    noise = torch.randn(len(flat), generator=torch.Generator().manual_seed(4))
    torch.nn.utils.vector_to_parameters(flat + scale * noise, runtime.network.parameters())
    runtime.changed()


def learner(settings: Reinforce | None = None, seed: int = 2) -> Learner:
    """A trainer at work."""
    return Learner(settings or Reinforce(), OpenContext("trainer", Key(seed)))


class TinySession:
    """Plays `world` until the policy stops or `turns` are up; a session as far as trainers go.

    `world` maps (problem, agents so far) to features; `pay` maps the same to the outcome at the
    end. Every turn costs `cost`.
    """

    def __init__(
        self,
        runtime: Any,
        world: Callable[[Problem, Sequence[str]], Sequence[float]],
        pay: Callable[[Problem, Sequence[str]], float],
        key: Key,
        problems: Sequence[Problem] = (Problem("0"), Problem("1")),
        turns: int = 4,
        cost: float = 0.05,
    ) -> None:
        self.policy, self.world, self.pay, self.key = runtime, world, pay, key
        self._problems, self._turns, self._cost, self.roster = problems, turns, cost, ROSTER

    def problems(self, split: Split = "train") -> Sequence[Problem]:
        """The same for every split."""
        return self._problems

    async def rollout(self, jobs: Sequence[Job]) -> list[Episode]:
        """All jobs in lock-step."""
        paths: dict[int, tuple[Trajectory, list[Decision]]] = {
            i: (Trajectory(), []) for i in range(len(jobs))
        }
        running = list(paths)
        while running:
            seen = [self._situation(jobs[i].problem, paths[i][0]) for i in running]
            keys = [jobs[i].key.child("decide", len(paths[i][1])) for i in running]
            still = []
            for i, decision in zip(running, self.policy.decide(seen, keys), strict=True):
                path, decisions = paths[i]
                decisions.append(decision)
                if decision.stop:
                    continue
                agent, option = decision.start[0].agent, decision.start[0].option
                output = Output(usage=Usage(cost=self._cost))
                turn = Turn(len(path), agent, option, output, decision=len(decisions) - 1)
                paths[i] = (path.append(turn), decisions)
                if len(paths[i][0]) < self._turns and agent != "c":
                    still.append(i)
            running = still
        return [self._judge(job, *paths[i]) for i, job in enumerate(jobs)]

    def _situation(self, problem: Problem, path: Trajectory) -> Situation:
        acted = [turn.agent for turn in path.turns]
        features = tuple(map(float, self.world(problem, acted)))
        return Situation(problem, path, Observation(features=features), training=True)

    def _judge(self, job: Job, path: Trajectory, decisions: Sequence[Decision]) -> Episode:
        acted = [turn.agent for turn in path.turns]
        costs = tuple(-turn.usage.cost for turn in path.turns)
        reward = Reward(self.pay(job.problem, acted) + sum(costs), costs)
        return Episode(
            job.key.hex(), job.problem, path, tuple(decisions), Status.COMPLETED, reward=reward
        )


def train(
    settings: Reinforce,
    runtime: Any,
    session: Callable[[Any, Key], TinySession],
    seed: int = 0,
    start: int = 0,
    stop: int | None = None,
    trainer: Learner | None = None,
) -> tuple[Learner, list[Mapping[str, float]]]:
    """Some iterations of a training."""
    trainer = trainer or learner(settings, seed + 100)
    metrics = []
    for i in range(start, settings.iterations if stop is None else stop):
        played = session(runtime, Key(seed).child("train", i))
        metrics.append(asyncio.run(trainer.iterate(i, played)))  # type: ignore[arg-type]
    return trainer, metrics
