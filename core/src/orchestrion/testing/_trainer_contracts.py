"""Check what trainers promise; see `contracts`."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from attrs import frozen

from orchestrion._engine.calls import CallPath
from orchestrion._engine.opening import load_states, save_states
from orchestrion._errors import OrchestrionError
from orchestrion._interfaces import Branch, Job, Session
from orchestrion._keys import Key
from orchestrion._readiness import check_trainer
from orchestrion._records import JSON, Activation, Episode, Problem, Saved, Split
from orchestrion._session import EngineSession
from orchestrion.config import Config
from orchestrion.testing._bench import Bench, on_bench
from orchestrion.testing._draws import Draws, drawing
from orchestrion.testing._probes import offline, snapshot
from orchestrion.testing._stage import building, opened
from orchestrion.testing._training import metrics_of, reloaded, small, train, use_of

if TYPE_CHECKING:
    from orchestrion.testing._kit import Subject

__all__ = ["trainer_draws", "trainer_goes_on", "trainer_has_iterations", "trainer_trains"]


def trainer_trains(subject: Subject) -> int:
    config, first = _trainable(subject)
    second = asyncio.run(_history(config))
    assert first.metrics == second.metrics, "the same seed gave other metrics"
    assert snapshot(first.states) == snapshot(second.states), (
        "the same seed gave other learned state"
    )
    return 2


def trainer_draws(subject: Subject) -> int:
    """Every draw comes from the session's key, and no two episodes have the same key."""
    config, first = _trainable(subject)
    second = asyncio.run(_history(config, 2))
    first.draws.check_own("iterate()")
    # Several policies, or one before and after an update, may be compared on equal draws.
    repeated = [problem for (_, problem, *_), times in Counter(first.jobs).items() if times > 1]
    assert not repeated, (
        f"two episodes on problem {repeated[0]!r} have the same key, so that they draw the same "
        "random numbers; give each its own: session.key.child('episode', n)"
    )
    assert not {job[2] for job in first.jobs} & {job[2] for job in second.jobs}, (
        "sessions with different keys gave episodes with the same key: it ignores the session's "
        "key, and every iteration draws the same; use session.key.child(...)"
    )
    first.draws.check_apart(second.draws, "iterate()", "sessions with different keys")
    return len(first.jobs)


def trainer_goes_on(subject: Subject) -> int:
    """Saved after an iteration and loaded again, it continues as without that."""
    config, _ = _trainable(subject)
    return asyncio.run(_goes_on(config))


async def _goes_on(config: Config) -> int:
    async with opened(config) as parts:
        if parts.runtimes[config.stages[0]].iterations < 2:
            return 0
        await train(parts, config, 1)
        states = reloaded(save_states(parts))
        whole = await train(parts, config, 2, first=1)
        end = snapshot(save_states(parts))
    async with opened(config) as fresh:
        load_states(fresh, states)
        resumed = await train(fresh, config, 2, first=1)
        same = resumed == whole and snapshot(save_states(fresh)) == end
        assert same, (
            "saved after the first iteration and loaded into a fresh process, the second gave "
            "other metrics or other learned state than without: save() or load() of the trainer, "
            "or of the policy, leaves something out (counts, moments of an optimizer, a schedule)"
        )
        return 1


@frozen
class _History:
    """What an iteration of a training did."""

    metrics: Mapping[str, float]
    states: Mapping[str, Saved]
    jobs: list[tuple[int, str, bytes, int | None]]
    draws: Draws


class _RecordingSession(EngineSession):
    """A session that records its jobs, each with the call of `rollout` it was in.

    What agents, policies and tasks draw meanwhile does not count as drawn by the trainer.
    """

    jobs: list[tuple[int, str, bytes, int | None]]
    rollouts: int
    draws: Draws

    def problems(self, split: Split = "train") -> Sequence[Problem]:
        """See `Session.problems`."""
        with self.draws.aside():
            return list(super().problems(split))

    async def rollout(self, jobs: Sequence[Job]) -> list[Episode]:
        """See `Session.rollout`."""
        self.rollouts += 1
        for job in jobs:
            policy = id(job.policy) if job.policy is not None else None
            self.jobs.append((self.rollouts, job.problem.id, job.key.digest, policy))
        with self.draws.aside():
            return await super().rollout(jobs)

    async def evaluate_as(self, *args: Any, **kwargs: Any) -> list[Episode]:
        """See `EngineSession.evaluate_as`."""
        with self.draws.aside():
            return await super().evaluate_as(*args, **kwargs)

    def begin(self, problem: Problem, key: Key) -> Branch:
        """See `Session.begin`."""
        with self.draws.aside():
            return super().begin(problem, key)

    async def extend(self, branch: Branch, activations: Sequence[Activation], key: Key) -> Branch:
        """See `Session.extend`."""
        with self.draws.aside():
            return await super().extend(branch, activations, key)

    async def finish(self, branch: Branch) -> Episode:
        """See `Session.finish`."""
        with self.draws.aside():
            return await super().finish(branch)

    @asynccontextmanager
    async def build(self, overlay: Mapping[str, JSON]) -> AsyncIterator[Session]:
        """See `Session.build`."""
        async with super().build(overlay) as inner:
            assert isinstance(inner, EngineSession)
            inner.__class__ = _RecordingSession
            assert isinstance(inner, _RecordingSession)
            # Trainers may compare different settings on equal draws.
            inner.jobs, inner.rollouts, inner.draws = [], 0, self.draws
            yield inner


async def _history(config: Config, seed: int = 1) -> _History:
    async with opened(config, seed) as parts:
        path = config.stages[0]
        check_trainer(parts, path)
        engine = parts.engine(CallPath())
        keys = Key(seed).child("train"), Key(seed).child("evaluate")
        session = _RecordingSession(engine, "0/0", *keys, build=building(config, seed))
        session.jobs, session.rollouts = [], 0
        try:
            with offline("iterate()"), drawing() as draws:
                session.draws = draws
                reported = await parts.runtimes[path].iterate(0, session)
        finally:
            engine.close()
        metrics = metrics_of(reported)
        return _History(metrics, reloaded(save_states(parts)), session.jobs, draws)


_TRIALS: dict[tuple[str, str], tuple[Any, Config, _History]] = {}
"""Results of `_trainable` by kind and name: several checks start from them."""


def _trainable(subject: Subject) -> tuple[Config, _History]:
    """Return a config whose policy the trainer can train, and what its first iteration did.

    The policy is the one in the component's `around`, or another of its plugin.
    """
    name = (subject.kind, subject.found.qualified)
    trial = _TRIALS.get(name)
    if trial is None or trial[0] is not subject.plugins:
        trial = _TRIALS[name] = (subject.plugins, *_try_policies(subject))
    return trial[1], trial[2]


def _try_policies(subject: Subject) -> tuple[Config, _History]:
    if "policy" in subject.found.component.around:
        config = small(subject, subject.found.component)
        return config, asyncio.run(_history(config))
    own = subject.plugins.load(subject.found.plugin).components.get("policy", {})
    errors = []
    for candidate in (None, *own.values()):
        policy = {} if candidate is None else {"policy": use_of(subject, candidate)}
        try:
            config = small(subject, subject.found.component, policy)
            return config, asyncio.run(_history(config))
        except OrchestrionError as error:
            errors.append(str(error))
    raise AssertionError(
        "it can train neither the kit's policy nor one of its own plugin; name one in "
        "Component(around={'policy': ...}): " + "; ".join(errors)
    )


@on_bench
async def trainer_has_iterations(bench: Bench) -> int:
    count = bench.tested.iterations
    assert isinstance(count, int), "iterations must be a whole number"
    assert count >= 1, "iterations must be at least 1"
    # `train --dry-run` reads the count before anything is opened.
    settings: Any = bench.parts.config.components[bench.subject.path].component
    assert getattr(settings, "iterations", None) == count, (
        "the component has to say how many iterations there are before it is opened"
    )
    return count
