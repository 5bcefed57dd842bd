"""What graphs are worth, found out by running them: common random numbers, and nothing twice.

Sample n of a purpose is one training problem with one key, the same for every graph; and an agent
draws the same in all of them (`Aligned`). Results are
kept by canonical graph (with its settings), purpose and sample; what is known is not run again.
Purposes never share a sample's key: "search" compares, "fresh" measures again what has won.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from math import fsum, isnan, nan, sqrt
from typing import Literal

from orchestrion_dag import policy_of
from orchestrion_dag.dag import DagPolicy

from orchestrion import (
    JSON,
    Array,
    Decision,
    Episode,
    Job,
    Key,
    Policy,
    Problem,
    Saved,
    Session,
    Situation,
    UsageError,
    replace,
)
from orchestrion_evolution.fronts import FAILED, Value
from orchestrion_evolution.genome import Genome, Slot, Space
from orchestrion_evolution.topology import OnError, graph_of

__all__ = ["Aligned", "Evaluator", "Measure", "Purpose", "cost_of"]

Measure = Literal["cost", "usd", "tokens", "calls", "turns"]
Purpose = Literal["search", "fresh"]
PURPOSES: tuple[Purpose, ...] = ("search", "fresh")

Sample = tuple[float, float]
"""Reward (NaN if it is missing) and cost of one episode."""


class Evaluator:
    """Runs graphs through the engine and keeps what came of it.

    Args:
        space: what is searched.
        key: of all samples.
        measure: what counts as cost.
        on_error: of every node.
        caution: standard errors taken off a mean in the search, so that graphs that were seen
            seldom do not win by luck.
    """

    def __init__(
        self, space: Space, key: Key, measure: Measure, on_error: OnError, caution: float = 0.0
    ) -> None:
        self.caution = caution
        self.space, self.key, self.measure, self.on_error = space, key, measure, on_error
        self.samples: dict[tuple[Purpose, Genome], list[Sample]] = {}
        self.episodes = 0
        """How many were run."""

    async def values(
        self, session: Session, wanted: Sequence[tuple[Genome, int]], purpose: Purpose = "search"
    ) -> list[Value]:
        """The means over the first so many samples of each graph; all that is missing runs at once.

        A reward that is missing is left out; a graph without any has failed.
        """
        todo: dict[tuple[float, ...], dict[tuple[Genome, int], None]] = {}
        for graph, count in wanted:
            for n in range(len(self.samples.get((purpose, graph), ())), count):
                todo.setdefault(graph.settings, {})[graph, n] = None
        for settings, work in todo.items():
            await self._run(session, settings, list(work), purpose)
        return [self._value(purpose, graph, count) for graph, count in wanted]

    async def _run(
        self,
        session: Session,
        settings: tuple[float, ...],
        work: Sequence[tuple[Genome, int]],
        purpose: Purpose,
    ) -> None:
        """One rollout: graphs with the same settings run side by side."""
        problems = self._problems(session)
        async with AsyncExitStack() as stack:
            if settings:
                overlay = self.space.overlay(work[0][0])
                session = await stack.enter_async_context(session.build(overlay))
            policies = {graph: Aligned(self.policy(session, graph)) for graph, _ in work}
            jobs = [
                Job(
                    problems[n % len(problems)],
                    self.key.child(purpose, n),
                    policies[graph],
                    training=False,
                )
                for graph, n in work
            ]
            episodes = await session.rollout(jobs)
        self.episodes += len(episodes)
        for (graph, _), episode in zip(work, episodes, strict=True):
            known = self.samples.setdefault((purpose, graph), [])
            known.append((_reward(episode), cost_of(episode, self.measure)))

    def _problems(self, session: Session) -> list[Problem]:
        problems = list(session.problems("train"))
        if not problems:
            raise UsageError("the task has no training problems to evaluate topologies on")
        self.key.child("problems").random().shuffle(problems)
        return problems

    def policy(self, session: Session, graph: Genome) -> DagPolicy:
        """The policy that runs a graph, just as policy `dag` does with its config."""
        return policy_of(graph_of(graph, self.space.choices, self.on_error), session.roster)

    async def held_out(self, session: Session, graph: Genome, limit: int) -> list[Episode]:
        """One episode on each validation problem, or on the first `limit`."""
        async with AsyncExitStack() as stack:
            if graph.settings:
                overlay = self.space.overlay(graph)
                session = await stack.enter_async_context(session.build(overlay))
            policy = self.policy(session, graph)
            episodes = await session.evaluate("validation", policy, limit)
        self.episodes += len(episodes)
        return episodes

    def _value(self, purpose: Purpose, graph: Genome, count: int) -> Value:
        samples = self.samples.get((purpose, graph), [])[:count]
        rewards = [reward for reward, _ in samples if not isnan(reward)]
        if not rewards:
            return FAILED
        cost = fsum(cost for _, cost in samples) / len(samples)
        mean = fsum(rewards) / len(rewards)
        if purpose == "search" and self.caution and len(rewards) > 1:
            spread = fsum((one - mean) ** 2 for one in rewards) / (len(rewards) - 1)
            mean -= self.caution * sqrt(spread / len(rewards))
        return Value(mean, cost, len(samples))

    # -------------------------------------------------------------------- state

    def save(self) -> Saved:
        """Every sample."""
        arrays: dict[str, Array] = {}
        data: dict[str, JSON] = {}
        for purpose in PURPOSES:
            items = [(graph, rows) for (of, graph), rows in self.samples.items() if of == purpose]
            flat = array("d", (number for _, rows in items for row in rows for number in row))
            arrays[purpose] = Array("F64", (len(flat) // 2, 2), _little(flat.tobytes()))
            data[purpose] = [[as_json(graph), len(rows)] for graph, rows in items]
        return Saved(arrays, {"samples": data, "episodes": self.episodes})

    def load(self, saved: Saved) -> None:
        """Take over saved samples."""
        self.samples = {}
        for purpose in PURPOSES:
            flat = array("d", _little(saved.arrays[purpose].data))
            rows: Iterator[Sample] = zip(flat[::2], flat[1::2], strict=True)
            for graph, count in saved.data["samples"][purpose]:
                key = (purpose, from_json(graph))
                self.samples[key] = [next(rows) for _ in range(count)]
        self.episodes = saved.data["episodes"]


class Aligned(Policy):
    """A graph level by level, so that what an agent draws does not depend on the graph.

    A turn that a policy numbers draws by its agent and that number, and the number says where in
    its graph the node stands. Without one it draws by how often the agent acted before: two graphs
    that ask the same agent get the same from it on the same sample, and differ by what else they
    do. For that the order of starts has to be certain, so a level waits for the one before it;
    turns stand in the same order as under policy `dag` itself.
    """

    def __init__(self, inner: DagPolicy) -> None:
        self.inner = inner

    def decide(self, situations: Sequence[Situation], keys: Sequence[Key]) -> Sequence[Decision]:
        """What `dag` starts, all together, and without numbers where they go without saying."""
        decisions = self.inner.decide(situations, keys)
        return [_unnumbered(s, d) for s, d in zip(situations, decisions, strict=True)]


def _unnumbered(situation: Situation, decision: Decision) -> Decision:
    if not decision.start:
        return decision
    start, number = [], 1 + max((turn.index for turn in situation.trajectory.turns), default=-1)
    for one in decision.start:
        # A node that was passed over leaves a gap: whoever comes after it keeps its number.
        start.append(replace(one, index=None) if one.index == number else one)
        number = number + 1 if one.index is None else one.index + 1
    return Decision(tuple(start))


def _little(data: bytes) -> bytes:
    """Numbers of this machine as little-endian ones, or the other way round."""
    if sys.byteorder == "little":
        return data
    numbers = array("d", data)
    numbers.byteswap()
    return numbers.tobytes()


def _reward(episode: Episode) -> float:
    return nan if episode.reward is None else episode.reward.total


def cost_of(episode: Episode, measure: Measure) -> float:
    """What an episode took."""
    if measure == "turns":
        return float(len(episode.trajectory))
    return float(getattr(episode.usage, measure))


def as_json(genome: Genome) -> JSON:
    """A genome as plain data."""
    return [[list(slot) for slot in genome.slots], list(genome.settings)]


def from_json(data: JSON) -> Genome:
    """The inverse of `as_json`."""
    slots, settings = data
    return Genome(tuple(Slot(*slot) for slot in slots), tuple(settings))
