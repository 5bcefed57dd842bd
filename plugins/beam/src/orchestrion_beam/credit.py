"""What a turn was worth: the score that is lost when it is left out.

    credit_t = score(trajectory) - score(trajectory without turn t)

The fork before turn t goes on with the turns after it: the same activations, under the same keys.
Agents that draw by their key alone then say what they said, unless they read turn t. What was
started together is left out together, and shares the credit. Scores are the verifier's, so costs
of turns have no part in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from orchestrion import Activation, Branch, Key, Session, replace
from orchestrion_beam.nodes import Node, new_turns
from orchestrion_beam.search import Flight
from orchestrion_beam.together import together

__all__ = ["counterfactual"]


async def counterfactual(
    session: Session, node: Node, score: float, key: Key, flight: Flight
) -> tuple[tuple[float, ...], int]:
    """Credits of a trajectory's turns, in the order of its turns, and how many turns that took.

    Args:
        session: extends and scores.
        node: the trajectory's end.
        score: what the verifier says of it.
        key: of the search that found it.
        flight: counts what runs.
    """
    lineage = node.lineage()
    without = await together(
        _without(session, lineage, t, key, flight) for t in range(len(lineage))
    )
    credits: dict[int, float] = {}
    for (other, _), step in zip(without, lineage, strict=True):
        for turn in step.turns:
            credits[turn.index] = (score - other) / len(step.turns)
    spent = sum(turns for _, turns in without)
    return tuple(credits[turn.index] for turn in node.branch.trajectory.turns), spent


async def _without(
    session: Session, lineage: Sequence[Node], left_out: int, key: Key, flight: Flight
) -> tuple[float, int]:
    """The score of what becomes of a trajectory without one of its steps, and the turns run."""
    before = lineage[left_out].parent
    assert before is not None
    branch = before.branch
    moved = {turn.index: turn.index for turn in branch.trajectory.turns}
    spent = 0
    for step in lineage[left_out + 1 :]:
        if branch.step.done:
            break
        start = tuple(_moved(one, moved) for one in step.start)
        so_far = len(branch.trajectory)
        branch = await flight.extend(session, branch, start, key.child("extend", *step.path))
        turns = new_turns(branch.trajectory, so_far)
        moved |= {old.index: new.index for old, new in zip(step.turns, turns, strict=True)}
        spent += len(turns)
        if any(turn.output.final for turn in turns):
            break
    return await _score(session, branch), spent


def _moved(activation: Activation, moved: Mapping[int, int]) -> Activation:
    """The activation, reading the same turns where they stand now."""
    if activation.reads is None:
        return activation
    return replace(activation, reads=tuple(moved[i] for i in activation.reads if i in moved))


async def _score(session: Session, branch: Branch) -> float:
    return (await session.score(branch, final=True)).value
