"""Check what trainers promise, and that learned state survives a checkpoint; see `_contracts`."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from attrs import frozen

from orchestrion._choices import choices
from orchestrion._engine.calls import CallPath
from orchestrion._engine.checks import merged_metrics
from orchestrion._engine.opening import Opened, load_states, save_states
from orchestrion._errors import ConfigError, OrchestrionError
from orchestrion._interfaces import Branch, Job, Session, Stateful
from orchestrion._keys import Key
from orchestrion._readiness import check_trainer
from orchestrion._records import JSON, Activation, Episode, Problem, Saved, Split, replace
from orchestrion._session import EngineSession
from orchestrion._store.checkpoint import Checkpoint, decode_checkpoint, encode_checkpoint
from orchestrion.config import Config, from_data
from orchestrion.testing._policy_contracts import chosen, decide, situations_of
from orchestrion.testing._stage import Bench, Subject, bench, building, on_bench, opened
from orchestrion.testing._watch import Draws, drawing, offline, snapshot

if TYPE_CHECKING:
    from orchestrion._components import Component

# ---------------------------------------------------------------------------- training


async def train(parts: Opened, config: Config, count: int, first: int = 0) -> list[Any]:
    """Run iterations `first` to `count`, or the trainer's last; return the metrics of each."""
    path = config.stages[0]
    trainer = parts.runtimes[path]
    reported = []
    for i in range(first, min(count, trainer.iterations)):
        key = Key(1).child("iteration", i)
        engine = parts.engine(CallPath())
        session = EngineSession(engine, f"0/{i}", key, Key(2), build=building(config))
        reported.append(_metrics_of(await trainer.iterate(i, session)))
    return reported


def _metrics_of(reported: Any) -> dict[str, float]:
    """Return an iteration's metrics; fail if they are not numbers by name."""
    try:
        return merged_metrics({}, reported, "iterate()")
    except OrchestrionError as error:
        raise AssertionError(str(error)) from None


def reloaded(states: Mapping[str, Saved]) -> Mapping[str, Saved]:
    """Return learned states as a later process reads them from a checkpoint."""
    for path, saved in states.items():
        kind = type(saved).__name__
        assert isinstance(saved, Saved), f"{path}: save() returned a {kind}, not a Saved"
    try:
        chunks = encode_checkpoint(Checkpoint(0, 0, states))
    except (OrchestrionError, TypeError, ValueError, AttributeError) as error:
        raise AssertionError(
            f"what save() returned cannot be written to a checkpoint: {error}; Saved.data is JSON, "
            "Saved.arrays holds Array"
        ) from None
    return decode_checkpoint(b"".join(chunks)).components


def use_of(subject: Subject, candidate: Any) -> dict[str, Any]:
    """Return the settings of another component of the subject's plugin, as in a config."""
    return {"use": f"{subject.found.plugin.distribution}:{candidate.name}", **candidate.example}


def small(subject: Subject, trainer: Component, around: Mapping[str, Any] | None = None) -> Config:
    """Return a config around a component, with its trainer's smoke settings and two iterations."""
    config = subject.config(around=around)
    path = config.stages[0]
    smoke = {**getattr(config.components[path].component, "smoke", {}), "iterations": 2}
    changes = {key: value for key, value in smoke.items() if key not in trainer.example}
    for keys in (list(changes), [key for key in changes if key != "iterations"]):
        overrides = [f"{path}.{key}={json.dumps(changes[key])}" for key in keys]
        with suppress(ConfigError):
            return from_data(config.resolved(), overrides, plugins=config.plugins)
    return config


# ---------------------------------------------------------------------------- learned state


@on_bench
async def keeps_state(bench_: Bench) -> int:
    """Check that what `save` returns survives a checkpoint, and that `load` takes it all over."""
    subject, first = bench_.subject, bench_.tested
    if not _is_stateful(first, subject.kind):
        return 0
    async with bench(subject) as other:
        saved = reloaded({subject.path: first.save()})[subject.path]
        other.tested.load(saved)
        assert snapshot(other.tested.save()) == snapshot(saved), (
            "save() after load() returns something else than what was loaded"
        )
        return 1 + _keeps_other_numbers(other.tested, saved)


def _is_stateful(runtime: Any, kind: str) -> bool:
    methods = [name for name in ("save", "load") if callable(getattr(runtime, name, None))]
    if kind in ("policy", "trainer"):
        missing = {"save", "load"} - set(methods)
        assert len(missing) != 1, (
            f"it has {methods[0]}() and no {missing.pop()}(), so that what it learned is neither "
            "saved nor loaded; a checkpoint needs both"
        )
    return isinstance(runtime, Stateful)


def _keeps_other_numbers(runtime: Any, saved: Saved) -> int:
    """Load state in which one number differs, as after training; `save` must return it.

    A component may refuse the number. If it loads it and saves the old one, the number is lost.
    """
    tried = 0
    for path, changed in _changed(saved.data):
        try:
            runtime.load(replace(saved, data=changed))
            again = runtime.save()
        except Exception:  # not every number may be changed alone
            continue
        tried += 1
        assert snapshot(again) != snapshot(saved), (
            f"load() leaves out {path}: state with another number there was loaded, and save() "
            "returns the old one"
        )
    runtime.load(saved)
    return tried


def _changed(value: Any, path: str = "Saved.data") -> Iterator[tuple[str, Any]]:
    """Yield the data with one floating-point number changed, for a few of the numbers."""
    if isinstance(value, float):
        yield path, value + 0.125
    elif isinstance(value, Mapping):
        for key in list(value)[:4]:
            for where, item in _changed(value[key], f"{path}[{key!r}]"):
                yield where, {**value, key: item}
    elif isinstance(value, (list, tuple)) and value:
        for where, item in _changed(value[0], f"{path}[0]"):
            yield where, [item, *value[1:]]


def policy_keeps_what_it_learned(subject: Subject) -> int:
    """Check that it decides as before when trained, saved and loaded into a fresh runtime."""
    trainable = _training_config(subject)
    if trainable is None:
        return 0
    if trainable.components["task"].use != "kit-task":
        return asyncio.run(_keeps_what_it_learned(trainable))
    tried = 0
    # If the first agent is the best, an untrained policy may decide like a trained one.
    for solver in ("c", "a"):
        overrides = [f"task.solver={solver}"]
        config = from_data(trainable.resolved(), overrides, plugins=trainable.plugins)
        tried += asyncio.run(_keeps_what_it_learned(config))
    return tried


async def _keeps_what_it_learned(config: Config) -> int:
    async with opened(config) as parts:
        policy, team = parts.runtimes["policy"], choices(parts.roster())
        situations = situations_of(team)
        before = chosen(decide(policy, situations))
        await train(parts, config, 2)
        trained = chosen(decide(policy, situations))
        states = reloaded(save_states(parts))
        assert chosen(decide(policy, situations)) == trained, "save() changes its decisions"
    async with opened(config) as fresh:
        load_states(fresh, states)
        policy = fresh.runtimes["policy"]
        learned = trained != before
        for attempt in ("", " at the second attempt"):
            if chosen(decide(policy, situations)) == trained:
                continue
            why = "save() or load() leaves something out"
            if not isinstance(policy, Stateful):
                why = "it has no save() and load()"
            elif learned and chosen(decide(policy, situations)) == before:
                why = "load() restores nothing of it"
            raise AssertionError(
                "trained, saved and loaded into a fresh process, its decisions differ from those "
                f"before{attempt}: what it learned is lost, since {why}"
            )
        assert snapshot(save_states(fresh)) == snapshot(states), (
            "after training, save() returns something else than what was loaded"
        )
        return len(situations)


def _training_config(subject: Subject) -> Config | None:
    """Return a config in which a trainer trains this policy: the one around it, or its plugin's."""
    if "trainer" in subject.found.component.around:
        return subject.config()
    trainers = subject.plugins.load(subject.found.plugin).components.get("trainer", {})
    for candidate in trainers.values():
        around = {k: v for k, v in candidate.around.items() if k != "policy"}
        with suppress(OrchestrionError):
            around = {**around, "trainer": use_of(subject, candidate)}
            config = small(subject, candidate, around)
            asyncio.run(_check_trains(config))
            return config
    return None


async def _check_trains(config: Config) -> None:
    async with opened(config) as parts:
        check_trainer(parts, config.stages[0])
        await train(parts, config, 1)


# ---------------------------------------------------------------------------- trainers


def trainer_trains(subject: Subject) -> int:
    config, first = _trainable(subject)
    second = asyncio.run(_history(config))
    assert first.metrics == second.metrics, "the same seed gave other metrics"
    assert snapshot(first.states) == snapshot(second.states), (
        "the same seed gave other learned state"
    )
    return 2


def trainer_draws(subject: Subject) -> int:
    """Check that all draws come from the session's key, and that no two episodes share a key."""
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
    """Check that it goes on as before when saved after an iteration and loaded again."""
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
    """The results of an iteration of training."""

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
        with self.draws.aside():
            return list(super().problems(split))

    async def rollout(self, jobs: Sequence[Job]) -> list[Episode]:
        self.rollouts += 1
        for job in jobs:
            policy = id(job.policy) if job.policy is not None else None
            self.jobs.append((self.rollouts, job.problem.id, job.key.digest, policy))
        with self.draws.aside():
            return await super().rollout(jobs)

    async def evaluate_as(self, *args: Any, **kwargs: Any) -> list[Episode]:
        with self.draws.aside():
            return await super().evaluate_as(*args, **kwargs)

    def begin(self, problem: Problem, key: Key) -> Branch:
        with self.draws.aside():
            return super().begin(problem, key)

    async def extend(self, branch: Branch, activations: Sequence[Activation], key: Key) -> Branch:
        with self.draws.aside():
            return await super().extend(branch, activations, key)

    async def finish(self, branch: Branch) -> Episode:
        with self.draws.aside():
            return await super().finish(branch)

    @asynccontextmanager
    async def build(self, overlay: Mapping[str, JSON]) -> AsyncIterator[Session]:
        async with super().build(overlay) as inner:
            assert isinstance(inner, _RecordingSession)  # it is a copy of this one
            # Trainers may compare different settings on equal draws.
            inner.jobs, inner.rollouts = [], 0
            yield inner


async def _history(config: Config, seed: int = 1) -> _History:
    async with opened(config, seed) as parts:
        path = config.stages[0]
        check_trainer(parts, path)
        keys = Key(seed).child("train"), Key(seed).child("evaluate")
        engine = parts.engine(CallPath())
        session = _RecordingSession(engine, "0/0", *keys, build=building(config, seed))
        session.jobs, session.rollouts = [], 0
        with offline("iterate()"), drawing() as draws:
            session.draws = draws
            metrics = _metrics_of(await parts.runtimes[path].iterate(0, session))
        return _History(metrics, reloaded(save_states(parts)), session.jobs, draws)


@lru_cache(maxsize=1)  # several checks of a trainer start from it
def _trainable(subject: Subject) -> tuple[Config, _History]:
    """Return a config whose policy the trainer can train, and what its first iteration did.

    The policy is the one in the component's `around`, or another of its plugin.
    """
    trainer = subject.found.component
    if "policy" in trainer.around:
        config = small(subject, trainer)
        return config, asyncio.run(_history(config))
    policies = subject.plugins.load(subject.found.plugin).components.get("policy", {})
    errors = []
    for candidate in (None, *policies.values()):
        policy = {} if candidate is None else {"policy": use_of(subject, candidate)}
        try:
            config = small(subject, trainer, policy)
            return config, asyncio.run(_history(config))
        except OrchestrionError as error:
            errors.append(str(error))
    raise AssertionError(
        "it can train neither the kit's policy nor one of its own plugin; name one in "
        "Component(around={'policy': ...}): " + "; ".join(errors)
    )
