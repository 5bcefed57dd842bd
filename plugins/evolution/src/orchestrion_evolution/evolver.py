"""The algorithm of trainer `evolution`: searches graphs, then measures the best again.

Each iteration asks a strategy for graphs, measures them, and tells it the values. The last one
measures the leaders on fresh draws, chooses one of them, and judges the front on the validation
split beside baselines with the same budget. Between iterations the trainer knows nothing but the
values, so telling a strategy the same again restores it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from orchestrion_dag import DagPolicy, as_config

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
from orchestrion_evolution.evaluation import Evaluator, HeldOut
from orchestrion_evolution.genome import (
    Genome,
    Space,
    as_text,
    canonical,
    genome_from_json,
    genome_of,
    graph_of,
    size_of,
    voting,
)
from orchestrion_evolution.nsga2 import NSGA2, finalists
from orchestrion_evolution.report import metrics_of, write_exports
from orchestrion_evolution.search import (
    FAILED,
    Evaluated,
    GraphTrial,
    RandomSearch,
    Search,
    Value,
    front_of,
    hypervolume,
)
from orchestrion_evolution.successive_halving import SuccessiveHalving
from orchestrion_evolution.trainer import MOST_VOTERS, Evolution

FRONT_SAMPLES = 8
"""A graph of the front gets at most this many times `problems` samples during the search."""


class Evolver(Trainer):
    """The runtime of trainer `evolution`."""

    def __init__(self, settings: Evolution, space: Space, ctx: OpenContext) -> None:
        self.settings, self.space = settings, space
        self.path, self.directory, self.key = ctx.path, ctx.directory, ctx.key
        s, samples_key = settings, self.key.child("samples")
        self.evaluator = Evaluator(space, samples_key, s.measure, s.on_error, s.caution)
        self.seeds: tuple[Genome, ...] | None = None
        self.search = self._new_search()
        self.batches: list[list[Evaluated]] = []
        """Everything that the strategy was told."""
        self.volumes: list[float] = []
        self.reference: tuple[float, float] | None = None
        """The quality and cost from which hypervolumes are measured."""
        self.chosen: Genome | None = None
        self.report: JSON = None
        """What the last iteration found; None before it."""

    def _new_search(self) -> Search:
        s, seeds = self.settings, self.seeds or ()
        match s.strategy:
            case "nsga2":
                return NSGA2(self.space, s.population, s.cost_weight, seeds)
            case "successive-halving":
                budget = s.evaluations * s.problems
                return SuccessiveHalving(self.space, s.candidates, budget, s.cost_weight, seeds)
            case "random":
                return RandomSearch(self.space, s.cost_weight)

    @property
    def iterations(self) -> int:
        return self.settings.iterations

    def plan(self, i: int, sizes: Mapping[Split, int]) -> Plan:
        return self.settings.plan(i, sizes, len(self.space.choices))

    def check(self, session: Session) -> None:
        """Refuse what cannot be searched.

        Raises:
            UsageError: the policy is not `dag`, or the task lacks training or validation problems.
        """
        if not isinstance(session.policy, DagPolicy):
            raise UsageError(
                f"{self.path}: the trainer evolution trains the policy dag; write "
                "`policy: {use: dag, chain: AGENT}` with any agent of the team to begin with"
            )
        if not session.problems("train"):
            raise UsageError(f"{self.path}: the task has no training problems to search on")
        if self.settings.held_out and not session.problems("validation"):
            raise UsageError(
                f"{self.path}: the task has no validation problems to judge the front on; give it "
                "some, or set `held_out: 0`"
            )

    async def iterate(self, i: int, session: Session) -> Metrics:
        """Search, or measure the leaders in the last iteration."""
        self.check(session)
        if self.seeds is None:
            self.seeds = self._first_graphs(session)
            self.search = self._new_search()
        return await (
            self._search(i, session) if i < self.settings.searches else self._conclude(session)
        )

    def _first_graphs(self, session: Session) -> tuple[Genome, ...]:
        if not self.settings.begin:
            return ()
        graphs = self.space.singles()
        own = genome_of(session.policy, self.space.choices)
        if own is not None and len(own.slots) <= self.space.slots:
            graphs.insert(0, Genome(own.slots, graphs[0].settings))
        return tuple(dict.fromkeys(canonical(graph) for graph in graphs))

    # ---------------------------------------------------------------------------- searching

    async def _search(self, i: int, session: Session) -> Metrics:
        if self._is_stuck():
            return self._search_metrics([], 0, 0)
        s, before, episodes = self.settings, len(self.search.known), self.evaluator.episodes
        size = min(s.batch, s.evaluations - i * s.batch)
        again = self._front_to_measure_again(size)
        trials = self.search.ask(size - len(again), session.key.child("ask"))
        batches = await self._measure(self.search, session, trials, again)
        self.batches += batches
        self._measure_volume()
        front = self.search.front()
        if front and (best := self._choose(front)) != self.chosen:
            self.chosen = best
            session.adopt(self._overlay(best))
        new = len(self.search.known) - before
        return self._search_metrics(batches[0], new, self.evaluator.episodes - episodes)

    async def _measure(
        self,
        search: Search,
        session: Session,
        trials: Sequence[GraphTrial],
        again: Mapping[Genome, int],
    ) -> list[list[Evaluated]]:
        """Measure trials, and known graphs on more samples, side by side; tell a strategy."""
        counts = {trial.graph: trial.samples or self.settings.problems for trial in trials}
        values = await self.evaluator.values(session, {**counts, **again})
        batches = [[(trial.genome, values[trial.graph]) for trial in trials]]
        if again:
            batches.append([(graph, values[graph]) for graph in again])
        for batch in batches:
            search.tell(batch)
        return batches

    def _front_to_measure_again(self, size: int) -> dict[Genome, int]:
        """Return the graphs of the front with the fewest samples, and how many they should have."""
        if isinstance(self.search, SuccessiveHalving):
            return {}
        problems = self.settings.problems
        front = sorted(self.search.front(), key=lambda result: result[1].samples)
        counts = [
            (graph, value.samples + problems)
            for graph, value in front
            if value.samples < FRONT_SAMPLES * problems
        ]
        return dict(counts[: int(self.settings.again * size)])

    def _is_stuck(self) -> bool:
        patience = self.settings.patience
        if patience is None or len(self.volumes) <= patience:
            return False
        return max(self.volumes[-patience:]) <= max(self.volumes[:-patience]) + 1e-12

    def _measure_volume(self) -> None:
        values = [value for value in self.search.known.values() if value.samples]
        if self.reference is None and values:  # the worst of the first iteration, for good
            self.reference = (
                min(value.quality for value in values),
                max(value.cost for value in values),
            )
        self.volumes.append(hypervolume(values, *self.reference) if self.reference else 0.0)

    def _choose(self, results: Sequence[Evaluated]) -> Genome:
        return self.search.choose(results, self.settings.most_cost)

    def _overlay(self, graph: Genome) -> dict[str, JSON]:
        """Return the changes, by config path, that make the run's policy this graph."""
        config = as_config(graph_of(graph, self.space.choices, self.settings.on_error))
        nodes_and_edges = {f"policy.{name}": value for name, value in config.items()}
        return {"policy.chain": "", **nodes_and_edges, **self.space.overlay(graph)}

    def _search_metrics(self, batch: Sequence[Evaluated], new: int, episodes: int) -> Metrics:
        values = sorted(self.search.fitness(value) for _, value in batch if value.samples)
        best = self.search.best()
        metrics = {
            "evaluations": float(len(self.search.known)),
            "new": float(new),
            "known_already": float(len(batch) - new),
            "failed": float(len(batch) - len(values)),
            "evaluation_episodes": float(episodes),
            "front": float(len(self.search.front())),
            "hypervolume": self.volumes[-1] if self.volumes else 0.0,
        }
        if best is not None:
            metrics["best_fitness"] = self.search.fitness(best[1])
        if values:
            metrics["median_fitness"] = values[len(values) // 2]
        return metrics

    # ------------------------------------------------------------------- the last iteration

    async def _conclude(self, session: Session) -> Metrics:
        """Measure the leaders again, choose one, judge all beside baselines, and report."""
        s = self.settings
        best = self.search.best()
        leaders = finalists(self.search.comparable(), s.finalists, best and best[0])
        if not leaders:
            raise UsageError(
                f"{self.path}: no graph could be evaluated, because every reward was missing; see "
                "the errors of the episodes with `orchestrion runs show RUN --episode ID`"
            )
        rivals = await self._rivals(session)
        counts = dict.fromkeys([*leaders, *rivals.values()], s.fresh_samples)
        fresh = await self.evaluator.values(session, counts, "fresh")
        # An edge costs nothing, so graphs that differ by a useless one are often equally good.
        by_size = sorted(leaders, key=size_of)
        indices = front_of([fresh[graph] for graph in by_size])
        front = [by_size[i] for i in indices if fresh[by_size[i]].samples] or leaders[:1]
        self.chosen = self._choose([(graph, fresh[graph]) for graph in front])
        if s.votes:
            rivals["self-consistency"] = await self._equal_cost_vote(session, fresh, self.chosen)
        held_out = {}
        if s.held_out:
            for graph in dict.fromkeys([*front, *rivals.values()]):
                held_out[graph] = await self.evaluator.held_out(session, graph, s.held_out)
        session.adopt(self._overlay(self.chosen))
        self.report = self._report(front, rivals, fresh, held_out)
        write_exports(self.report, self.directory)
        return metrics_of(self.report)

    async def _rivals(self, session: Session) -> dict[str, Genome]:
        """Return the baselines that do not depend on the chosen graph, by name."""
        s, rivals = self.settings, {}
        if "single" in s.baselines:
            rivals["single"] = await self._best_single(session)
        if "random" in s.baselines and s.strategy != "random":
            search, key = RandomSearch(self.space, s.cost_weight), self.key.child("random")
            for i in range(math.ceil(s.evaluations / s.batch)):
                size = min(s.batch, s.evaluations - len(search.known))
                await self._measure(search, session, search.ask(size, key.child(i)), {})
            front = search.front()
            if front:
                rivals["random"] = self._choose(front)
        return rivals

    async def _best_single(self, session: Session) -> Genome:
        graphs = [canonical(genome) for genome in self.space.singles()]
        counts = dict.fromkeys(graphs, self.settings.problems)
        return self._choose(list((await self.evaluator.values(session, counts)).items()))

    async def _equal_cost_vote(
        self, session: Session, fresh: dict[Genome, Value], chosen: Genome
    ) -> Genome:
        """Return a vote over the best single agent that costs as much as the chosen graph.

        Its fresh value is added to `fresh`.
        """
        samples = self.settings.fresh_samples
        single = await self._best_single(session)
        aggregator = self.space.choices.index(self.settings.aggregator)
        pair = voting(single, aggregator, 2)
        values = await self.evaluator.values(session, {single: samples, pair: samples}, "fresh")
        agent_cost = values[single].cost
        vote_cost = values[pair].cost - 2 * agent_cost
        budget = fresh[chosen].cost - vote_cost
        has_price = agent_cost > 0 and math.isfinite(budget)  # a graph without rewards has none
        count = int(budget / agent_cost + 1e-9) if has_price else 5
        graph = voting(single, aggregator, min(max(count, 1), MOST_VOTERS))
        fresh |= await self.evaluator.values(session, {graph: samples}, "fresh")
        return graph

    def _report(
        self,
        front: Sequence[Genome],
        rivals: Mapping[str, Genome],
        fresh: Mapping[Genome, Value],
        held_out: Mapping[Genome, HeldOut],
    ) -> JSON:
        s, names = self.settings, self.space.choices
        chosen, known = self.chosen, self.search.known
        measured = [value for value in known.values() if value.samples]

        def described(graph: Genome) -> dict[str, JSON]:
            text, held = as_text(graph, names), held_out.get(graph)
            search_value, fresh_value = known.get(graph), fresh.get(graph)
            return {
                "graph": text,
                "nodes": len(graph.slots),
                "config": as_config(graph_of(graph, names, s.on_error)),
                "settings": self.space.overlay(graph),
                "search": search_value and search_value.as_json(),
                "fresh": fresh_value and fresh_value.as_json(),
                "held_out": held and held.as_json(self.key.child("report", text)),
            }

        def behind(name: str, graph: Genome) -> JSON:
            mine, theirs = chosen and held_out.get(chosen), held_out.get(graph)
            if mine is None or theirs is None:
                return None
            return mine.ahead_of(theirs, s.cost_weight, self.key.child("report", "behind", name))

        return {
            "strategy": s.strategy,
            "measure": s.measure,
            "problems": s.problems,
            "evaluations": len(known),
            "failed": len(known) - len(measured),
            "episodes": self.evaluator.episodes,
            "held_out": {
                "split": "validation",
                "problems": max((len(held.costs) for held in held_out.values()), default=0),
            },
            "front": [
                {"name": f"front-{n:02}", "chosen": graph == chosen, **described(graph)}
                for n, graph in enumerate(front, start=1)
            ],
            "baselines": [
                {"name": name, **described(graph), "behind": behind(name, graph)}
                for name, graph in rivals.items()
            ],
            "searched": sorted({(round(v.cost, 9), round(v.quality, 9)) for v in measured}),
            "hypervolume": {"by_iteration": self.volumes, "reference": self.reference},
        }

    # -------------------------------------------------------------------------------- state

    def save(self) -> Saved:
        """Return what the strategy was told, all samples, and the report."""
        samples = self.evaluator.save()
        batches = [
            [(genome, value if value.samples else None) for genome, value in batch]
            for batch in self.batches
        ]
        data = {
            "choices": list(self.space.choices),
            "seeds": self.seeds,
            "batches": batches,
            "volumes": list(self.volumes),
            "reference": self.reference,
            "chosen": self.chosen,
            "evaluator": samples.data,
            "report": self.report,
        }
        return Saved(samples.arrays, data)

    def load(self, saved: Saved) -> None:
        """Restore what `save` returned, by telling a new strategy the same.

        Raises:
            CheckpointError: the checkpoint is of a search over other agents.
        """
        data: Mapping[str, Any] = saved.data
        if tuple(data["choices"]) != self.space.choices:
            raise CheckpointError(
                f"{self.path}: the checkpoint searches graphs of {', '.join(data['choices'])}, but "
                f"the config says {', '.join(self.space.choices)}; begin a new run"
            )
        seeds, reference, chosen = data["seeds"], data["reference"], data["chosen"]
        self.seeds = None if seeds is None else tuple(map(genome_from_json, seeds))
        self.search = self._new_search()
        self.batches = [
            [
                (genome_from_json(genome), FAILED if value is None else Value(*value))
                for genome, value in batch
            ]
            for batch in data["batches"]
        ]
        for batch in self.batches:
            self.search.tell(batch)
        self.volumes = list(data["volumes"])
        self.reference = None if reference is None else (reference[0], reference[1])
        self.chosen = None if chosen is None else genome_from_json(chosen)
        self.evaluator.load(Saved(saved.arrays, data["evaluator"]))
        self.report = data["report"]
