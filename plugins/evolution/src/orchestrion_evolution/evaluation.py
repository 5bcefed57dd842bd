"""The values of graphs, measured by running them: common random numbers, and nothing runs twice.

Sample n of a purpose is one training problem with one key, the same for every graph, and an agent
draws the same numbers on it in every graph (see `Aligned`). Samples are kept by canonical graph,
settings included. The purposes share no key: "search" compares graphs, "fresh" measures the
winners again.
"""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from math import fsum, isnan, nan, sqrt
from typing import Literal

from attrs import asdict, frozen
from orchestrion_dag import DagPolicy, policy_of

from orchestrion import (
    JSON,
    Array,
    Decision,
    Episode,
    Job,
    Key,
    Policy,
    Saved,
    Session,
    Situation,
    replace,
)
from orchestrion.runs import estimate
from orchestrion_evolution.genome import Genome, OnError, Space, genome_from_json, graph_of
from orchestrion_evolution.search import FAILED, Value

Measure = Literal["cost", "usd", "tokens", "calls", "turns"]
Purpose = Literal["search", "fresh"]

Sample = tuple[float, float]
"""The reward (NaN if it is missing) and the cost of one episode."""


@frozen
class HeldOut:
    """What a graph got on the validation problems, by problem id; missing rewards are left out."""

    rewards: Mapping[str, float]
    costs: Mapping[str, float]
    solved: Mapping[str, float]

    def as_json(self, key: Key) -> JSON:
        """Return the means with intervals; the key is that of the bootstrap."""
        return {
            "reward": _estimate(list(self.rewards.values()), key),
            "cost": _estimate(list(self.costs.values()), key),
            "solved": _estimate(list(self.solved.values()), key),
        }

    def ahead_of(self, other: HeldOut, cost_weight: float, key: Key) -> JSON:
        """Return the mean difference in reward less weighted cost, problem by problem."""
        differences = [
            (self.rewards[problem] - cost_weight * self.costs[problem])
            - (other.rewards[problem] - cost_weight * other.costs[problem])
            for problem in self.rewards
            if problem in other.rewards
        ]
        return _estimate(differences, key.child("paired"))


def _estimate(numbers: Sequence[float], key: Key) -> JSON:
    """Return a mean with its interval as JSON; NaN, the mean of no numbers, becomes None."""
    fields = asdict(estimate(numbers, key))
    return {name: None if isnan(number) else number for name, number in fields.items()}


class Evaluator:
    """Runs graphs and keeps their samples.

    Args:
        space: the graphs that are searched.
        key: the key of all samples.
        measure: what counts as cost.
        on_error: of every node.
        caution: standard errors to subtract from a mean reward in the search, so that graphs with
            few samples do not win by luck.
    """

    def __init__(
        self, space: Space, key: Key, measure: Measure, on_error: OnError, caution: float = 0.0
    ) -> None:
        self.space, self.key, self.measure = space, key, measure
        self.on_error, self.caution = on_error, caution
        self.samples: dict[tuple[Purpose, Genome], list[Sample]] = {}
        self.episodes = 0
        """The number of episodes that ran."""

    async def values(
        self, session: Session, counts: Mapping[Genome, int], purpose: Purpose = "search"
    ) -> dict[Genome, Value]:
        """Return the mean over the first samples of each graph, as many as given; run what is new.

        Missing rewards are left out of the mean; a graph without any reward has `FAILED`. Graphs
        with equal settings run side by side.
        """
        new: dict[tuple[float, ...], list[tuple[Genome, int]]] = {}
        for graph, count in counts.items():
            for n in range(len(self.samples.get((purpose, graph), ())), count):
                new.setdefault(graph.settings, []).append((graph, n))
        for same_settings in new.values():
            await self._run(session, same_settings, purpose)
        return {graph: self._value(purpose, graph, count) for graph, count in counts.items()}

    async def _run(
        self, session: Session, samples: Sequence[tuple[Genome, int]], purpose: Purpose
    ) -> None:
        problems = list(session.problems("train"))
        self.key.child("problems").random().shuffle(problems)
        async with self._with_settings(session, samples[0][0]) as configured:
            policies = {
                graph: Aligned(self.policy(configured, graph))
                for graph in dict.fromkeys(graph for graph, _ in samples)
            }
            episodes = await configured.rollout(
                [
                    Job(
                        problems[n % len(problems)],
                        self.key.child(purpose, n),
                        policies[graph],
                        training=False,
                    )
                    for graph, n in samples
                ]
            )
        self.episodes += len(episodes)
        for (graph, _), episode in zip(samples, episodes, strict=True):
            reward = nan if episode.reward is None else episode.reward.total
            sample = (reward, cost_of(episode, self.measure))
            self.samples.setdefault((purpose, graph), []).append(sample)

    @asynccontextmanager
    async def _with_settings(self, session: Session, graph: Genome) -> AsyncIterator[Session]:
        """Give a session in which the config has the settings of a graph."""
        if not graph.settings:
            yield session
            return
        async with session.build(self.space.overlay(graph)) as configured:
            yield configured

    def policy(self, session: Session, graph: Genome) -> DagPolicy:
        """Return the policy that runs a graph, as `dag` does with the graph's config."""
        return policy_of(graph_of(graph, self.space.choices, self.on_error), session.roster)

    async def held_out(self, session: Session, graph: Genome, limit: int) -> HeldOut:
        """Return what a graph gets on the first `limit` validation problems."""
        async with self._with_settings(session, graph) as configured:
            policy = self.policy(configured, graph)
            episodes = await configured.evaluate("validation", policy, limit)
        self.episodes += len(episodes)
        return HeldOut(
            {e.problem.id: e.reward.total for e in episodes if e.reward is not None},
            {e.problem.id: cost_of(e, self.measure) for e in episodes},
            {e.problem.id: float(e.success) for e in episodes},
        )

    def _value(self, purpose: Purpose, graph: Genome, count: int) -> Value:
        samples = self.samples.get((purpose, graph), [])[:count]
        rewards = [reward for reward, _ in samples if not isnan(reward)]
        if not rewards:
            return FAILED
        cost = fsum(cost for _, cost in samples) / len(samples)
        mean = fsum(rewards) / len(rewards)
        if purpose == "search" and self.caution and len(rewards) > 1:
            variance = fsum((reward - mean) ** 2 for reward in rewards) / (len(rewards) - 1)
            mean -= self.caution * sqrt(variance / len(rewards))
        return Value(mean, cost, len(samples))

    def save(self) -> Saved:
        """Return all samples: [n, 2] numbers, and how many of them belong to each graph."""
        numbers = [x for samples in self.samples.values() for sample in samples for x in sample]
        array = Array("F64", (len(numbers) // 2, 2), struct.pack(f"<{len(numbers)}d", *numbers))
        counts = [[*key, len(samples)] for key, samples in self.samples.items()]
        return Saved({"samples": array}, {"samples": counts, "episodes": self.episodes})

    def load(self, saved: Saved) -> None:
        """Restore what `save` returned."""
        pairs = struct.iter_unpack("<2d", saved.arrays["samples"].data)
        self.samples = {
            (purpose, genome_from_json(graph)): [next(pairs) for _ in range(count)]
            for purpose, graph, count in saved.data["samples"]
        }
        self.episodes = saved.data["episodes"]


def cost_of(episode: Episode, measure: Measure) -> float:
    """Return the cost of an episode in the given measure."""
    if measure == "turns":
        return float(len(episode.trajectory))
    return float(getattr(episode.usage, measure))


class Aligned(Policy):
    """Runs a graph so that the random numbers of an agent do not depend on the graph.

    Policy `dag` numbers a turn by the position of its node in the graph, and an agent draws by the
    number of its turn. A turn without a number draws by how often the agent acted before. Without
    numbers, two graphs that ask the same agent therefore get the same answer on the same sample,
    and they differ only by what else they do. The order of the turns stays that of `dag`.
    """

    portable = True

    def __init__(self, inner: DagPolicy) -> None:
        self.inner = inner

    def decide(self, situations: Sequence[Situation], keys: Sequence[Key]) -> Sequence[Decision]:
        """Return the decisions of `dag`; each waits for all that it starts, and has no numbers."""
        decisions = self.inner.decide(situations, keys)
        return [
            _without_numbers(situation, decision)
            for situation, decision in zip(situations, decisions, strict=True)
        ]


def _without_numbers(situation: Situation, decision: Decision) -> Decision:
    if not decision.start:
        return decision
    start = []
    following = 1 + max((turn.index for turn in situation.trajectory.turns), default=-1)
    for activation in decision.start:
        # After a skipped node there is a gap. The turn behind the gap must keep its number.
        is_next = activation.index == following
        start.append(replace(activation, index=None) if is_next else activation)
        following = following + 1 if activation.index is None else activation.index + 1
    return Decision(tuple(start))
