"""What policies and trainers promise; see `contracts`."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from itertools import combinations
from typing import TYPE_CHECKING, Any

from attrs import frozen

from orchestrion._choices import choice_name, choices, is_blocked
from orchestrion._config import Config, from_data
from orchestrion._engine.calls import CallPath
from orchestrion._engine.checks import check_decision, merged_metrics
from orchestrion._engine.episode import Engine
from orchestrion._engine.opening import Opened, load_states, save_states
from orchestrion._errors import ConfigError, OrchestrionError
from orchestrion._interfaces import Branch, Job, Session, Situation, Stateful
from orchestrion._keys import Key
from orchestrion._readiness import check_trainer
from orchestrion._records import (
    JSON,
    Activation,
    Decision,
    Episode,
    Observation,
    Output,
    Problem,
    Saved,
    Split,
    Trajectory,
    Turn,
    replace,
)
from orchestrion._session import Build, EngineSession
from orchestrion._store.checkpoint import Checkpoint, decode_checkpoint, encode_checkpoint
from orchestrion.testing._probes import Draws, check_pace, drawing, offline, snapshot
from orchestrion.testing._stage import opened

if TYPE_CHECKING:
    from orchestrion._components import Component
    from orchestrion.testing._kit import Subject

__all__ = [
    "building",
    "keeps_state",
    "policy_decides",
    "policy_draws",
    "policy_is_pure",
    "policy_is_quick",
    "policy_keeps_what_it_learned",
    "trainer_draws",
    "trainer_goes_on",
    "trainer_has_iterations",
    "trainer_trains",
]

_SITUATIONS = 24


def _situations(
    team: Sequence[Activation], blocked: frozenset[str] | None = None
) -> list[Situation]:
    """Situations of episodes of several lengths.

    Args:
        team: what can be chosen.
        blocked: what the task refuses in all of them; by default "b:y", in every second one.
    """
    found = []
    for n in range(_SITUATIONS):
        acted = [team[(n + i) % len(team)] for i in range(n % 4)]
        trajectory = Trajectory(
            [
                Turn(i, one.agent, one.option, Output(f"{one.agent} {i}", {"n": [i]}))
                for i, one in enumerate(acted)
            ]
        )
        usual = frozenset({"b:y"}) if n % 2 else frozenset[str]()
        observation = Observation(
            f"{len(acted)} turns",
            data={"turns": [len(acted)]},
            features=tuple(float((n + i) % 3) for i in range(2)),
            blocked=usual if blocked is None else blocked,
            progress=0.5,
        )
        problem = Problem(f"p{n % 5}", f"problem {n % 5}", {"words": ["p", n % 5]}, "kit")
        left = 6 - len(acted)
        found.append(Situation(problem, trajectory, observation, (), left, n % 3 == 0))
    return found


def _keys(situations: Sequence[Situation], seed: int = 9) -> list[Key]:
    return [Key(seed).child(i) for i in range(len(situations))]


def _decide(policy: Any, situations: Sequence[Situation], seed: int = 9) -> list[Decision]:
    decisions = list(policy.decide(situations, _keys(situations, seed)))
    assert len(decisions) == len(situations), "decide() must give one decision each"
    return decisions


# ---------------------------------------------------------------------------- policies


def policy_decides(subject: Subject) -> int:
    async def check() -> int:
        async with opened(subject.config()) as parts:
            policy, team = parts.runtimes["policy"], choices(parts.roster())
            tried = 0
            for blocked in (None, *_masks(team)):
                situations = _situations(team, blocked)
                shown = snapshot(situations)
                with offline("decide()"):
                    decisions = _decide(policy, situations)
                assert snapshot(situations) == shown, "decide() changes the situations it is given"
                for situation, decision in zip(situations, decisions, strict=True):
                    _check_decision(policy, decision, situation, team)
                tried += len(situations)
            return tried

    return asyncio.run(check())


def _masks(team: Sequence[Activation]) -> Iterator[frozenset[str]]:
    """What tasks may refuse: nothing, each agent, each choice, pairs, all but one, everything."""
    names = [choice_name(one) for one in team]
    yield frozenset()
    for name in dict.fromkeys([*(one.agent for one in team), *names]):
        yield frozenset({name})
    for pair in combinations(names, 2):
        yield frozenset(pair)
    for name in names:
        yield frozenset(names) - {name}
    yield frozenset(names)
    yield frozenset(one.agent for one in team)


def _check_decision(
    policy: Any, decision: Decision, situation: Situation, team: Sequence[Activation]
) -> None:
    check_decision(decision, policy)
    assert decision.start or decision.stop, "nothing is started and nothing runs"
    pairs = {(one.agent, one.option) for one in team}
    for choice in decision.start:
        pair = (choice.agent, choice.option)
        assert pair in pairs, f"{pair} is no choice of the team {sorted(pairs, key=str)}"
        observation = situation.observation
        assert not is_blocked(choice, observation), (
            f"it starts {choice_name(choice)!r}, which the task blocks "
            f"({', '.join(sorted(observation.blocked if observation else ()))}); leave out what "
            "`orchestrion._choices.is_blocked` says is blocked, by agent or by 'agent:option', "
            "and stop if nothing is left"
        )
    if decision.logp is not None:
        assert decision.logp <= 1e-9, f"a log-probability is {decision.logp}, not at most 0"


def policy_is_pure(subject: Subject) -> int:
    async def check() -> int:
        async with opened(subject.config()) as parts:
            policy = parts.runtimes["policy"]
            situations = _situations(choices(parts.roster()))
            for seed in (9, 10, 11):
                keys = _keys(situations, seed)
                together = _chosen(policy.decide(situations, keys))
                alone = [
                    _chosen(policy.decide([s], [k]))[0]
                    for s, k in zip(situations, keys, strict=True)
                ]
                backward = _chosen(policy.decide(situations[::-1], keys[::-1]))[::-1]
                assert together == alone == backward, (
                    "a decision depends on what else is in its batch, or on what was decided before"
                )
            return len(situations) * 3

    return asyncio.run(check())


def _chosen(decisions: Any) -> list[Any]:
    return [snapshot((one.start, one.stop, one.wait, one.logp)) for one in decisions]


def policy_draws(subject: Subject) -> int:
    async def check() -> int:
        async with opened(subject.config()) as parts:
            policy = parts.runtimes["policy"]
            situations = _situations(choices(parts.roster()))
            _decide(policy, situations)  # imports and caches draw what they like

            def draws(seed: int) -> Draws:
                with drawing() as result:
                    _decide(policy, situations, seed)
                return result

            one, other = draws(3), draws(4)
            one.check_own("decide()")
            one.check_once("decide()")
            one.check_apart(other, "decide()")
            return len(situations)

    return asyncio.run(check())


def policy_is_quick(subject: Subject) -> int:
    async def check() -> int:
        async with opened(subject.config()) as parts:
            policy = parts.runtimes["policy"]
            situations = _situations(choices(parts.roster()))
            for situation in (situations[0], situations[-1]):
                await check_pace(
                    "decide()",
                    lambda situation=situation: policy.decide([situation], [Key(9)]),  # type: ignore[misc]
                    "prepare in open() what takes long; a policy never asks a model or a service",
                )
            return 2

    return asyncio.run(check())


# ---------------------------------------------------------------------------- learned state


def keeps_state(subject: Subject) -> int:
    """What `save` gives goes through a checkpoint, and `load` takes all of it over."""

    async def check() -> int:
        async with opened(subject.config()) as parts, opened(subject.config()) as others:
            first, second = parts.runtimes[subject.path], others.runtimes[subject.path]
            if not _is_stateful(first, subject.kind):
                return 0
            saved = _reloaded({subject.path: first.save()})[subject.path]
            second.load(saved)
            assert snapshot(second.save()) == snapshot(saved), (
                "save() after load() gives something else"
            )
            return 1 + _keeps_other_numbers(second, saved)

    return asyncio.run(check())


def _is_stateful(runtime: Any, kind: str) -> bool:
    has = [name for name in ("save", "load") if callable(getattr(runtime, name, None))]
    if kind in ("policy", "trainer"):
        missing = {"save", "load"} - set(has)
        assert len(missing) != 1, (
            f"it has {has[0]}() and no {missing.pop()}(), so that what it learned is neither "
            "saved nor loaded; a checkpoint needs both"
        )
    return isinstance(runtime, Stateful)


def _reloaded(states: Mapping[str, Saved]) -> Mapping[str, Saved]:
    """Learned state as a later process finds it in a checkpoint."""
    for path, saved in states.items():
        kind = type(saved).__name__
        assert isinstance(saved, Saved), f"{path}: save() gave a {kind}, not a Saved"
    try:
        chunks = encode_checkpoint(Checkpoint(0, 0, states))
    except (OrchestrionError, TypeError, ValueError, AttributeError) as error:
        raise AssertionError(
            f"what save() gave cannot be written to a checkpoint: {error}; Saved.data is JSON, "
            "Saved.arrays holds Array"
        ) from None
    return decode_checkpoint(b"".join(chunks)).components


def _keeps_other_numbers(runtime: Any, saved: Saved) -> int:
    """Load state in which one number differs, as after training; it must be there afterwards.

    A component may refuse the number; taking it and saving the old one means that it is lost.
    """
    tried = 0
    for path, changed in _changed(saved.data):
        other = replace(saved, data=changed)
        try:
            runtime.load(other)
            again = runtime.save()
        except Exception:  # not every number may be changed alone
            continue
        tried += 1
        assert snapshot(again) != snapshot(saved), (
            f"load() leaves out {path}: state with another number there was loaded, and save() "
            "gives the old one"
        )
    runtime.load(saved)
    return tried


def _changed(value: Any, path: str = "Saved.data") -> Iterator[tuple[str, Any]]:
    """The data with one floating-point number changed, for a few of them."""
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
    """Trained, saved and loaded into a fresh runtime, it decides as before."""
    trainable = next(_trainings(subject), None)
    if trainable is None:
        return 0
    tried = 0
    # Where the first agent is the best one, an untrained policy may decide like a trained one.
    for solver in ("c", "a"):
        if trainable.components["task"].use == "kit-task":
            overrides = [f"task.solver={solver}"]
            config = from_data(trainable.resolved(), overrides, plugins=trainable.plugins)
            tried += asyncio.run(_keeps_what_it_learned(config))
        elif not tried:
            tried += asyncio.run(_keeps_what_it_learned(trainable))
    return tried


async def _keeps_what_it_learned(config: Config) -> int:
    async with opened(config) as parts:
        policy, team = parts.runtimes["policy"], choices(parts.roster())
        situations = _situations(team)
        before = _decide(policy, situations)
        await _train(parts, config, 2)
        trained = _decide(policy, situations)
        states = _reloaded(save_states(parts))
        assert _chosen(_decide(policy, situations)) == _chosen(trained), (
            "save() changes what it decides"
        )
    async with opened(config) as fresh:
        load_states(fresh, states)
        policy = fresh.runtimes["policy"]
        learned = _chosen(trained) != _chosen(before)
        for attempt in ("", " the second time it is asked"):
            if _chosen(_decide(policy, situations)) == _chosen(trained):
                continue
            why = "save() or load() leaves something out"
            if not isinstance(policy, Stateful):
                why = "it has no save() and load()"
            elif learned and _chosen(_decide(policy, situations)) == _chosen(before):
                why = "load() brings back nothing of it"
            raise AssertionError(
                "trained, saved and loaded into a fresh process, it decides otherwise than "
                f"before{attempt}: what it learned is lost, since {why}"
            )
        assert snapshot(save_states(fresh)) == snapshot(states), (
            "after training, save() gives something else than what load() was given"
        )
        return len(situations)


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
    """Every draw comes from the session's key, and no two episodes draw the same."""
    config, one = _trainable(subject)
    other = asyncio.run(_history(config, 2))
    one.draws.check_own("iterate()")
    # Policies, and what one was and became, may well be compared on equal draws.
    again = [problem for (_, problem, *_), times in Counter(one.jobs).items() if times > 1]
    assert not again, (
        f"two episodes on problem {again[0]!r} have the same key, so that they draw the same "
        "random numbers; name each: session.key.child('episode', n)"
    )
    assert not {job[2] for job in one.jobs} & {job[2] for job in other.jobs}, (
        "sessions with different keys gave episodes with the same key: it ignores the session's "
        "key, and every iteration draws the same; use session.key.child(...)"
    )
    one.draws.check_apart(other.draws, "iterate()", "sessions with different keys")
    return len(one.jobs)


def trainer_goes_on(subject: Subject) -> int:
    """Saved after an iteration and loaded again, it goes on as if nothing had happened."""
    config, _ = _trainable(subject)
    return asyncio.run(_goes_on(config))


async def _goes_on(config: Config) -> int:
    async with opened(config) as parts:
        if parts.runtimes[config.stages[0]].iterations < 2:
            return 0
        await _train(parts, config, 1)
        states = _reloaded(save_states(parts))
        whole = await _train(parts, config, 2, first=1)
        end = snapshot(save_states(parts))
    async with opened(config) as fresh:
        load_states(fresh, states)
        resumed = await _train(fresh, config, 2, first=1)
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


class _Noting(EngineSession):
    """A session that notes its jobs, each with the call of `rollout` it was in.

    What agents, policies and tasks draw in it is theirs, and not the trainer's.
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
            inner.__class__ = _Noting
            assert isinstance(inner, _Noting)
            # Under other settings, trainers may well compare on equal draws.
            inner.jobs, inner.rollouts, inner.draws = [], 0, self.draws
            yield inner


async def _history(config: Config, seed: int = 1) -> _History:
    async with opened(config, seed) as parts:
        path = config.stages[0]
        check_trainer(parts, path)
        engine = parts.engine(CallPath())
        keys = Key(seed).child("train"), Key(seed).child("evaluate")
        session = _Noting(engine, "0/0", *keys, build=building(config, seed))
        session.jobs, session.rollouts = [], 0
        try:
            with offline("iterate()"), drawing() as draws:
                session.draws = draws
                reported = await parts.runtimes[path].iterate(0, session)
        finally:
            engine.close()
        metrics = _metrics(reported)
        return _History(metrics, _reloaded(save_states(parts)), session.jobs, draws)


async def _train(parts: Opened, config: Config, count: int, first: int = 0) -> list[Any]:
    """The metrics of iterations up to `count`, as far as the trainer has so many."""
    path = config.stages[0]
    trainer = parts.runtimes[path]
    reported = []
    for i in range(first, min(count, trainer.iterations)):
        engine = parts.engine(CallPath())
        key = Key(1).child("iteration", i)
        session = EngineSession(engine, f"0/{i}", key, Key(2), build=building(config))
        try:
            reported.append(_metrics(await trainer.iterate(i, session)))
        finally:
            engine.close()
    return reported


def _metrics(reported: Any) -> dict[str, float]:
    try:
        return merged_metrics({}, reported, "iterate()")
    except OrchestrionError as error:
        raise AssertionError(str(error)) from None


_TRIALS: dict[tuple[str, str], tuple[Any, Config, _History]] = {}
"""What `_trainable` found, by kind and name: several checks start from it."""


def _trainable(subject: Subject) -> tuple[Config, _History]:
    """A config whose policy the trainer can train, and what its first iteration did.

    The policy is what stands around it, or one of its own plugin.
    """
    name = (subject.kind, subject.found.qualified)
    known = _TRIALS.get(name)
    if known is None or known[0] is not subject.plugins:
        known = _TRIALS[name] = (subject.plugins, *_tried(subject))
    return known[1], known[2]


def _tried(subject: Subject) -> tuple[Config, _History]:
    if "policy" in subject.found.component.around:
        config = _small(subject, subject.found.component)
        return config, asyncio.run(_history(config))
    own = subject.plugins.load(subject.found.plugin).components.get("policy", {})
    tried = []
    for candidate in (None, *own.values()):
        policy = {} if candidate is None else {"policy": _used(subject, candidate)}
        try:
            config = _small(subject, subject.found.component, policy)
            return config, asyncio.run(_history(config))
        except OrchestrionError as error:
            tried.append(str(error))
    raise AssertionError(
        "it trains neither a plain policy nor one of its own plugin; name one in "
        "Component(around={'policy': ...}): " + "; ".join(tried)
    )


def _trainings(subject: Subject) -> Iterator[Config]:
    """Configs in which a trainer trains this policy: one that stands around it, or its plugin's."""
    if "trainer" in subject.found.component.around:
        yield subject.config()
        return
    own = subject.plugins.load(subject.found.plugin).components.get("trainer", {})
    for candidate in own.values():
        around = {k: v for k, v in candidate.around.items() if k != "policy"}
        try:
            around = {**around, "trainer": _used(subject, candidate)}
            config = _small(subject, candidate, around)
            if asyncio.run(_accepts(config)):
                yield config
        except OrchestrionError:
            continue


async def _accepts(config: Config) -> bool:
    async with opened(config) as parts:
        check_trainer(parts, config.stages[0])
        await _train(parts, config, 1)
        return True


def _used(subject: Subject, candidate: Any) -> dict[str, Any]:
    return {"use": f"{subject.found.plugin.distribution}:{candidate.name}", **candidate.example}


def _small(subject: Subject, trainer: Component, around: Mapping[str, Any] | None = None) -> Config:
    """A config around a component, with its trainer's settings for a trial and two iterations."""
    config = subject.config(around=around)
    path = config.stages[0]
    smoke = {**getattr(config.components[path].cls, "smoke", {}), "iterations": 2}
    changes = {key: value for key, value in smoke.items() if key not in trainer.example}
    for keys in (list(changes), [key for key in changes if key != "iterations"]):
        overrides = [f"{path}.{key}={json.dumps(changes[key])}" for key in keys]
        with suppress(ConfigError):
            return from_data(config.resolved(), overrides, plugins=config.plugins)
    return config


def building(config: Config, seed: int | None = None) -> Build:
    """Opens an engine for the config with an overlay."""

    @asynccontextmanager
    async def build(overlay: Mapping[str, JSON]) -> AsyncIterator[Engine]:
        async with opened(config.with_overlay(overlay), seed) as other:
            engine = other.engine(CallPath())
            try:
                yield engine
            finally:
                engine.close()

    return build


def trainer_has_iterations(subject: Subject) -> int:
    async def check() -> int:
        async with opened(subject.config()) as parts:
            count = parts.runtimes[subject.path].iterations
            assert isinstance(count, int), "iterations must be a whole number"
            assert count >= 1, "iterations must be at least 1"
            # `train --dry-run` opens nothing, and says how many there would be.
            settings: Any = parts.config.components[subject.path].component
            assert getattr(settings, "iterations", None) == count, (
                "the component has to say how many iterations there are before it is opened"
            )
            return count

    return asyncio.run(check())
