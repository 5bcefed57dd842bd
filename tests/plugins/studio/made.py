"""Runs that tests look at: written through the store, with whatever texts they are given."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from orchestrion import (
    Activation,
    Decision,
    Episode,
    Output,
    Problem,
    Reward,
    Scores,
    Trajectory,
    Turn,
    Usage,
)
from orchestrion.runs import RunStore

HOSTILE = (
    "</script><script>alert(1)</script>\"'><img src=x onerror=alert(2)>\N{RIGHT-TO-LEFT OVERRIDE}"
)

CONFIG = """\
seed: 1
task: {{use: repair}}
budget: {{calls: 100, tokens: null, usd: 2.5, minutes: null}}
evaluation: {{split: test, seeds: 1}}
trainer: {{use: reinforce, note: {note}}}
"""


def episode(
    name: str,
    agents: Sequence[str],
    reward: float,
    said: str = "done",
    problem: Problem | None = None,
) -> Episode:
    """Return a solved episode in which the agents have their turns one after another."""
    turns = [
        Turn(place, agent, output=Output(said, usage=Usage(1, 10, 5, 0.001, 2.0)), decision=place)
        for place, agent in enumerate(agents)
    ]
    return Episode(
        name,
        problem or Problem(f"problem of {name}", "do it"),
        Trajectory(turns),
        tuple(Decision((Activation(agent),), logp=-0.5) for agent in agents),
        scores=Scores(1.0, True, {"tests": 1.0}),
        reward=Reward(reward),
    )


def outcomes(solved: float, reward: float) -> dict[str, Any]:
    """Return a contender's stored results on eight problems."""
    row = {"cost": 2.0, "turns": 2.0, "missing": 0.0, "limit": 0.0, "failed": 0.0, "usd": 0.0}
    return {
        "outcomes": {
            f"p{i}": {**row, "solved": solved, "reward": reward + i / 100, "tokens": 0, "calls": 0}
            for i in range(8)
        },
        "kinds": {},
        "trained_on": 8,
        "state": None,
    }


def make_run(
    directory: Path,
    *,
    iterations: int = 4,
    agents: Sequence[str] = ("writer", "critic"),
    text: str = "plain",
    status: Any = "completed",
) -> Path:
    """Write a run whose texts, names of agents and notes hold `text`; returns its folder."""
    directory.parent.mkdir(parents=True, exist_ok=True)
    store = RunStore.create(directory, CONFIG.format(note=json.dumps(text)), {"seed": 1})
    try:
        store.plan(0, 2 * iterations)
        for number in range(iterations):
            episodes = [episode(f"0/{number}/{i}", agents, number / 10, text) for i in range(2)]
            metrics = {"entropy": 1.0 / (number + 1), "cost": 2.0, "episodes": 2.0, text: 1.0}
            store.commit_iteration(0, number, episodes, metrics, seconds=0.5)
        store.save_evaluation("learned", outcomes(1.0, 0.8))
        store.save_evaluation(f"random {text}", outcomes(0.5, 0.2))
        store.record_event("resumed", text)
        store.note("agents.writer", "model", text)
        store.set_status(status, text, seconds=1.0)
    finally:
        store.close()
    return directory
