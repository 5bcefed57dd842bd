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
    choice_name,
)
from orchestrion.config import Config, from_data
from orchestrion.runs import Progress

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
    training: bool = True,
    **shown: Any,
) -> Situation:
    """What a policy decides on after these turns."""
    seen = Observation(features=tuple(features), blocked=frozenset(blocked), **shown)
    problem = Problem("p", "two words", category=category)
    return Situation(problem, trajectory(*acted), seen, training=training)


def episode(
    runtime: ValuePolicy,
    acted: Sequence[str],
    total: float,
    turns: Sequence[float] | None = None,
    features: Sequence[float] = (),
) -> Episode:
    """A finished episode whose decisions `runtime` recorded."""
    decisions = []
    for i, name in enumerate(acted):
        place = runtime.names.index(name)
        shown = situation(*acted[:i], features=features)
        decisions.append(runtime.take(place, shown, runtime.allowed([shown])[0], 0.5))
    called = [name for name in acted if name != "stop"]
    reward = Reward(total, None if turns is None else tuple(turns))
    return Episode("e", Problem("p"), trajectory(*called), tuple(decisions), reward=reward)


def names(decisions: Sequence[Decision]) -> list[str]:
    """What was decided, as text."""
    return ["stop" if d.stop else choice_name(d.start[0]) for d in decisions]


TEAM = ("planner", "searcher", "coder_s", "tester", "stop")


def relay(trainer: dict[str, Any], team: Sequence[str] = TEAM, **other: Any) -> Config:
    """A run of the policy on a small Relay."""
    return from_data(
        {
            "seed": 3,
            "task": {"use": "relay", "partial": 0.3, "train": 8, "test": 2},
            "agents": {name: {"use": "bench-agent"} for name in team},
            "policy": {"use": "values"},
            "reward": {"use": "outcome-minus-cost", "cost_weight": 1.0},
            "trainer": trainer,
            "limits": {"turns": 6},
        }
        | other
    )


class Notes(Progress):
    """What trainers noted, by the name of the note; the last one of a name counts."""

    def __init__(self) -> None:
        self.told: dict[str, str] = {}

    def noted(self, path: str, name: str, text: str) -> None:
        self.told[name] = text


@frozen(eq=False)
class Fixed:
    """A model whose scores are the same everywhere."""

    row: tuple[float, ...]
    name = "fixed"

    def scores(self, situations: Sequence[Situation], allowed: Mask) -> Any:
        return np.array([self.row] * len(situations))

    def save(self) -> Saved:
        return Saved(data=list(self.row))
