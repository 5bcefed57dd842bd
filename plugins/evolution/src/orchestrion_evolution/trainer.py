"""Evolves topologies over the team's own agents, and learnable settings of the config with them."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from attrs import Factory, frozen

from orchestrion import JSON, Meta, OpenContext, Saved, Trainer, UsageError, parse_choice

if TYPE_CHECKING:
    from orchestrion_dag import Graph

    from orchestrion_evolution.genome import Space

__all__ = ["Evolution", "Range", "Strategy"]

Strategy = Literal[
    "nsga2", "mu-plus-lambda", "map-elites", "edge-reinforce", "successive-halving", "random"
]
Baseline = Literal["single", "self-consistency", "random"]
Count = Annotated[int, Meta(ge=1)]


@frozen
class Range:
    """What a setting may be: one of `values`, or a number from `low` to `high`.

    Args:
        values: at least two.
        low: least number.
        high: greatest number.
        whole: numbers without a fraction only.
        log: search by ratios; the range must be above 0.
    """

    values: Sequence[JSON] = ()
    low: float | None = None
    high: float | None = None
    whole: bool = False
    log: bool = False

    def __attrs_post_init__(self) -> None:
        if self.values:
            if len(self.values) < 2 or self.low is not None or self.high is not None:
                raise ValueError("give two values or more, or `low` and `high`, not both")
            return
        if self.low is None or self.high is None or not self.low < self.high:
            raise ValueError("give `values`, or `low` and a greater `high`")
        if self.log and self.low <= 0:
            raise ValueError(f"`log` needs a range above 0, and `low` is {self.low}")


@frozen
class Evolution:
    """Searches graphs of the team's agents for the policy `dag`: reward up, cost down.

    Every graph meets the same training problems with the same keys. At the end the best are
    measured again on fresh draws, the run's policy becomes the one with the best fresh fitness, and
    all of the front is judged on the validation split beside baselines with the same budget.

    Args:
        strategy: `nsga2` for a front; `map-elites` for variety; `mu-plus-lambda`,
            `edge-reinforce` and `successive-halving` for one goal; `random` to compare with.
        evaluations: budget of the search. One evaluation is a graph on `problems` problems; what
            is known is free.
        batch: evaluations in one iteration, which run side by side.
        population: how many graphs may be parents (`nsga2`, `mu-plus-lambda`).
        candidates: graphs in the first rung (`successive-halving`).
        problems: training problems that an evaluation has. Beyond the size of the split problems
            come again with other draws.
        slots: nodes of a graph at most.
        fan_in: inputs of a node at most.
        agents: what nodes may run, "agent" or "agent:option"; everything in the team by default.
        settings: learnable settings to search along with the graph, by config path.
        measure: what counts as cost.
        cost_weight: what a unit of cost takes off the reward, where one goal is needed: in the
            choice from the front, and in strategies with one goal.
        again: share of the evaluations that measure the front again while the search goes on,
            since the luckiest of noisy estimates win; 0 where rewards are exact.
        caution: standard errors taken off the mean reward while searching, for the same reason.
        most_cost: choose nothing from the front that costs more, if something costs less.
        begin: graphs to begin with: every single agent, and the policy's own graph.
        on_error: of every node, see policy `dag`.
        patience: stop searching after so many iterations without a larger hypervolume.
        finalists: graphs that are measured on fresh draws at the end: the front, and what comes
            next to it.
        fresh: how many fresh draws each; four times `problems` by default.
        held_out: validation problems they are judged on at most; 0 for none.
        baselines: what to compare with; `random` doubles the cost of the search.
        aggregator: the agent that makes one result of what it reads, for `self-consistency`.
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
    measure: Literal["cost", "usd", "tokens", "calls", "turns"] = "cost"
    cost_weight: Annotated[float, Meta(ge=0)] = 0.0
    most_cost: Annotated[float, Meta(ge=0)] | None = None
    begin: bool = True
    on_error: Literal["fail", "skip", "continue"] = "continue"
    patience: Count | None = None
    finalists: Count = 16
    fresh: Count | None = None
    held_out: Annotated[int, Meta(ge=0)] = 200
    baselines: Sequence[Baseline] = ("single", "self-consistency", "random")
    aggregator: str = ""

    smoke: ClassVar[Mapping[str, JSON]] = {
        "evaluations": 4,
        "batch": 2,
        "problems": 2,
        "candidates": 4,
        "finalists": 2,
        "fresh": 2,
        "held_out": 2,
    }

    @property
    def searches(self) -> int:
        """How many iterations search: rungs of a race, else batches."""
        if self.strategy == "successive-halving":
            return max(1, math.ceil(math.log2(self.candidates)))
        return math.ceil(self.evaluations / self.batch)

    @property
    def iterations(self) -> int:
        """Those that search, and one that measures what has won."""
        return self.searches + 1

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[Trainer]:
        """Look at the team."""
        from orchestrion_evolution.evolver import Evolver

        yield Evolver(self, self.space(ctx), ctx)

    def front(self, saved: Saved) -> Mapping[str, Graph]:
        """The graphs that a run ended with, by title, for `orchestrion graph RUN --front`."""
        from orchestrion_evolution.exports import front_graphs

        return front_graphs(saved.data["report"]) if saved.data["report"] is not None else {}

    def space(self, ctx: OpenContext) -> Space:
        """What is searched.

        Raises:
            UsageError: a name is no choice of the team.
        """
        from orchestrion_evolution.genome import Setting, Space
        from orchestrion_evolution.topology import names_of

        for name in (*self.agents, *([self.aggregator] if self.aggregator else [])):
            try:
                parse_choice(name, ctx.roster)
            except UsageError as error:
                raise UsageError(f"{ctx.path}: {error}") from None
        settings = tuple(
            Setting(
                path,
                tuple(one.values),
                one.low if one.low is not None else 0.0,
                one.high if one.high is not None else 1.0,
                one.whole,
                one.log,
            )
            for path, one in self.settings.items()
        )
        names = tuple(dict.fromkeys(self.agents)) or names_of(ctx.roster)
        return Space(names, self.slots, self.fan_in, settings)
