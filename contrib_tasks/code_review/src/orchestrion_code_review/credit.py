"""The worth of a turn: run the episode again without it, and compare the scores.

For each turn of an episode the trainer forks before it, skips it, and runs the rest with the same
keys. The credit of the turn is the difference of the scores, which includes the cost of the turn. A
trajectory alone cannot show whether the next version needed what a reviewer said.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any

from attrs import frozen

from orchestrion import (
    Activation,
    Branch,
    Key,
    Meta,
    Metrics,
    Problem,
    Scores,
    Session,
    Situation,
    Trainer,
    UsageError,
    is_blocked,
    replace,
)


@frozen
class Credit:
    """The worth of one turn, in points from 0 to 10.

    Args:
        agent: whose turn it is.
        work: the points of quality that are lost without the turn.
        net: the points of the whole score, which includes the cost of the turn.
    """

    agent: str
    work: float
    net: float


@frozen
class _Move:
    """One decision of an episode: the branch before it, what it started, and the key."""

    before: Branch
    start: tuple[Activation, ...]
    key: Key


@frozen
class TurnCredit(Trainer):
    """Measures turns and changes nothing; put it after other stages.

    Each iteration runs some episodes with the current policy, and each of them again once for
    every turn. It reports `work/AGENT` and `net/AGENT`, means over the turns of an agent in points
    from 0 to 10 (see `Credit`), and the number of measured turns.

    Args:
        iterations: number of iterations.
        episodes: episodes of an iteration, each on another training problem.
        turns: the most turns of an episode.
    """

    iterations: Annotated[int, Meta(ge=1)] = 1
    episodes: Annotated[int, Meta(ge=1)] = 8
    turns: Annotated[int, Meta(ge=1)] = 8

    def check(self, session: Session) -> None:
        """Raise UsageError if the task has no training problems."""
        if not session.problems("train"):
            raise UsageError("trainer turn-credit: the task has no training problems")

    async def iterate(self, i: int, session: Session) -> Metrics:
        """Measure some episodes."""
        problems = list(session.problems("train"))
        session.key.child("problems").random().shuffle(problems)
        chosen = problems[: self.episodes]
        keys = [session.key.child("credit", n) for n in range(len(chosen))]
        pairs = zip(chosen, keys, strict=True)
        credits = await asyncio.gather(*(credits_of(session, p, k, self.turns) for p, k in pairs))
        return summary([credit for episode in credits for credit in episode])


async def credits_of(session: Session, problem: Problem, key: Key, turns: int) -> list[Credit]:
    """Run an episode with the session's policy, and return the credit of each turn.

    Args:
        session: of the trainer.
        problem: of the episode.
        key: of the episode.
        turns: the most turns.
    """
    moves, end = await _played(session, problem, key, turns)
    with_all = await session.score(end, final=True)
    places = [(m, a) for m, move in enumerate(moves) for a in range(len(move.start))]
    ends = await asyncio.gather(*(_without(session, moves, m, a) for m, a in places))
    without = await asyncio.gather(*(session.score(ending, final=True) for ending in ends))
    return [
        Credit(
            agent=moves[m].start[a].agent,
            work=_quality(with_all) - _quality(less),
            net=10 * (with_all.value - less.value),
        )
        for (m, a), less in zip(places, without, strict=True)
    ]


def _quality(scores: Scores) -> float:
    """Return the points of quality; for a task without this part, those of the value."""
    return scores.parts.get("quality", 10 * scores.value)


async def _played(
    session: Session, problem: Problem, key: Key, turns: int
) -> tuple[list[_Move], Branch]:
    branch = session.begin(problem, key)
    moves: list[_Move] = []
    while len(branch.trajectory) < turns and not _over(branch):
        n, left = len(moves), turns - len(branch.trajectory)
        situation = Situation(
            problem.public(), branch.trajectory, branch.step.observation, turns_left=left
        )
        [decision] = session.policy.decide([situation], [key.child("decide", n)])
        if decision.stop or not decision.start:
            break
        # An index stays the same when a turn before it is left out: keys depend on it.
        first = len(branch.trajectory)
        start = tuple(replace(a, index=first + j) for j, a in enumerate(decision.start[:left]))
        moves.append(_Move(branch, start, key.child("move", n)))
        branch = await session.extend(branch, start, moves[-1].key)
    return moves, branch


async def _without(session: Session, moves: Sequence[_Move], at: int, which: int) -> Branch:
    """Return the end of the episode without one activation of one move."""
    branch = moves[at].before
    for n, move in enumerate(moves[at:], start=at):
        left_out = which if n == at else None
        start = [
            activation
            for j, activation in enumerate(move.start)
            if j != left_out and not is_blocked(activation, branch.step.observation)
        ]
        if start and not _over(branch):
            branch = await session.extend(branch, start, move.key)
    return branch


def _over(branch: Branch) -> bool:
    last: Any = branch.trajectory.last
    return branch.step.done or (last is not None and last.output.final)


def summary(credits: Sequence[Credit]) -> dict[str, float]:
    """Return the mean credits by agent, and the number of turns."""
    metrics = {"measured_turns": float(len(credits))}
    for agent in sorted({credit.agent for credit in credits}):
        mine = [credit for credit in credits if credit.agent == agent]
        metrics[f"work/{agent}"] = sum(credit.work for credit in mine) / len(mine)
        metrics[f"net/{agent}"] = sum(credit.net for credit in mine) / len(mine)
    return metrics
