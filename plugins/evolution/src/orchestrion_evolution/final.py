"""What the last iteration does: measure the winners again, choose one, judge all beside baselines.

Three scores of a graph must not be mixed up. The *search* score chose it, so it is too high. The
*fresh* score comes from other draws; the choice among the finalists goes by it. The *held-out*
score is of validation problems that chose nothing: that one is reported.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from attrs import asdict, frozen
from orchestrion_dag import as_config

from orchestrion import JSON, Episode, Key, Metrics, Plan, Session, Split, UsageError
from orchestrion.runs import Estimate, difference, estimate
from orchestrion_evolution.evaluation import cost_of
from orchestrion_evolution.fronts import Value, crowding, front_of, ranks
from orchestrion_evolution.genome import Genome, Slot, canonical, extent
from orchestrion_evolution.search import RandomSearch
from orchestrion_evolution.topology import as_text, graph_of

if TYPE_CHECKING:
    from orchestrion_evolution.evolver import Evolver
    from orchestrion_evolution.trainer import Evolution

__all__ = ["HeldOut", "conclude", "finalists"]

MOST_VOTERS = 32
CHOSEN = "chosen"


@frozen
class HeldOut:
    """What validation problems say of a graph, by problem id."""

    rewards: Mapping[str, float | None]
    costs: Mapping[str, float]
    solved: Mapping[str, float]

    def fitness(self, cost_weight: float) -> dict[str, float]:
        """Reward less weighted cost, where there is a reward."""
        return {
            one: reward - cost_weight * self.costs[one]
            for one, reward in self.rewards.items()
            if reward is not None
        }


async def conclude(evolver: Evolver, session: Session) -> Metrics:
    """Measure, choose, judge, report; the run's policy is then the chosen graph."""
    from orchestrion_evolution.evolver import choose, overlay_of
    from orchestrion_evolution.exports import write_exports

    settings, evaluator = evolver.settings, evolver.evaluator
    best = finalists(evolver.search.comparable(), settings.finalists, evolver.search.best())
    if not best:
        raise UsageError(
            f"{evolver.path}: no graph could be evaluated: every reward was missing; see the "
            "episodes' errors with `orchestrion show`"
        )
    rivals = await _rivals(evolver, session)
    fresh_count = draws(settings)
    graphs = list(dict.fromkeys([*best, *rivals.values()]))
    values = await evaluator.values(session, [(one, fresh_count) for one in graphs], "fresh")
    fresh = dict(zip(graphs, values, strict=True))
    # Edges cost nothing, so graphs that differ by an idle one are often exactly as good.
    smallest = sorted(best, key=extent)
    places = front_of([fresh[one] for one in smallest])
    front = [smallest[i] for i in places if fresh[smallest[i]].samples] or best[:1]
    chosen = choose([(one, fresh[one]) for one in front], settings)
    if settings.aggregator and "self-consistency" in settings.baselines:
        voters = await _self_consistency(evolver, session, fresh, chosen)
        rivals["self-consistency"] = voters
    held: dict[Genome, HeldOut] = {}
    if settings.held_out:
        for graph in dict.fromkeys([*front, *rivals.values()]):
            episodes = await evaluator.held_out(session, graph, settings.held_out)
            held[graph] = _held_out(evolver, episodes)
    evolver.chosen = chosen
    session.adopt(overlay_of(chosen, settings, evolver.space))
    evolver.report = _report(evolver, front, chosen, rivals, fresh, held)
    write_exports(evolver)
    return _metrics(evolver.report)


def final_plan(settings: Evolution, choices: int, sizes: Mapping[Split, int], nodes: int) -> Plan:
    """What `conclude` takes at most."""
    s = settings
    rivals = len(s.baselines)
    fresh = (s.finalists + rivals + 2) * draws(s)
    held = (s.finalists + rivals) * min(s.held_out, sizes["validation"])
    search = s.evaluations * s.problems if "random" in s.baselines else 0
    single = choices * s.problems if rivals else 0
    activations = (fresh + held + search) * nodes + single
    if s.aggregator and "self-consistency" in s.baselines:
        votes = draws(s) + min(s.held_out, sizes["validation"])
        activations += votes * (MOST_VOTERS + 1) + draws(s) * 3
    return Plan(activations, fresh + held + search + single, forked=False)


def draws(settings: Evolution) -> int:
    """On how many fresh samples a finalist is measured."""
    return settings.fresh or 4 * settings.problems


def finalists(
    items: Sequence[tuple[Genome, Value]], most: int, best: tuple[Genome, Value] | None
) -> list[Genome]:
    """The graphs that are measured again: the fittest, then front by front those most alone.

    The front alone would not do where evaluations are noisy: a lucky graph hides what is as good.
    """
    levels = ranks([value for _, value in items])
    order: list[int] = []
    for level in range(max(levels, default=-1) + 1):
        members = [i for i, its in enumerate(levels) if its == level]
        alone = dict(zip(members, crowding([items[i][1] for i in members]), strict=True))
        order += sorted(members, key=lambda i: -alone[i])
        if len(order) >= most:
            break
    chosen = [] if best is None else [best[0]]
    chosen += [items[i][0] for i in order if items[i][0] not in chosen]
    return chosen[:most]


# ------------------------------------------------------------------------------- baselines


async def _rivals(evolver: Evolver, session: Session) -> dict[str, Genome]:
    """The baselines that do not depend on the choice, by name."""
    settings, found = evolver.settings, {}
    if "single" in settings.baselines:
        found["single"] = await _best_single(evolver, session)
    if "random" in settings.baselines and settings.strategy != "random":
        search = RandomSearch(evolver.space, settings.cost_weight)
        key = evolver.key.child("random")
        for i in range(math.ceil(settings.evaluations / settings.batch)):
            left = settings.evaluations - len(search.known)
            trials = search.ask(min(left, settings.batch), key.child(i))
            await evolver.measure(search, session, trials)
        from orchestrion_evolution.evolver import choose

        front = search.front()
        if front:
            found["random"] = choose(front, settings)
    return found


async def _best_single(evolver: Evolver, session: Session) -> Genome:
    """The single agent that would be chosen, were there nothing else."""
    from orchestrion_evolution.evolver import choose

    graphs = [canonical(one) for one in evolver.space.singles()]
    wanted = [(one, evolver.settings.problems) for one in graphs]
    values = await evolver.evaluator.values(session, wanted)
    return choose(list(zip(graphs, values, strict=True)), evolver.settings)


async def _self_consistency(
    evolver: Evolver, session: Session, fresh: dict[Genome, Value], chosen: Genome
) -> Genome:
    """As many askings of the best single agent as cost what the chosen graph does, and a vote."""
    settings = evolver.settings
    single = await _best_single(evolver, session)
    two = voting(single, evolver.space.choices.index(settings.aggregator), 2)
    few = [(single, draws(settings)), (two, draws(settings))]
    one_value, two_value = await evolver.evaluator.values(session, few, "fresh")
    vote = two_value.cost - 2 * one_value.cost
    budget = fresh[chosen].cost - vote
    count = int(budget / one_value.cost + 1e-9) if 0 < one_value.cost < math.inf else 5
    graph = voting(single, two.slots[-1].choice, min(max(count, 1), MOST_VOTERS))
    values = await evolver.evaluator.values(session, [(graph, draws(settings))], "fresh")
    fresh[graph] = values[0]
    return graph


def voting(single: Genome, aggregator: int, count: int) -> Genome:
    """One choice asked `count` times, and an aggregator that reads all of it."""
    voters = (single.slots[0],) * count
    return canonical(Genome((*voters, Slot(aggregator, (1 << count) - 1)), single.settings))


# ------------------------------------------------------------------------------- the report


def _held_out(evolver: Evolver, episodes: Sequence[Episode]) -> HeldOut:
    measure = evolver.settings.measure
    return HeldOut(
        {e.problem.id: None if e.reward is None else e.reward.total for e in episodes},
        {e.problem.id: cost_of(e, measure) for e in episodes},
        {e.problem.id: float(e.success) for e in episodes},
    )


def _report(
    evolver: Evolver,
    front: Sequence[Genome],
    chosen: Genome,
    rivals: Mapping[str, Genome],
    fresh: Mapping[Genome, Value],
    held: Mapping[Genome, HeldOut],
) -> JSON:
    """All that was found, as plain data."""
    settings, search = evolver.settings, evolver.search
    members = [
        {
            "name": f"front-{n:02}",
            CHOSEN: graph == chosen,
            **_described(evolver, graph, fresh, held),
        }
        for n, graph in enumerate(front, start=1)
    ]
    baselines = [
        {
            "name": name,
            **_described(evolver, graph, fresh, held),
            "behind": _behind(evolver, name, chosen, graph, held),
        }
        for name, graph in rivals.items()
    ]
    known = [value for value in search.known.values() if value.samples]
    return {
        "strategy": settings.strategy,
        "measure": settings.measure,
        "problems": settings.problems,
        "evaluations": len(search.known),
        "failed": len(search.known) - len(known),
        "episodes": evolver.evaluator.episodes,
        "held_out": {"split": "validation", "problems": _count(held)},
        "front": members,
        "baselines": baselines,
        "searched": sorted({(round(one.cost, 9), round(one.quality, 9)) for one in known}),
        "hypervolume": {"by_iteration": evolver.volumes, "reference": evolver.reference},
    }


def _count(held: Mapping[Genome, HeldOut]) -> int:
    return max((len(one.rewards) for one in held.values()), default=0)


def _described(
    evolver: Evolver,
    graph: Genome,
    fresh: Mapping[Genome, Value],
    held: Mapping[Genome, HeldOut],
) -> dict[str, JSON]:
    names = evolver.space.choices
    seen = evolver.search.known.get(graph)
    key = evolver.key.child("report", as_text(graph, names))
    shape = graph_of(graph, names, evolver.settings.on_error)
    return {
        "graph": as_text(graph, names),
        "nodes": len(graph.slots),
        "config": as_config(shape),
        "settings": dict(evolver.space.overlay(graph)),
        "search": _value(seen),
        "fresh": _value(fresh.get(graph)),
        "held_out": None
        if graph not in held
        else {
            "reward": _estimate([r for r in held[graph].rewards.values() if r is not None], key),
            "cost": _estimate(list(held[graph].costs.values()), key),
            "solved": _estimate(list(held[graph].solved.values()), key),
        },
    }


def _behind(
    evolver: Evolver,
    name: str,
    chosen: Genome,
    rival: Genome,
    held: Mapping[Genome, HeldOut],
) -> JSON:
    """What the chosen graph has over this one in fitness, problem by problem."""
    if rival not in held or chosen not in held:
        return None
    weight = evolver.settings.cost_weight
    mine, other = held[chosen].fitness(weight), held[rival].fitness(weight)
    both = [one for one in mine if one in other]
    key = evolver.key.child("report", "behind", name)
    return _plain(difference([mine[one] for one in both], [other[one] for one in both], key))


def _value(value: Value | None) -> JSON:
    if value is None or not value.samples:
        return None
    return {"quality": value.quality, "cost": value.cost, "samples": value.samples}


def _estimate(values: Sequence[float], key: Key) -> JSON:
    return _plain(estimate(values, key))


def _plain(value: Estimate) -> JSON:
    """NaN, the mean of nothing, is null."""
    return {
        name: None if isinstance(number, float) and math.isnan(number) else number
        for name, number in asdict(value).items()
    }


def _metrics(report: Mapping[str, JSON]) -> Metrics:
    [chosen] = [one for one in report["front"] if one[CHOSEN]]
    metrics = {
        "evaluations": float(report["evaluations"]),
        "front": float(len(report["front"])),
        "nodes": float(chosen["nodes"]),
        "fresh_reward": chosen["fresh"]["quality"],
    }
    if chosen["held_out"] is not None and chosen["held_out"]["reward"]["mean"] is not None:
        metrics["held_out_reward"] = chosen["held_out"]["reward"]["mean"]
        for one in report["baselines"]:
            if one["behind"] is not None and one["behind"]["mean"] is not None:
                metrics[f"ahead_of_{one['name']}"] = one["behind"]["mean"]
    return metrics
