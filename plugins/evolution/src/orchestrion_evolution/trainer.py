"""The trainer `evolution`: its settings, and the check of them against the team."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Annotated, Literal

from attrs import Factory, frozen
from orchestrion_dag import Graph

from orchestrion import (
    JSON,
    Meta,
    OpenContext,
    Plan,
    Saved,
    Split,
    Trainer,
    UsageError,
    choice_name,
    choices,
    parse_choice,
    refuse_idle,
)
from orchestrion_evolution.evaluation import Measure
from orchestrion_evolution.genome import OnError, Range, Space
from orchestrion_evolution.report import front_graphs

Strategy = Literal["nsga2", "successive-halving", "random"]
Baseline = Literal["single", "self-consistency", "random"]
Count = Annotated[int, Meta(ge=1)]

MOST_VOTERS = 32
"""How often self-consistency asks an agent at most."""


@frozen
class Evolution:
    """Searches graphs of the team's agents for the policy `dag`: reward up, cost down.

    All graphs meet the same training problems with the same keys. At the end, the best graphs are
    measured again on fresh draws, and the run's policy becomes the one with the best fresh fitness.
    The whole front is then judged on the validation split, beside baselines with the same budget.

    Args:
        strategy: `nsga2` finds a front; `successive-halving` finds one graph among many
            candidates; `random` is the baseline of both.
        evaluations: budget of the search. An evaluation runs a graph on `problems` problems; a
            graph that is known costs nothing.
        batch: evaluations in one iteration, which run side by side.
        population: how many graphs survive as parents (`nsga2`).
        candidates: graphs in the first rung (`successive-halving`).
        problems: training problems in an evaluation. If the split has fewer, problems are repeated
            with other draws.
        slots: maximum number of nodes in a graph.
        fan_in: maximum number of inputs of a node.
        agents: what nodes can run, "agent" or "agent:option"; by default everything in the team.
        settings: learnable settings to search along with the graph, by config path.
        measure: what counts as cost.
        cost_weight: reward that one unit of cost is worth, wherever one graph must be chosen: from
            the front, and in `successive-halving`.
        again: share of the evaluations that measure the front again during the search, because the
            luckiest of noisy values wins; 0 where rewards are exact.
        caution: standard errors to subtract from mean rewards in the search, for the same reason.
        most_cost: choose a graph that costs no more than this, if there is one.
        begin: begin with every single agent and with the policy's own graph.
        on_error: of every node, see policy `dag`.
        patience: stop the search after this many iterations without a larger hypervolume.
        finalists: graphs to measure on fresh draws at the end: the front and what is next to it.
        fresh: fresh draws for each of them; by default four times `problems`.
        held_out: maximum number of validation problems to judge the front on; 0 for none.
        baselines: what to compare with; `random` doubles the cost of the search.
        aggregator: the agent that makes one result of those it reads, for `self-consistency`.
    """

    strategy: Strategy = "nsga2"
    evaluations: Count = 400
    batch: Count = 20
    population: Annotated[int, Meta(ge=2)] = 50
    candidates: Annotated[int, Meta(ge=2)] = 128
    problems: Count = 16
    slots: Annotated[int, Meta(ge=1, le=16)] = 5
    fan_in: Count | None = None
    agents: Sequence[str] = ()
    settings: Mapping[str, Range] = Factory(dict)
    again: Annotated[float, Meta(ge=0, le=0.9)] = 0.25
    caution: Annotated[float, Meta(ge=0)] = 0.0
    measure: Measure = "cost"
    cost_weight: Annotated[float, Meta(ge=0)] = 0.0
    most_cost: Annotated[float, Meta(ge=0)] | None = None
    begin: bool = True
    on_error: OnError = "continue"
    patience: Count | None = None
    finalists: Count = 16
    fresh: Count | None = None
    held_out: Annotated[int, Meta(ge=0)] = 200
    baselines: Sequence[Baseline] = ("single", "self-consistency", "random")
    aggregator: str = ""

    def __attrs_post_init__(self) -> None:
        strategy = f"with `strategy: {self.strategy}`"
        if self.strategy != "successive-halving":
            refuse_idle(self, ("candidates",), strategy)
        if self.strategy != "nsga2":
            refuse_idle(self, ("population",), strategy)
        if "self-consistency" not in self.baselines:
            refuse_idle(self, ("aggregator",), "without `self-consistency` in `baselines`")

    @property
    def smoke(self) -> Mapping[str, JSON]:
        """Return the settings of a small run."""
        small = {"evaluations": 4, "batch": 2, "problems": 2}
        small |= {"finalists": 2, "fresh": 2, "held_out": 2}
        return small | {"candidates": 4} if self.strategy == "successive-halving" else small

    @property
    def searches(self) -> int:
        """Return how many iterations search: rungs of successive halving, or batches."""
        if self.strategy == "successive-halving":
            return max(1, math.ceil(math.log2(self.candidates)))
        return math.ceil(self.evaluations / self.batch)

    @property
    def iterations(self) -> int:
        """Return how many iterations there are: one more, which measures the leaders."""
        return self.searches + 1

    @property
    def votes(self) -> bool:
        """Return whether self-consistency is one of the baselines."""
        return bool(self.aggregator) and "self-consistency" in self.baselines

    @property
    def fresh_samples(self) -> int:
        """Return on how many fresh draws a finalist is measured."""
        return self.fresh or 4 * self.problems

    def plan(self, i: int, sizes: Mapping[Split, int], choices: int) -> Plan:
        """Return an upper bound: samples that are known already do not run again."""
        if i < self.searches:
            if self.strategy == "successive-halving":
                episodes = 0 if i else self.problems * self.evaluations  # of all rungs together
            else:
                episodes = self.problems * min(self.batch, self.evaluations - i * self.batch)
            return Plan(turns=episodes * self.slots, verdicts=episodes)
        rivals = len(self.baselines)
        held_out = min(self.held_out, sizes["validation"])
        episodes = (self.finalists + rivals + 2) * self.fresh_samples
        episodes += (self.finalists + rivals) * held_out
        episodes += self.evaluations * self.problems if "random" in self.baselines else 0
        single = choices * self.problems if rivals else 0
        turns = episodes * self.slots + single
        if self.votes:
            turns += (self.fresh_samples + held_out) * (MOST_VOTERS + 1)
            turns += self.fresh_samples * 3
        return Plan(turns=turns, verdicts=episodes + single)

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[Trainer]:
        """Give the trainer.

        Raises:
            UsageError: `agents` or `aggregator` names no choice of the team, or `agents` leaves
                the aggregator out.
        """
        for name in (*self.agents, *([self.aggregator] if self.aggregator else [])):
            parse_choice(name, ctx.roster, ctx.path)
        if self.votes and self.agents and self.aggregator not in self.agents:
            raise UsageError(
                f"{ctx.path}.aggregator: {self.aggregator!r} is not in `agents`; add it there, or "
                "leave `self-consistency` out of `baselines`"
            )
        names = self.agents or [choice_name(choice) for choice in choices(ctx.roster)]
        space = Space(tuple(dict.fromkeys(names)), self.slots, self.fan_in, self.settings)
        # Not above: it needs these settings.
        from orchestrion_evolution.evolver import Evolver

        yield Evolver(self, space, ctx)

    def front(self, saved: Saved) -> Mapping[str, Graph]:
        """Return the graphs that a run ended with, by title, for `orchestrion graph --front`."""
        return front_graphs(saved.data["report"]) if saved.data["report"] is not None else {}
