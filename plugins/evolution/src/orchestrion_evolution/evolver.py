"""The trainer at work: ask, evaluate, tell, iteration by iteration; then measure what has won."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from orchestrion_dag import as_config
from orchestrion_dag.dag import DagPolicy

from orchestrion import (
    JSON,
    CheckpointError,
    Metrics,
    OpenContext,
    Plan,
    Saved,
    Session,
    Split,
    Trainer,
    UsageError,
)
from orchestrion_evolution.edges import EdgeReinforce
from orchestrion_evolution.evaluation import Evaluator, as_json, from_json
from orchestrion_evolution.final import final_plan
from orchestrion_evolution.fronts import FAILED, Value, hypervolume
from orchestrion_evolution.genome import Genome, Space, canonical
from orchestrion_evolution.grid import MapElites
from orchestrion_evolution.populations import NSGA2, MuPlusLambda
from orchestrion_evolution.racing import SuccessiveHalving
from orchestrion_evolution.search import RandomSearch, Search, Told, Trial
from orchestrion_evolution.topology import genome_of, graph_of

if TYPE_CHECKING:
    from orchestrion_evolution.trainer import Evolution

__all__ = ["Evolver", "choose", "overlay_of", "strategy"]

POLICY = "policy"
"""Where the policy that is trained stands in the config."""
MOST_TIMES = 8
"""A graph of the front is measured at most so often while the search goes on."""


def strategy(settings: Evolution, space: Space, seeds: Sequence[Genome] = ()) -> Search:
    """A fresh strategy, as the settings say."""
    weight = settings.cost_weight
    match settings.strategy:
        case "nsga2":
            return NSGA2(space, settings.population, weight, seeds)
        case "mu-plus-lambda":
            return MuPlusLambda(space, settings.population, weight, seeds)
        case "map-elites":
            return MapElites(space, weight, seeds)
        case "edge-reinforce":
            return EdgeReinforce(space, weight, seeds)
        case "successive-halving":
            budget = settings.evaluations * settings.problems
            return SuccessiveHalving(space, settings.candidates, budget, weight, seeds)
        case "random":
            return RandomSearch(space, weight)


def overlay_of(genome: Genome, settings: Evolution, space: Space) -> dict[str, JSON]:
    """What makes the run's policy this genome, by config path."""
    config = as_config(graph_of(genome, space.choices, settings.on_error))
    graph = {f"{POLICY}.{name}": value for name, value in config.items()}
    return {f"{POLICY}.chain": "", **graph, **space.overlay(genome)}


def choose(items: Sequence[tuple[Genome, Value]], settings: Evolution) -> Genome:
    """The fittest of those that do not cost too much; the cheapest if all do."""
    most = math.inf if settings.most_cost is None else settings.most_cost
    within = [item for item in items if item[1].cost <= most]
    if not within:
        return min(items, key=lambda item: item[1].cost)[0]
    return max(within, key=lambda item: item[1].quality - settings.cost_weight * item[1].cost)[0]


class Batch(NamedTuple):
    """What one iteration found out: of new graphs, and of known ones by measuring them again."""

    told: list[Told]
    corrected: list[Told]

    def tell(self, search: Search) -> None:
        """All of it, in order."""
        search.tell(self.told)
        if self.corrected:
            search.correct(self.corrected)


class Evolver(Trainer):
    """The runtime of trainer `evolution`. All it knows is what was told, batch by batch."""

    def __init__(self, settings: Evolution, space: Space, ctx: OpenContext) -> None:
        self.settings, self.space = settings, space
        self.path, self.directory = ctx.path, ctx.directory
        self.key = ctx.key
        self.evaluator = self._evaluator()
        self.seeds: tuple[Genome, ...] | None = None
        self.batches: list[Batch] = []
        self.volumes: list[float] = []
        self.reference: tuple[float, float] | None = None
        self.chosen: Genome | None = None
        self.report: JSON = None
        """What the last iteration found, see `final.Report`."""
        self.search: Search = strategy(settings, space)

    def _evaluator(self) -> Evaluator:
        settings = self.settings
        key = self.key.child("samples")
        return Evaluator(self.space, key, settings.measure, settings.on_error, settings.caution)

    @property
    def iterations(self) -> int:
        """See `Evolution.iterations`."""
        return self.settings.iterations

    def plan(self, i: int, sizes: Mapping[Split, int], turns: int | None) -> Plan | None:
        """See `Trainer.plan`: a bound, since what is known already is not measured again.

        A race has a budget for all of its rungs; it is counted with the first.
        """
        s = self.settings
        nodes = s.slots if turns is None else min(s.slots, turns)
        if i < s.searches:
            race = s.strategy == "successive-halving"
            size = min(s.batch, s.evaluations - i * s.batch)
            episodes = s.problems * ((0 if i else s.evaluations) if race else size)
            return Plan(episodes * nodes, episodes, forked=False)
        return final_plan(s, len(self.space.choices), sizes, nodes)

    def check(self, session: Session) -> None:
        """Refuse another policy than `dag`, and what there is no problem or no agent for."""
        if not isinstance(session.policy, DagPolicy):
            raise UsageError(
                f"{self.path}: the trainer evolution trains the policy dag; write "
                "`policy: {use: dag, chain: AGENT}` with any agent of the team to begin with"
            )
        there = {member.name for member in session.roster}
        gone = sorted({one.partition(":")[0] for one in self.space.choices} - there)
        if gone:
            raise UsageError(f"{self.path}.agents: not in this team: {', '.join(gone)}")
        if not session.problems("train"):
            raise UsageError(f"{self.path}: the task has no training problems to search on")
        if self.settings.held_out and not session.problems("validation"):
            raise UsageError(
                f"{self.path}: the task has no validation problems to judge the front on; give it "
                "some, or set `held_out: 0`"
            )

    async def iterate(self, i: int, session: Session) -> Metrics:
        """Search on, or measure what has won."""
        self.check(session)
        if self.seeds is None:
            self._begin(session)
        if i < self.settings.searches:
            return await self._search(i, session)
        from orchestrion_evolution.final import conclude

        return await conclude(self, session)

    def _begin(self, session: Session) -> None:
        seeds: list[Genome] = []
        if self.settings.begin:
            middle = self.space.singles()
            own = genome_of(session.policy.plan, self.space.choices)
            if own is not None and len(own.slots) <= self.space.slots:
                seeds.append(Genome(own.slots, middle[0].settings))
            seeds += middle
        self.seeds = tuple(dict.fromkeys(canonical(one) for one in seeds))
        self.search = strategy(self.settings, self.space, self.seeds)

    # -------------------------------------------------------------------- the search

    async def _search(self, i: int, session: Session) -> Metrics:
        if self._is_stuck():
            return self._metrics([], 0, 0)
        before, ran = len(self.search.known), self.evaluator.episodes
        size = min(self.settings.batch, self.settings.evaluations - i * self.settings.batch)
        again = self._front_again(size)
        trials = self.search.ask(size - len(again), session.key.child("ask"))
        batch = await self.measure(self.search, session, trials, again)
        told = batch.told
        self.batches.append(batch)
        self._measure_volume()
        found = self._finest()
        if found is not None and found != self.chosen:
            self.chosen = found
            session.adopt(overlay_of(found, self.settings, self.space))
        new = len(self.search.known) - before
        return self._metrics(told, new, self.evaluator.episodes - ran)

    async def measure(
        self,
        search: Search,
        session: Session,
        trials: Sequence[Trial],
        again: Sequence[tuple[Genome, int]] = (),
    ) -> Batch:
        """Evaluate trials, and graphs again on so many samples, side by side; tell a strategy."""
        new = [(one.graph, one.samples or self.settings.problems) for one in trials]
        values = await self.evaluator.values(session, [*new, *again])
        told = [Told(one.genome, value) for one, value in zip(trials, values, strict=False)]
        corrected = [
            Told(graph, value)
            for (graph, _), value in zip(again, values[len(trials) :], strict=True)
        ]
        batch = Batch(told, corrected)
        batch.tell(search)
        return batch

    def _front_again(self, size: int) -> list[tuple[Genome, int]]:
        """Those of the front that were seen least, and on how many samples they are to be seen."""
        if isinstance(self.search, SuccessiveHalving) or not self.search.known:
            return []
        problems = self.settings.problems
        count = int(self.settings.again * size)
        front = sorted(self.search.front(), key=lambda item: item[1].samples)
        return [
            (graph, value.samples + problems)
            for graph, value in front
            if value.samples < MOST_TIMES * problems
        ][:count]

    def _is_stuck(self) -> bool:
        patience = self.settings.patience
        if patience is None or len(self.volumes) <= patience:
            return False
        return max(self.volumes[-patience:]) <= max(self.volumes[:-patience]) + 1e-12

    def _measure_volume(self) -> None:
        values = [value for value in self.search.known.values() if value.samples]
        if self.reference is None and values:
            # Fixed once: the worst of the first iteration.
            self.reference = (
                min(value.quality for value in values),
                max(value.cost for value in values),
            )
        self.volumes.append(hypervolume(values, *self.reference) if self.reference else 0.0)

    def _finest(self) -> Genome | None:
        front = self.search.front()
        return choose(front, self.settings) if front else None

    def _metrics(self, told: Sequence[Told], new: int, episodes: int) -> dict[str, float]:
        fitness = [self.search.fitness(one.value) for one in told if one.value.samples]
        best = self.search.best()
        metrics = {
            "evaluations": float(len(self.search.known)),
            "new": float(new),
            "known_already": float(len(told) - new),
            "failed": float(sum(not one.value.samples for one in told)),
            "evaluation_episodes": float(episodes),
            "front": float(len(self.search.front())),
            "hypervolume": self.volumes[-1] if self.volumes else 0.0,
        }
        if best is not None:
            metrics["best_fitness"] = self.search.fitness(best[1])
        if fitness:
            metrics["median_fitness"] = sorted(fitness)[len(fitness) // 2]
        return metrics

    # -------------------------------------------------------------------- state

    def save(self) -> Saved:
        """What was told, batch by batch, every sample, and the report."""
        samples = self.evaluator.save()
        data = {
            "choices": list(self.space.choices),
            "seeds": None if self.seeds is None else [as_json(one) for one in self.seeds],
            "batches": [[[_told_json(one) for one in part] for part in b] for b in self.batches],
            "volumes": list(self.volumes),
            "reference": self.reference and list(self.reference),
            "chosen": None if self.chosen is None else as_json(self.chosen),
            "evaluator": samples.data,
            "report": self.report,
        }
        return Saved(samples.arrays, data)

    def load(self, saved: Saved) -> None:
        """Tell the strategy the same again."""
        data: Mapping[str, Any] = saved.data
        if tuple(data["choices"]) != self.space.choices:
            raise CheckpointError(
                f"{self.path}: was searching {', '.join(data['choices'])}, and now it is "
                f"{', '.join(self.space.choices)}"
            )
        seeds = data["seeds"]
        self.seeds = None if seeds is None else tuple(from_json(one) for one in seeds)
        self.search = strategy(self.settings, self.space, self.seeds or ())
        self.batches = [
            Batch(*([_told(one) for one in part] for part in batch)) for batch in data["batches"]
        ]
        for batch in self.batches:
            batch.tell(self.search)
        self.volumes = list(data["volumes"])
        reference = data["reference"]
        self.reference = None if reference is None else (reference[0], reference[1])
        self.chosen = None if data["chosen"] is None else from_json(data["chosen"])
        self.evaluator = self._evaluator()
        self.evaluator.load(Saved(saved.arrays, data["evaluator"]))
        self.report = data["report"]


def _told_json(told: Told) -> JSON:
    value = told.value
    return [as_json(told.genome), list(value) if value.samples else None]


def _told(data: JSON) -> Told:
    genome, value = data
    return Told(from_json(genome), FAILED if value is None else Value(*value))
