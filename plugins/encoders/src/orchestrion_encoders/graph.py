"""The encoder `graph`: who has read whom so far, in a few numbers."""

from __future__ import annotations

from collections.abc import Sequence
from math import log1p
from typing import ClassVar

from attrs import frozen

from orchestrion import Situation, Trajectory
from orchestrion_encoders.interfaces import Choice, Encoded, Encoder

WIDTH = 12


@frozen
class Graph(Encoder):
    """Shows the shape of the activation graph so far, whoever its agents are.

    Turns are nodes; an edge leads from each completed turn to each turn that could read it. The
    numbers are log(1 + .) of: turns, failed turns, distinct agents, edges, depth (turns on the
    longest way of readings), greatest and mean number of turns read by one, turns that nobody
    has read, turns that the last decision started, agents that acted again right after
    themselves, activations still in flight; and the share of agents of the team that have acted.
    """

    observes: ClassVar[bool] = False

    def encode(self, situations: Sequence[Situation], choices: Sequence[Choice]) -> Encoded:
        """Return context alone [n, 12]."""
        import numpy as np

        team = len({choice.agent for choice in choices if choice is not None})
        rows = [
            _shape(situation.trajectory, len(situation.running), team) for situation in situations
        ]
        context = np.array(rows, np.float64).reshape(len(rows), WIDTH)
        return Encoded(context, np.zeros((len(rows), len(choices), 0)))


def _shape(trajectory: Trajectory, running: int, team: int) -> list[float]:
    depths: dict[int, int] = {}
    read: set[int] = set()
    fans: list[int] = []
    failed = again = 0
    before = None
    turns = trajectory.turns
    for turn in turns:
        reads = turn.reads
        if reads is None:  # all that was there when its decision was taken
            reads = tuple(other.index for other in turns if other.decision < turn.decision)
        visible = [index for index in reads if index in depths]
        fans.append(len(visible))
        read.update(visible)
        if turn.status == "completed":
            depths[turn.index] = 1 + max((depths[index] for index in visible), default=0)
        else:
            failed += 1
        again += turn.agent == before
        before = turn.agent
    last = sum(1 for turn in turns if turn.decision == turns[-1].decision)
    agents = len({turn.agent for turn in turns})
    numbers = (
        len(turns),
        failed,
        agents,
        sum(fans),
        max(depths.values(), default=0),
        max(fans, default=0),
        sum(fans) / len(fans) if fans else 0.0,
        len(depths.keys() - read),
        last,
        again,
        running,
    )
    return [*map(log1p, numbers), agents / max(1, team)]
