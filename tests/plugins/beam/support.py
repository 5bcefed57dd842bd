"""A ladder to climb: a task whose partial scores are true, and climbers of known skill.

A problem has `rungs`; a turn gives the next one a digit, right or wrong for good. The score is the
share of right digits, so it is known at any time what a trajectory is worth.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attrs import define, field, frozen
from orchestrion_beam.trainer import BeamTrainer, GrpoBeam

from orchestrion import (
    Agent,
    Calls,
    Episode,
    Key,
    Observation,
    OpenContext,
    Output,
    Policy,
    Problem,
    Reward,
    RewardFunction,
    Scores,
    Split,
    Step,
    Task,
    Trajectory,
    Turn,
    Usage,
    View,
)
from orchestrion._engine.calls import CallPath
from orchestrion._session import EngineSession
from orchestrion.testing import Fixed, engine_for

BASE = 10


def right(problem: Problem, rung: int) -> int:
    """The digit that belongs on a rung; public, as agents of known skill need it."""
    return int(Key(problem.data).child(rung).uniform() * BASE)


@frozen
class Ladder(Task):
    """Problems of `rungs` digits each.

    Args:
        rungs: turns until it is done.
        count: problems of each split.
        bounds: whether partial scores say what can still be reached.
    """

    rungs: int = 6
    count: int = 8
    bounds: bool = False

    def problems(self, split: Split) -> Sequence[Problem]:
        """Every split has its own digits."""
        first = 1000 * ["train", "validation", "test"].index(split)
        return [Problem(f"{split}-{n}", f"ladder {n}", first + n) for n in range(self.count)]

    def start(self, problem: Problem, key: Key) -> Step:
        """No digit yet."""
        return self._shown(())

    def step(self, state: tuple[int, ...], turn: Turn, key: Key) -> Step:
        """One digit more, if the turn has one."""
        digit = turn.output.content
        return self._shown((*state, int(digit)) if digit.isdigit() else state)

    def _shown(self, state: tuple[int, ...]) -> Step:
        seen = Observation(f"{len(state)} rungs", features=(len(state) / self.rungs,))
        return Step(state, seen, len(state) >= self.rungs)

    async def verify(
        self, problem: Problem, trajectory: Trajectory, state: Any, *, final: bool, calls: Calls
    ) -> Scores:
        """The share of right digits."""
        good = sum(digit == right(problem, n) for n, digit in enumerate(state))
        value = good / self.rungs
        reachable = (good + self.rungs - len(state)) / self.rungs
        return Scores(value, good == self.rungs, {"bound": reachable} if self.bounds else {})


@define
class Climber(Agent):
    """Writes the next digit, right with the probability `skill`.

    Args:
        skill: how often it is right.
        delay: seconds that one turn takes.
        fails: the share of turns that fail.
    """

    skill: float = 0.6
    delay: Callable[[], float] | None = None
    fails: float = 0.0
    options: Sequence[str] = ()
    now: int = 0
    most: int = 0
    acts: int = 0

    async def act(self, view: View, key: Key, calls: Calls) -> Output:
        """A digit, drawn from the key alone."""
        self.acts += 1
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            if self.delay is not None:
                await asyncio.sleep(self.delay())
        finally:
            self.now -= 1
        luck, other, fault = key.uniforms(3)
        if fault < self.fails:
            raise RuntimeError("slipped")
        rung = sum(turn.output.content.isdigit() for turn in view.turns)
        digit = right(view.problem, rung)
        if luck >= self.skill:
            digit = (digit + 1 + int(other * (BASE - 1))) % BASE
        return Output(str(digit), usage=Usage(calls=1, cost=1.0))


@frozen
class Value(RewardFunction):
    """The verifier's score."""

    async def score(self, episode: Episode, calls: Calls) -> Reward | None:
        """Missing without scores."""
        return None if episode.scores is None else Reward(episode.scores.value)


def session_for(
    agents: Mapping[str, Agent],
    task: Task,
    policy: Policy | None = None,
    reward: RewardFunction | None = None,
    seed: int = 1,
    calls: CallPath | None = None,
    test: bool = False,
) -> EngineSession:
    """A session over a team put together by hand; the policy asks the first agent 100 times."""
    policy = policy or Fixed([next(iter(agents))] * 100)
    engine = engine_for(agents, policy, task, reward or Value(), calls=calls)
    return EngineSession(engine, "0/0", Key(seed), Key(seed).child("evaluate"), test=test)


async def opened(settings: GrpoBeam, **context: Any) -> BeamTrainer:
    """The trainer at work; nothing of it has to be closed."""
    ctx = OpenContext("trainer", Key(7), **context)
    async with settings.open(ctx) as trainer:
        assert isinstance(trainer, BeamTrainer)
        return trainer


@define
class Delays:
    """Other latencies every time: nothing may depend on them."""

    seed: int
    _draws: Any = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._draws = Key(self.seed).random()

    def __call__(self) -> float:
        """Up to 4 ms."""
        return float(self._draws.random() * 0.004)
