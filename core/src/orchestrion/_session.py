"""Give a trainer what it works with: episodes on demand, evaluation, forks, overlays."""

from __future__ import annotations

import asyncio
import gc
from bisect import insort
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from copy import copy
from itertools import islice
from typing import Any, TypeVar

from orchestrion._engine.calls import ActivationCalls, RunEpisode
from orchestrion._engine.checks import why_empty
from orchestrion._engine.episode import Engine, computed
from orchestrion._errors import UsageError
from orchestrion._interfaces import Branch, Calls, Job, Member, Policy
from orchestrion._interfaces import Session as SessionProtocol
from orchestrion._keys import Key
from orchestrion._readonly import read_only
from orchestrion._records import (
    JSON,
    Activation,
    Episode,
    Problem,
    Scores,
    Split,
    Status,
    Trajectory,
)
from orchestrion._statistics import mean

_GC_THRESHOLDS = (50_000, 20, 100)
_OBJECTS = 100
"""That an episode holds at a time, about."""

T = TypeVar("T")

Build = Callable[[Mapping[str, JSON]], AbstractAsyncContextManager[Engine]]


class EngineSession:
    """The `Session` of one iteration, or of an evaluation.

    `name` is the prefix of episode ids, unique in the run, e.g. "0/12"; `evaluation_key` is that of
    all evaluations in the run, so that they can be compared; `test` says whether the test split may
    be seen, and `collect` whether training episodes are kept, which are counted in any case;
    `on_training` is called after each.
    """

    def __init__(
        self,
        engine: Engine,
        name: str,
        key: Key,
        evaluation_key: Key,
        concurrency: int = 64,
        test: bool = False,
        build: Build | None = None,
        collect: bool = True,
        on_training: Callable[[], None] | None = None,
    ) -> None:
        self.engine, self.name, self.key = engine, name, key
        self.policy: Any = engine.team.policy
        self.roster: tuple[Member, ...] = engine.team.roster
        self.episodes: list[Episode] = []
        """Training episodes of this iteration, in the order of their jobs."""
        self.evaluations: list[Episode] = []
        self.judged: list[Problem] = []
        """The problems of the last evaluation, with their hidden parts."""
        self.adopted: dict[str, JSON] = {}
        self._evaluation_key, self._concurrency = evaluation_key, concurrency
        self._test, self._build, self._collect = test, build, collect
        self._on_training = on_training
        self._count = 0
        self.trained_on = 0
        """How many training episodes were run."""

    @property
    def begun(self) -> bool:
        """Whether an episode was begun, or an evaluation."""
        return self._count > 0

    def problems(self, split: Split = "train") -> Sequence[Problem]:
        if split == "test" and not self._test:
            raise UsageError("the test split is out of reach while training")
        problems = self.engine.team.task.problems(split)
        maximum = self.engine.problems
        if maximum is not None and len(problems) > maximum:
            return list(islice(problems, maximum))
        # A copy: a trainer may shuffle it, and the task's own list is shared.
        return problems.copy() if isinstance(problems, list) else problems

    async def rollout(self, jobs: Sequence[Job]) -> list[Episode]:
        first, self._count = self._count, self._count + len(jobs)
        names = [f"{self.name}/{first + i}" for i in range(len(jobs))]
        episodes = await self._run_all(names, jobs, self._count_trained)
        if self._collect:
            self.episodes.extend(episodes)
        return episodes

    async def evaluate(
        self, split: Split = "validation", policy: Policy | None = None, limit: int | None = None
    ) -> list[Episode]:
        self._count += 1
        label = f"{self.name}/evaluate-{self._count}"
        return await self.evaluate_as(label, split, policy, limit)

    async def evaluate_as(
        self,
        label: str,
        split: Split,
        policy: Policy | None = None,
        limit: int | None = None,
        seeds: int = 1,
    ) -> list[Episode]:
        """Run each problem of a split `seeds` times; episode ids start with `label`."""
        base = self._evaluation_key.child(split)
        self.judged = problems = list(self.problems(split))[:limit]
        cases = [(problem, n) for problem in problems for n in range(seeds)]
        jobs = [
            Job(problem, base.child(problem.id, n), policy, training=False) for problem, n in cases
        ]
        names = [f"{label}/{problem.id}/{n}" for problem, n in cases]
        episodes = await self._run_all(names, jobs)
        self.evaluations.extend(episodes)
        return episodes

    def _count_trained(self) -> None:
        self.trained_on += 1
        if self._on_training is not None:
            self._on_training()

    async def _run_all(
        self, names: Sequence[str], jobs: Sequence[Job], done: Callable[[], None] | None = None
    ) -> list[Episode]:
        results: list[Episode | None] = [None] * len(jobs)
        waiting = iter(range(len(jobs)))

        async def work(run: RunEpisode) -> None:
            for i in waiting:
                job = jobs[i]
                self.engine.calls.budget.check()
                results[i] = await run(names[i], job.problem, job.key, job.policy, job.training)
                if done is not None:
                    done()

        if not jobs:
            return []
        workers = min(self._concurrency, len(jobs))
        # Before the first episode starts: otherwise agents that never wait would run one episode
        # after another, and no two decisions would be taken in one batch.
        self.engine.active += workers - 1
        try:
            with fewer_collections(workers):
                async with self.engine.runner() as run, asyncio.TaskGroup() as group:
                    for _ in range(workers):
                        group.create_task(work(run))
        except BaseExceptionGroup as errors:
            raise first_cause(errors) from None
        finally:
            self.engine.active -= workers - 1
        missing = [name for name, result in zip(names, results, strict=True) if result is None]
        if missing:
            raise self.engine.cancelled_within(missing[0])
        return [episode for episode in results if episode is not None]

    def begin(self, problem: Problem, key: Key) -> Branch:
        return Branch(problem, Trajectory(), self.engine.first_step(problem, key), key)

    async def extend(self, branch: Branch, activations: Sequence[Activation], key: Key) -> Branch:
        return await self.engine.extend(self.name, branch, tuple(activations), key)

    async def score(self, branch: Branch, *, final: bool = False) -> Scores:
        return await self.engine.verify(branch, final=final)

    async def finish(self, branch: Branch) -> Episode:
        self._count += 1
        name = f"{self.name}/{self._count - 1}"
        error = why_empty(branch.trajectory)
        limit, last = self.engine.limits.turns, branch.trajectory.last
        over = branch.step.done or (last is not None and last.output.final)
        # As in a rollout: who has used all turns cannot stop any more.
        cut = limit is not None and len(branch.trajectory) >= limit and not over
        status = Status.FAILED if error else Status.LIMIT if cut else Status.COMPLETED
        episode = Episode(
            name,
            branch.problem.public(),
            branch.trajectory,
            status=status,
            error=error,
            observation=branch.step.observation,
        )
        episode = await self.engine.judge(episode, branch.problem, branch.step.state, branch.key)
        self._count_trained()
        if self._collect:
            # Several may finish at the same time: they are kept in the order of their ids.
            insort(self.episodes, episode, key=_number)
        return episode

    def calls(self, key: Key) -> Calls:
        return ActivationCalls(self.engine, key, who="trainer")

    async def spread(self, function: Callable[..., T], items: Sequence[tuple[Any, ...]]) -> list[T]:
        if self.engine.spread is None:
            return await asyncio.to_thread(list, computed(function, items))
        try:
            return await self.engine.spread(function, items)
        except BaseExceptionGroup as errors:
            raise first_cause(errors) from None

    def learnable(self) -> Mapping[str, JSON]:
        return {**read_only(self.engine.learnable()), **self.adopted}

    @asynccontextmanager
    async def build(self, overlay: Mapping[str, JSON]) -> AsyncIterator[SessionProtocol]:
        if self._build is None:
            raise UsageError("this session cannot be rebuilt with other settings")
        async with self._build({**self.adopted, **read_only(overlay)}) as engine:
            # Ids stay unique, and episodes under the overlay belong to this iteration.
            inner = copy(self)
            inner.engine = engine
            inner.policy, inner.roster = engine.team.policy, engine.team.roster
            inner.adopted, inner.trained_on = {}, 0
            try:
                yield inner
            finally:
                self._count = inner._count
                self.trained_on += inner.trained_on

    def adopt(self, overlay: Mapping[str, JSON]) -> None:
        self.adopted.update(read_only(overlay))


def _number(episode: Episode) -> int:
    return int(episode.id.rpartition("/")[2])


def first_cause(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the first error of a group that is not a group itself."""
    first = errors.exceptions[0]
    return first_cause(first) if isinstance(first, BaseExceptionGroup) else first


def summarize(episodes: Sequence[Episode]) -> dict[str, float]:
    """Return what every iteration reports, whatever its trainer: means over its episodes.

    `reward` is over episodes that have one; `missing` counts the others.
    """
    rewards = [episode.reward.total for episode in episodes if episode.reward is not None]
    turns = [turn for episode in episodes for turn in episode.turns]
    return {
        "episodes": float(len(episodes)),
        "reward": mean(rewards),
        "success": mean([float(episode.success) for episode in episodes]),
        "cost": mean([episode.usage.cost for episode in episodes]),
        "turns": mean([float(len(episode.trajectory)) for episode in episodes]),
        "missing": float(len(episodes) - len(rewards)),
        "limit": mean([float(episode.status is Status.LIMIT) for episode in episodes]),
        "failed_turns": float(sum(turn.status == "failed" for turn in turns)),
    }


@contextmanager
def fewer_collections(episodes: int = 1) -> Iterator[None]:
    """Run the garbage collector 70 times less often inside, and skip objects that exist already.

    Args:
        episodes: how many run at once; with thousands, still less often.
    """
    # Thousands of episodes at once are hundreds of thousands of live objects, and nearly none of
    # them is in a cycle. By default the collector visits the young ones every 700 allocations:
    # about half of all time with 10,000 episodes. What a turn of each allocates and drops again
    # must fit below the threshold, or the collector visits it. Cycles hold a few MB meanwhile.
    before = gc.get_threshold()
    threshold = max(_GC_THRESHOLDS[0], _OBJECTS * episodes)
    if not gc.isenabled() or before[0] >= threshold:  # nested, or set by other code
        yield
        return
    frozen = gc.get_freeze_count()
    gc.freeze()
    gc.set_threshold(threshold, *_GC_THRESHOLDS[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
        if not frozen:  # else other code froze objects, and relies on it
            gc.unfreeze()
