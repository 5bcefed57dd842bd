"""The aggregator `mixture`: an agent reads all answers and writes the result."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

from attrs import evolve, frozen

from orchestrion import JSON, Agent, Key, OpenContext, Problem, UsageError
from orchestrion_ensemble.interfaces import Aggregator, Ballot, Example, Result
from orchestrion_ensemble.votes import Plurality

__all__ = ["Mixture"]


@frozen
class Mixture:
    """Mixture of agents (Wang et al. 2024): the integrator reads what all members said.

    It is a member of the inner team that acts last, so its turn, its cost and its failures are
    on record like theirs. If it fails or says nothing, `fallback` decides on the answers.

    Args:
        integrator: the agent; it leaves the outer team.
        fallback: what decides without it; by default `plurality`.
    """

    integrator: Agent
    fallback: Aggregator | None = None

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[Aggregator]:
        """Learn the integrator's name."""
        [name] = ctx.names["integrator"]
        if getattr(self.integrator, "options", ()):
            raise UsageError(f"{ctx.path}.integrator: {name} has options; take an agent without")
        yield _Opened(name, self.integrator, self.fallback or Plurality())


@frozen
class _Opened(Aggregator):
    name: str
    integrator: Agent
    fallback: Aggregator

    def combine(self, ballots: Sequence[Ballot], problem: Problem, key: Key) -> Result:
        result = self.fallback.combine(ballots, problem, key)
        note = f"{self.name} gave no answer: decided by the fallback"
        return evolve(result, notes=(*result.notes, note))

    def reader(self) -> tuple[str, Agent]:
        return self.name, self.integrator

    def learn(self, examples: Sequence[Example], key: Key) -> Mapping[str, JSON]:
        raise UsageError("a mixture has no weights; train the ensemble without it, or its agents")
