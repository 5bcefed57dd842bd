"""Teams whose roles are functions, playing the test problems of a task."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from attrs import frozen
from orchestrion_basics.follow import Follow

from orchestrion import (
    Agent,
    Calls,
    Episode,
    Key,
    Member,
    OpenContext,
    Output,
    Task,
    View,
)
from orchestrion.testing import engine_for

Say = Callable[[View], Any]
ROLES = ("verifier", "searcher", "answerer")
TEAM = tuple(Member(role) for role in ROLES)


@frozen
class Player(Agent):
    """Says what a function makes of what it reads."""

    say: Say

    async def act(self, view: View, key: Key, calls: Calls) -> Output:
        said = self.say(view)
        return said if isinstance(said, Output) else Output(str(said), {"value": said})


async def played(task: Task, verifier: Say, searcher: Say, answerer: Say) -> list[Episode]:
    """The episodes of a team; the verifier begins, and each says who is next."""
    agents = dict(zip(ROLES, map(Player, (verifier, searcher, answerer)), strict=True))
    ctx = OpenContext("policy", Key(0), TEAM)
    async with Follow("verifier").open(ctx) as policy:
        engine = engine_for(agents, policy, task)
        return [
            await engine.run(one.id, one, Key(0).child(one.id)) for one in task.problems("test")
        ]


def share(episodes: list[Episode]) -> float:
    """How many succeeded."""
    return sum(one.success for one in episodes) / len(episodes)
