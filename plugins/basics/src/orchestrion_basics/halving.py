"""Successive halving over fixed sequences, with a fixed number of episodes.

Source: Karnin, Koren, Somekh 2013, "Almost optimal exploration in multi-armed bandits", algorithm
1 (sequential halving). The budget is split evenly over the rounds; each round gives every sequence
that is left as many episodes, and the worse half goes. Deviations:

* The arms are fixed sequences: every single choice, and others drawn at random.
* All rounds of a sequence count, not only the last, since episodes are dear.
* In a round all sequences meet the same problems with the same keys.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import islice
from math import ceil, log2
from typing import Annotated, ClassVar

from attrs import evolve, frozen

from orchestrion import (
    JSON,
    Activation,
    Branch,
    Episode,
    Key,
    Meta,
    Metrics,
    OpenContext,
    Plan,
    Problem,
    Session,
    Split,
    Trainer,
    choices,
)
from orchestrion_basics.policies import SequenceRunner
from orchestrion_basics.search import (
    OneIteration,
    advance,
    allowed,
    draw_problems,
    mean_reward,
)

FIRST = 2
"""Episodes of a sequence in the first round, at least."""


@frozen
class Halving(OneIteration):
    """Finds a good fixed sequence with a given number of episodes.

    Args:
        episodes: training episodes in all.
        length: longest sequence tried.
    """

    episodes: Annotated[int, Meta(ge=4)] = 256
    length: Annotated[int, Meta(ge=1)] = 4

    smoke: ClassVar[Mapping[str, JSON]] = {"episodes": 8}
    trains = ("halving", "sequence", SequenceRunner)

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[Trainer]:
        yield evolve(self, length=allowed(self.length, ctx))

    def plan(self, i: int, sizes: Mapping[Split, int]) -> Plan:
        """Return as many turns for each episode as the longest sequence has."""
        turns = self.episodes * self.length
        return Plan(turns=turns, verdicts=self.episodes, longest=self.length)

    async def iterate(self, i: int, session: Session) -> Metrics:
        """Halve until one sequence is left, and hand it to the policy `sequence`."""
        import asyncio

        self.check(session)
        rounds, arms = self._arms(session)
        played: dict[tuple[Activation, ...], list[Episode]] = {arm: [] for arm in arms}
        problems = iter(draw_problems(session, "halving", self.episodes))
        for _ in range(rounds):
            each = max(1, self.episodes // (rounds * len(arms)))
            met = list(islice(problems, each))
            jobs = [(arm, problem, key) for arm in arms for problem, key in met]
            # Episodes are numbered as they are finished: all together, in an order that the time
            # which agents take does not change.
            branches = await asyncio.gather(*(play(session, *job) for job in jobs))
            episodes = await asyncio.gather(*(session.finish(branch) for branch in branches))
            for (arm, _, _), episode in zip(jobs, episodes, strict=True):
                played[arm].append(episode)
            # sorted() is stable: equal rewards keep their order, shorter ones first.
            arms = sorted(arms, key=lambda arm: -mean_reward(played[arm]))[: ceil(len(arms) / 2)]
        session.policy.set_steps(arms[0])
        return {"reward": mean_reward(played[arms[0]]), "length": float(len(arms[0]))}

    def _arms(self, session: Session) -> tuple[int, list[tuple[Activation, ...]]]:
        """Return how many rounds there are, and the sequences of the first."""
        known = choices(session.roster)
        enders = {member.name for member in session.roster if member.ends}
        work = [choice for choice in known if choice.agent not in enders]
        arms: dict[tuple[Activation, ...], None] = {(choice,): None for choice in known}
        random = session.key.child("arms").random()
        limit = max(2, self.episodes // FIRST)
        while ceil(log2(limit)) * FIRST * limit > self.episodes and limit > 2:
            limit -= 1
        for _ in range(20 * limit):  # a small team has few sequences
            if len(arms) >= limit:
                break
            # Of any length; only the last step may be of an agent that ends episodes.
            before_last = random.randint(1, self.length) - 1
            steps = [random.choice(work or known) for _ in range(before_last)]
            arms.setdefault((*steps, random.choice(known)))
        chosen = list(arms)[:limit]
        return max(1, ceil(log2(len(chosen)))), chosen


async def play(session: Session, steps: Sequence[Activation], problem: Problem, key: Key) -> Branch:
    """Return where a fixed sequence leads; steps that the task does not allow are left out."""
    branch = session.begin(problem, key)
    for depth, step in enumerate(steps):
        branch = await advance(session, branch, step, key.child(depth))
    return branch
