"""The best fixed sequence, found by a beam search with common random numbers.

Every candidate meets the same problems with the same keys, so that two sequences differ by what
they do and not by luck (Kleinman et al. 1999). Forks share their prefix: a step costs one
activation per problem, however long the sequence is.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Annotated, ClassVar

from attrs import evolve, field, frozen

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
    Policy,
    Problem,
    Session,
    Split,
    Trainer,
    UsageError,
    choices,
    is_blocked,
    laps,
)
from orchestrion_basics.policies import SequenceRunner


class OneIteration(Trainer):
    """A trainer that is done after one iteration, and trains one kind of policy."""

    trains: ClassVar[tuple[str, str, type[Policy]]]
    """The names of the trainer and of the policy, and the policy's runtime."""

    @property
    def iterations(self) -> int:
        return 1

    def check(self, session: Session) -> None:
        """Raise `UsageError` for another policy."""
        trainer, name, policy = self.trains
        if not isinstance(session.policy, policy):
            raise UsageError(f"the trainer {trainer} trains the policy {name}")


def draw_problems(session: Session, purpose: str, count: int) -> list[tuple[Problem, Key]]:
    """Return `count` training problems with a key each, drawn with replacement after each lap."""
    problems = list(session.problems("train"))
    if not problems:
        raise UsageError("the task has no training problems")
    order = laps(len(problems), session.key, 0, count, purpose)
    return [(problems[index], session.key.child(purpose, i)) for i, index in enumerate(order)]


def allowed(length: int, ctx: OpenContext) -> int:
    """Return the length of the longest sequence that `limits.turns` allows, at most `length`."""
    return length if ctx.turns is None else min(length, ctx.turns)


def search_plan(length: int, beam: int, width: int, problems: int) -> Plan:
    """Return the bounds of a beam search with `width` choices at each step."""
    tried, kept = 0, 1
    for _ in range(length):
        tried += kept * width
        kept = min(beam, kept * width)
    return Plan(turns=tried * problems, verdicts=(tried + 1) * problems, longest=length)


def mean_reward(episodes: Sequence[Episode]) -> float:
    """Return the mean reward of the episodes that have one; -inf if none has."""
    rewards = [episode.reward.total for episode in episodes if episode.reward is not None]
    return sum(rewards) / len(rewards) if rewards else float("-inf")


@frozen
class BestSequence(OneIteration):
    """Finds the fixed sequence with the highest mean reward on training problems.

    Args:
        length: longest sequence tried.
        problems: how many training problems every candidate meets.
        beam: how many sequences are kept at each length.
        distinct: use at most so many different agents; 1 gives the single best agent, called
            again and again. Agents whose turn ends an episode do not count.
    """

    length: Annotated[int, Meta(ge=1)] = 10
    problems: Annotated[int, Meta(ge=1)] = 64
    beam: Annotated[int, Meta(ge=1)] = 8
    distinct: Annotated[int, Meta(ge=1)] | None = None

    smoke: ClassVar[Mapping[str, JSON]] = {"length": 3, "problems": 5, "beam": 2}
    trains = ("best-sequence", "sequence", SequenceRunner)

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[Trainer]:
        width, length = len(choices(ctx.roster)), allowed(self.length, ctx)
        yield _Searching(length, self.problems, self.beam, self.distinct, width=width)

    async def iterate(self, i: int, session: Session) -> Metrics:
        """Search, and hand the result to the policy `sequence`."""
        self.check(session)
        best = await self.search(session, session.problems("train"), session.key)
        session.policy.set_steps(best.steps)
        return {"reward": best.reward, "length": float(len(best.steps))}

    async def search(
        self,
        session: Session,
        problems: Sequence[Problem],
        key: Key,
        tried: dict[tuple[Activation, ...], float] | None = None,
    ) -> Candidate:
        """Return the best candidate of all lengths on some of these problems.

        `tried` gets the reward of every sequence that was tried.
        """
        import asyncio

        seen = {} if tried is None else tried

        start = await _valued(session, self._start(session, problems, key))
        best, beam = start, [start]
        seen[()] = start.reward
        options = choices(session.roster)
        for depth in range(self.length):
            grown = await asyncio.gather(
                *(
                    self._grow(session, candidate, option, depth)
                    for candidate in beam
                    for option in options
                    if not candidate.over and self._may_use(candidate, option)
                )
            )
            # Episodes are numbered as they are finished: all together, in an order that the time
            # which agents take does not change.
            grown = await asyncio.gather(*(_valued(session, candidate) for candidate in grown))
            # sorted() is stable: equal rewards keep roster order.
            ranked = sorted(grown, key=lambda candidate: -candidate.promise)
            seen.update((candidate.steps, candidate.reward) for candidate in ranked)
            beam = ranked[: self.beam]
            if not beam:
                break
            best = max([best, *ranked], key=lambda candidate: candidate.reward)
        return best

    def _start(self, session: Session, problems: Sequence[Problem], key: Key) -> Candidate:
        if not problems:
            raise UsageError("the task has no training problems")
        chosen = list(problems)
        key.child("problems").random().shuffle(chosen)
        del chosen[self.problems :]
        keys = [key.child("problem", n) for n in range(len(chosen))]
        branches = [session.begin(p, k) for p, k in zip(chosen, keys, strict=True)]
        return Candidate((), tuple(branches), tuple(keys))

    def _may_use(self, candidate: Candidate, option: Activation) -> bool:
        if self.distinct is None:
            return True
        agents = {step.agent for step in candidate.steps} | {option.agent}
        return len(agents) <= self.distinct

    async def _grow(
        self, session: Session, candidate: Candidate, option: Activation, depth: int
    ) -> Candidate:
        import asyncio

        pairs = zip(candidate.branches, candidate.keys, strict=True)
        branches = await asyncio.gather(
            *(advance(session, branch, option, key.child(depth)) for branch, key in pairs)
        )
        return Candidate((*candidate.steps, option), tuple(branches), candidate.keys)


@frozen
class _Searching(BestSequence):
    """The trainer with the number of things that the team can do."""

    width: int = field(kw_only=True)

    def plan(self, i: int, sizes: Mapping[Split, int]) -> Plan:
        """Return every sequence that can be tried, on every problem."""
        problems = min(self.problems, sizes["train"])
        return search_plan(self.length, self.beam, self.width, problems)


@frozen
class Candidate:
    """A sequence, where it stands on every problem, and what stopping now would pay.

    `promise` ranks unfinished sequences: the reward of stopping now plus what the verifier's
    partial scores say has been reached.
    """

    steps: tuple[Activation, ...]
    branches: tuple[Branch, ...]
    keys: tuple[Key, ...]
    reward: float = float("-inf")
    promise: float = float("-inf")

    @property
    def over(self) -> bool:
        """Return whether every episode has ended."""
        return all(map(ended, self.branches))


async def _valued(session: Session, candidate: Candidate) -> Candidate:
    import asyncio

    episodes = await asyncio.gather(*(session.finish(episode) for episode in candidate.branches))
    reward = mean_reward(episodes)
    reached = sum(episode.scores.value for episode in episodes if episode.scores is not None)
    promise = reward + 1e-3 * reached / len(episodes)
    return evolve(candidate, reward=reward, promise=promise)


async def advance(session: Session, branch: Branch, choice: Activation, key: Key) -> Branch:
    """Return the branch after a choice; as it is if it has ended or the task refuses the choice."""
    if ended(branch) or is_blocked(choice, branch.step.observation):
        return branch
    return await session.extend(branch, [choice], key)


def ended(branch: Branch) -> bool:
    """Return whether the task or an agent has ended the episode."""
    last = branch.trajectory.last
    return branch.step.done or (last is not None and last.output.final)
