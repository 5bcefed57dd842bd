"""What policies and trainers promise; see `contracts`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from math import isfinite
from typing import TYPE_CHECKING, Any

from orchestrion.config import Config
from orchestrion.engine.calls import CallPath
from orchestrion.engine.episode import Engine
from orchestrion.errors import OrchestrionError
from orchestrion.guards import save_states
from orchestrion.interfaces import Situation, Stateful
from orchestrion.keys import Key
from orchestrion.readiness import check_trainer
from orchestrion.records import (
    JSON,
    Activation,
    Observation,
    Output,
    Problem,
    Trajectory,
    Turn,
)
from orchestrion.session import Build, EngineSession
from orchestrion.testing.stage import opened

if TYPE_CHECKING:
    from orchestrion.testing.kit import Subject

__all__ = [
    "building",
    "keeps_state",
    "policy_decides",
    "policy_is_pure",
    "trainer_has_iterations",
    "trainer_trains",
]

_SITUATIONS = 24


def _situations() -> list[Situation]:
    """Situations of episodes of several lengths, some with a blocked choice."""
    found = []
    agents = [("a", None), ("b", "x"), ("b", "y")]
    for n in range(_SITUATIONS):
        names = [agents[(n + i) % 3] for i in range(n % 4)]
        trajectory = Trajectory(
            [
                Turn(i, agent, option, Output(f"{agent} {i}"))
                for i, (agent, option) in enumerate(names)
            ]
        )
        observation = Observation(
            f"{len(names)} turns",
            features=tuple(float((n + i) % 3) for i in range(2)),
            blocked=frozenset({"b:y"}) if n % 2 else frozenset(),
            progress=0.5,
        )
        problem = Problem(f"p{n % 5}", f"problem {n % 5}", category="kit")
        found.append(Situation(problem, trajectory, observation, turns_left=6 - len(names)))
    return found


def policy_decides(subject: Subject) -> int:
    async def check() -> int:
        async with opened(subject.config()) as one:
            known = {(m.name, o) for m in one.roster() for o in (m.options or (None,))}
            situations = _situations()
            keys = [Key(9).child(i) for i in range(len(situations))]
            decisions = list(one.runtimes["policy"].decide(situations, keys))
            assert len(decisions) == len(situations), "decide() must give one decision each"
            for situation, decision in zip(situations, decisions, strict=True):
                assert decision.start or decision.stop, "nothing is started and nothing runs"
                for choice in decision.start:
                    pair = (choice.agent, choice.option)
                    assert pair in known, (
                        f"{pair} is no choice of the team {sorted(known, key=str)}"
                    )
                    assert not _blocked(situation, choice), f"{pair} is blocked by the task"
                if decision.logp is not None:
                    assert decision.logp <= 1e-9, "a log-probability is above 0"
            return len(situations)

    return asyncio.run(check())


def _blocked(situation: Situation, choice: Activation) -> bool:
    blocked = situation.observation.blocked if situation.observation else frozenset()
    return choice.agent in blocked or f"{choice.agent}:{choice.option}" in blocked


def policy_is_pure(subject: Subject) -> int:
    async def check() -> int:
        async with opened(subject.config()) as one:
            policy = one.runtimes["policy"]
            situations = _situations()
            keys = [Key(9).child(i) for i in range(len(situations))]
            together = [_choice(d) for d in policy.decide(situations, keys)]
            alone = [
                _choice(policy.decide([s], [k])[0]) for s, k in zip(situations, keys, strict=True)
            ]
            assert together == alone, (
                "a decision depends on what else is in its batch, or on what was decided before"
            )
            return len(situations)

    return asyncio.run(check())


def _choice(decision: Any) -> Any:
    return (decision.start, decision.stop, decision.wait, decision.logp)


def keeps_state(subject: Subject) -> int:
    async def check() -> int:
        async with opened(subject.config()) as one, opened(subject.config()) as two:
            first, second = one.runtimes[subject.path], two.runtimes[subject.path]
            if not isinstance(first, Stateful):
                return 0
            saved = first.save()
            second.load(saved)
            assert second.save() == saved, "save() after load() gives something else"
            return 1

    return asyncio.run(check())


# ---------------------------------------------------------------------------- trainers


def trainer_trains(subject: Subject) -> int:
    results = []
    for _ in range(2):
        config, iterate = _trainable(subject)
        results.append(asyncio.run(iterate(config)))
    first, second = results
    assert first == second, "the same seed gave other metrics or other learned state"
    for name, value in first[0].items():
        assert isfinite(value), f"metric {name!r} is {value}"
    return 2


def _trainable(subject: Subject) -> tuple[Config, Callable[[Config], Any]]:
    """A config whose policy the trainer can train: as given around it, or of its own plugin."""
    component = subject.found.component
    if "policy" in component.around:
        return subject.config(), _one_iteration
    own = subject.plugins.load(subject.found.plugin).components.get("policy", {})
    tried = []
    for candidate in (None, *own.values()):
        policy = {} if candidate is None else {"policy": _policy(subject, candidate)}
        try:
            config = subject.config(around=policy)
            asyncio.run(_one_iteration(config))
        except OrchestrionError as error:
            tried.append(str(error))
            continue
        return config, _one_iteration
    raise AssertionError(
        "it trains neither a plain policy nor one of its own plugin; name one in "
        "Component(around={'policy': ...}): " + "; ".join(tried)
    )


def _policy(subject: Subject, candidate: Any) -> dict[str, Any]:
    return {"use": f"{subject.found.plugin.distribution}:{candidate.name}", **candidate.example}


def building(config: Config) -> Build:
    """Opens an engine for the config with an overlay."""

    @asynccontextmanager
    async def build(overlay: Mapping[str, JSON]) -> AsyncIterator[Engine]:
        async with opened(config.with_overlay(overlay)) as other:
            engine = other.engine(CallPath())
            try:
                yield engine
            finally:
                engine.close()

    return build


async def _one_iteration(config: Config) -> tuple[dict[str, float], Any]:
    async with opened(config) as one:
        check_trainer(one, config.stages[0])
        engine = one.engine(CallPath())
        session = EngineSession(engine, "0/0", Key(1), Key(2), build=building(config))
        try:
            metrics = await one.runtimes[config.stages[0]].iterate(0, session)
        finally:
            engine.close()
        return dict(metrics), save_states(one)


def trainer_has_iterations(subject: Subject) -> int:
    async def check() -> int:
        async with opened(subject.config()) as one:
            count = one.runtimes[subject.path].iterations
            assert isinstance(count, int), "iterations must be a whole number"
            assert count >= 1, "iterations must be at least 1"
            # `train --dry-run` opens nothing, and says how many there would be.
            settings: Any = one.config.components[subject.path].component
            assert getattr(settings, "iterations", None) == count, (
                "the component has to say how many iterations there are before it is opened"
            )
            return count

    return asyncio.run(check())
