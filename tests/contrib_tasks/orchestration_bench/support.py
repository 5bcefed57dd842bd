"""Teams, tables and slow but obvious reference values for the tests of orchestration_bench."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from hypothesis import strategies as st
from orchestrion_orchestration_bench.agents import options_for, play
from orchestrion_orchestration_bench.committee import Committee
from orchestrion_orchestration_bench.process import Process, evaluate, uniform
from orchestrion_orchestration_bench.relay import Relay, Worker
from orchestrion_orchestration_bench.rollout import roll_out
from orchestrion_orchestration_bench.solved import Team
from orchestrion_orchestration_bench.stop import Stop

from orchestrion import (
    Agent,
    Decision,
    Episode,
    Key,
    Member,
    Observation,
    Scores,
    Situation,
    Step,
    Turn,
    choices,
    is_blocked,
)
from orchestrion.testing import Fixed, opened_engine

Chooser = Callable[[Observation], Mapping[str, float]]


def relay_team(task: Relay) -> list[Member]:
    """Every agent of the table, and one that stops."""
    return [*(Member(name) for name in task.agents), Member("stop")]


def stop_team(task: Stop) -> list[Member]:
    """Every row of the tables."""
    return [Member(name) for name in (*task.solvers, *task.checkers, "submit", "abstain")]


def committee_team(task: Committee) -> list[Member]:
    """Every type of member."""
    return [Member(name, options_for(task.slots)) for name in task.members]


class Uniform:
    """Takes every choice that is not blocked equally often; says no probabilities."""

    def __init__(self, roster: Sequence[Member]) -> None:
        self.known = choices(roster)

    def decide(self, situations: Sequence[Situation], keys: Sequence[Key]) -> list[Decision]:
        """One draw a situation."""
        found = []
        for situation, key in zip(situations, keys, strict=True):
            free = [c for c in self.known if not is_blocked(c, situation.observation)]
            found.append(Decision((free[int(key.uniform() * len(free))],)))
        return found


def call(
    task: Relay | Stop | Committee, step: Step, row: str, key: Key, option: str | None = None
) -> Step:
    """The environment after one call of a row."""
    return task.step(step.state, Turn(0, row, option, play(row, option, step.observation)), key)


def run(
    task: Any, agents: Mapping[str, Agent], steps: Sequence[Any], seed: int = 1, problem: int = 0
) -> tuple[Episode, Scores]:
    """An episode in the engine with a fixed sequence, and its scores."""

    async def played() -> Episode:
        async with opened_engine(dict(agents), Fixed(steps), task) as engine:
            return await engine.run("e", task.problems("train")[problem], Key(seed))

    episode = asyncio.run(played())
    assert episode.scores is not None
    return episode, episode.scores


def agrees_with_random_play(
    task: Relay | Stop, process: Process, roster: Sequence[Member], seed: int, dearest: float
) -> bool:
    """Whether 400 random episodes of each type are worth what the process says of random choices.

    Within five standard errors of a number that lies in [0, span]; no call costs over `dearest`.
    """
    worth = evaluate(process, uniform(process), 1.0)
    team, policy = Team.of(process, roster), Uniform(roster)
    parts = [
        roll_out(task, policy.decide, team, kind, 400, Key(seed).child(i), training=True)
        for i, kind in enumerate(task.rules.kinds)
    ]
    results = np.concatenate(parts)
    spans = np.array([1.0, dearest * task.horizon, task.horizon])
    error = np.abs(results.mean(axis=0) - (worth.quality, worth.cost, worth.calls))
    return bool((error <= 5 * spans / (2 * np.sqrt(len(results)))).all())


def reference_value(task: Relay, weight: float) -> float:
    """Relay's best value, straight from its definition: sets of skills and plain recursion."""

    def worth(required: frozenset[str], done: frozenset[str]) -> float:
        share = len(required & done) / len(required)
        return 1.0 if share == 1 else task.partial * share

    def ready(required: frozenset[str], done: frozenset[str], skill: str) -> bool:
        needs = set(task.prerequisites.get(skill, ())) & required
        return skill in required and skill not in done and needs <= done

    @lru_cache(None)
    def best(required: frozenset[str], done: frozenset[str], calls: int) -> float:
        stop = worth(required, done)
        if calls == task.horizon:
            return stop
        return max([stop, *(after(required, done, calls, one) for one in task.agents)])

    def after(required: frozenset[str], done: frozenset[str], calls: int, name: str) -> float:
        worker = task.agents[name]
        able = [
            skill
            for skill in task.skills
            if ready(required, done, skill) and worker.skills.get(skill, 0) > 0
        ]
        skill = max(able, key=lambda one: worker.skills[one], default=None)
        chance = worker.skills[skill] if skill is not None else 0.0
        last = max(done, key=task.skills.index, default=None)
        total = -weight * worker.cost
        for succeeds in (True, False):
            for breaks in (True, False):
                then = set(done)
                if succeeds and skill is not None:
                    then.add(skill)
                if breaks and last is not None:
                    then.discard(last)
                likely = chance if succeeds else 1 - chance
                likely *= worker.breaks if breaks else 1 - worker.breaks
                if likely:
                    total += likely * best(required, frozenset(then), calls + 1)
        return total

    values = [best(frozenset(required), frozenset(), 0) for required in task.types.values()]
    return sum(values) / len(values)


probabilities = st.sampled_from([0.0, 0.1, 0.35, 0.5, 0.8, 1.0])
prices = st.sampled_from([0.0, 0.01, 0.1, 0.3])


@st.composite
def relays(draw: st.DrawFn) -> Relay:
    """Small tables of every shape."""
    skills = tuple("abcd"[: draw(st.integers(1, 4))])
    some = st.lists(st.sampled_from(skills), unique=True)
    needs = {
        skill: tuple(s for s in draw(some) if s < skill) for skill in skills if draw(st.booleans())
    }
    types = draw(
        st.dictionaries(
            st.sampled_from(["x", "y", "z"]),
            st.lists(st.sampled_from(skills), min_size=1, unique=True).map(tuple),
            min_size=1,
        )
    )
    workers = st.builds(
        Worker,
        st.dictionaries(st.sampled_from(skills), probabilities),
        prices,
        probabilities,
    )
    agents = draw(st.dictionaries(st.sampled_from(["one", "two", "three"]), workers, min_size=1))
    return Relay(skills, needs, types, agents, draw(probabilities), draw(st.integers(1, 4)))
