"""Check that learned state survives a checkpoint; see `contracts`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from orchestrion._choices import choices
from orchestrion._engine.opening import load_states, save_states
from orchestrion._errors import OrchestrionError
from orchestrion._interfaces import Stateful
from orchestrion._readiness import check_trainer
from orchestrion._records import Saved, replace
from orchestrion.config import Config, from_data
from orchestrion.testing._bench import Bench, bench, on_bench
from orchestrion.testing._policy_contracts import chosen, decide, situations_of
from orchestrion.testing._probes import snapshot
from orchestrion.testing._stage import opened
from orchestrion.testing._training import reloaded, small, train, use_of

if TYPE_CHECKING:
    from orchestrion.testing._kit import Subject

__all__ = ["keeps_state", "policy_keeps_what_it_learned"]


@on_bench
async def keeps_state(bench_: Bench) -> int:
    """What `save` returns goes through a checkpoint, and `load` takes over all of it."""
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
    """Trained, saved and loaded into a fresh runtime, it decides as before."""
    trainable = next(_training_configs(subject), None)
    if trainable is None:
        return 0
    tried = 0
    # If the first agent is the best, an untrained policy may decide like a trained one.
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


def _training_configs(subject: Subject) -> Iterator[Config]:
    """Yield configs in which a trainer trains this policy: the one around it, or its plugin's."""
    if "trainer" in subject.found.component.around:
        yield subject.config()
        return
    own = subject.plugins.load(subject.found.plugin).components.get("trainer", {})
    for candidate in own.values():
        around = {k: v for k, v in candidate.around.items() if k != "policy"}
        try:
            around = {**around, "trainer": use_of(subject, candidate)}
            config = small(subject, candidate, around)
            asyncio.run(_try(config))
        except OrchestrionError:
            continue
        yield config


async def _try(config: Config) -> None:
    """Run one iteration.

    Raises:
        OrchestrionError: the trainer does not fit the policy.
    """
    async with opened(config) as parts:
        check_trainer(parts, config.stages[0])
        await train(parts, config, 1)
