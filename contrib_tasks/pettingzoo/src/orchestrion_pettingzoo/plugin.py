"""What this distribution supplies."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrion import Component, hookimpl

HERE = "orchestrion_pettingzoo"
_GAME = {
    "environment": "classic/rps-v2",
    "api": "parallel",
    "kwargs": {"max_cycles": 3},
    "returns": {"worst": -3, "best": 3},
    "players": {"player_0": "a", "player_1": ["b"]},
    "scored": ["player_0"],
    "episodes": {"train": 4, "validation": 2, "test": 2},
}


@hookimpl
def orchestrion_tasks() -> Iterator[Component]:
    yield Component(
        "pettingzoo",
        f"{HERE}.task:PettingZoo",
        "a game of PettingZoo, whose players are played by agents",
        example=_GAME,
    )


@hookimpl
def orchestrion_policies() -> Iterator[Component]:
    yield Component(
        "players",
        f"{HERE}.policy:Players",
        "everybody whom the game lets act, all at once",
        around={
            "task": {"use": "pettingzoo", **_GAME},
            "agents": {"a": {"use": "gym-random"}, "b": {"use": "gym-random"}},
        },
    )
