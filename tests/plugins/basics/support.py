"""What the tests of policies and rules share: opened policies, and trainings on a task."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest
from orchestrion_basics.rewards import OutcomeMinusCost

from orchestrion import (
    Agent,
    Calls,
    Key,
    Member,
    OpenContext,
    Output,
    Policy,
    RewardFunction,
    Task,
    Usage,
    UsageError,
    View,
)
from orchestrion._config.sections import Limits
from orchestrion._session import EngineSession
from orchestrion.testing import ListTask, ScriptedAgent, engine_for

TEAM = tuple(Member(name) for name in "abc")


class Costs(Agent):
    """Says nothing, for a price of 1."""

    async def act(self, view: View, key: Key, calls: Calls) -> Output:
        return Output(usage=Usage(cost=1.0))


def opened(policy: Any, roster: tuple[Member, ...] = TEAM) -> Any:
    """A policy's runtime for a team."""

    async def enter() -> Any:
        manager: AbstractAsyncContextManager[Policy] = policy.open(
            OpenContext("policy", Key(1), roster)
        )
        async with manager as runtime:
            return runtime

    return asyncio.run(enter())


class Dawdles(Agent):
    """Says how much it was shown; takes its time, differently with another key."""

    def __init__(self, times: Key) -> None:
        self.times = times

    async def act(self, view: View, key: Key, calls: Calls) -> Output:
        for _ in range(int(20 * self.times.child(key.hex()).uniform())):
            await asyncio.sleep(0)
        return Output(str(len(view.turns)), usage=Usage(cost=1.0))


def trained(policy: Any, trainer: Any, task: Task, **more: Any) -> tuple[Any, int]:
    """The policy's runtime after training with the agents a, b and c, and the episodes it took."""
    runtime, session = session_of(policy, trainer, task, Costs(), **more)
    return runtime, session.trained_on


def session_of(
    policy: Any,
    trainer: Any,
    task: Task,
    agent: Agent,
    turns: int = 5,
    reward: RewardFunction | None = None,
) -> tuple[Any, EngineSession]:
    """The policy's runtime after training with three such agents, and the session."""
    runtime = opened(policy)
    agents = {member.name: agent for member in TEAM}
    engine = engine_for(
        agents, runtime, task, reward or OutcomeMinusCost(0.05), Limits(turns=turns)
    )
    session = EngineSession(engine, "0/0", Key(1), Key(2))
    asyncio.run(trainer.iterate(0, session))
    return runtime, session


def refuses(trainer: Any, other: Any, policy: str) -> None:
    """Check that a trainer names the policy that it needs."""
    engine = engine_for({"a": ScriptedAgent()}, opened(other, TEAM[:1]), ListTask())
    session = EngineSession(engine, "0/0", Key(1), Key(2))
    with pytest.raises(UsageError, match=f"trains the policy {policy}"):
        asyncio.run(trainer.iterate(0, session))
