"""A tiny team, and situations and episodes of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from attrs import frozen
from orchestrion_encoders.counts import Counts
from orchestrion_encoders.hints import Hints
from orchestrion_values.arrays import Mask
from orchestrion_values.policy import ValuePolicy

from orchestrion import (
    Activation,
    Decision,
    Episode,
    Key,
    Member,
    Observation,
    OpenContext,
    Output,
    Problem,
    Reward,
    Saved,
    Situation,
    Trajectory,
    Turn,
)

ROSTER = (Member("a"), Member("b", ("x", "y")), Member("c"))


def policy(*, stop: bool = True, roster: tuple[Member, ...] = ROSTER) -> ValuePolicy:
    """A policy for the team, untrained."""
    return ValuePolicy([Counts(), Hints()], OpenContext("policy", Key(1), roster), stop=stop)


def trajectory(*acted: str) -> Trajectory:
    """Turns of "agent" or "agent:option"."""
    turns = []
    for i, name in enumerate(acted):
        agent, _, option = name.partition(":")
        turns.append(Turn(i, agent, option or None, Output(f"by {agent}"), decision=i))
    return Trajectory(turns)


def situation(
    *acted: str,
    features: Sequence[float] = (),
    blocked: Sequence[str] = (),
    category: str = "",
    **shown: Any,
) -> Situation:
    """What a policy decides on after these turns."""
    seen = Observation(features=tuple(features), blocked=frozenset(blocked), **shown)
    problem = Problem("p", "two words", category=category)
    return Situation(problem, trajectory(*acted), seen, training=True)


def episode(
    runtime: ValuePolicy, acted: Sequence[str], total: float, turns: Sequence[float] | None = None
) -> Episode:
    """A finished episode whose decisions `runtime` recorded."""
    decisions = []
    for i, name in enumerate(acted):
        place = runtime.names.index(name)
        shown = situation(*acted[:i])
        decisions.append(runtime.take(place, shown, runtime.allowed([shown])[0], 0.5))
    called = [name for name in acted if name != "stop"]
    reward = Reward(total, None if turns is None else tuple(turns))
    return Episode("e", Problem("p"), trajectory(*called), tuple(decisions), reward=reward)


def names(decisions: Sequence[Decision]) -> list[str]:
    """What was decided, as text."""
    return ["stop" if d.stop else _name(d.start[0]) for d in decisions]


def _name(choice: Activation) -> str:
    return choice.agent if choice.option is None else f"{choice.agent}:{choice.option}"


@frozen(eq=False)
class Fixed:
    """A model whose scores are the same everywhere."""

    row: tuple[float, ...]
    name = "fixed"

    def scores(self, situations: Sequence[Situation], allowed: Mask) -> Any:
        return np.array([self.row] * len(situations))

    def save(self) -> Saved:
        return Saved(data=list(self.row))
